"""A table of the path that the messages of each pair of ranks took."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vicinal.base.sizes import show_size
from vicinal.mpi.traffic import NETWORK_PATH, JobTraffic


def paths_tables(jobs: Sequence[JobTraffic]) -> Group:
    """Return a table for each of the jobs in a region."""
    return Group(*map(paths_table, jobs))


def paths_table(traffic: JobTraffic) -> Table:
    """Return the table that `vicinal paths` shows for one job."""
    # Text objects, because rich would interpret strings of members as markup.
    title = Text(f"Paths of {traffic.label or 'the job'}", style="table.title")
    table = Table(title=title, title_justify="left", highlight=True)
    for heading in ("from rank", "on", "to rank", "on", "path"):
        table.add_column(heading)
    for heading in ("messages", "volume"):
        table.add_column(heading, justify="right")
    names = traffic.hostnames
    for pair in traffic.pairs:
        table.add_row(
            str(pair.sender),
            Text(names.get(pair.sender, "-")),
            str(pair.receiver),
            Text(names.get(pair.receiver, "-")),
            pair.path,
            str(pair.messages),
            show_size(pair.bytes),
        )
    # Only other hosts know which ranks these peers are, so one row sums what a rank sent there.
    for sender in sorted({sent.sender for sent in traffic.beyond}):
        sent = [each for each in traffic.beyond if each.sender == sender]
        table.add_row(
            str(sender),
            Text(names.get(sender, "-")),
            f"{len(sent)} others",
            "other hosts",
            NETWORK_PATH,
            str(sum(each.messages for each in sent)),
            show_size(sum(each.bytes for each in sent)),
        )
    talked = {(p.sender, p.receiver) for p in traffic.pairs if p.sender != p.receiver}
    silent = len(names) * (len(names) - 1) - len(talked)
    if silent > 0:
        table.caption = f"{silent} of the pairs of {len(names)} ranks have exchanged no messages"
    return table
