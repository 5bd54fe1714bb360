"""How samples of jobs are shown: tables for a terminal of 80 columns or more.

Names that members wrote become Text objects, because rich would interpret strings as markup.
"""

import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vicinal.base.sizes import TIB, show_size
from vicinal.base.wording import show_count
from vicinal.monitoring.sampling import Change, JobSample, Rates, Sample

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "K"))
_PLAIN = 10**4
"""Smaller numbers are written in full."""
_MOST = 999 * 10**12
_HEADINGS = ("ranks", "asleep", "msgs/s", "bytes/s", "coll/s", "1-sided/s", "arena", "faults")
_FAULT = "bold red"


class Order(StrEnum):
    """By what jobs are sorted: the greatest first, names in alphabetical order."""

    BYTES = "bytes"
    MESSAGES = "messages"
    COLLECTIVES = "collectives"
    RANKS = "ranks"
    FAULTS = "faults"
    NAME = "name"


@dataclass(frozen=True)
class Shown:
    """A sample, the change since the one before, and which of its jobs are wanted."""

    sample: Sample
    change: Change
    order: Order = Order.BYTES
    wanted: str = ""
    """Part of the name, the region's path, or a member's host name of the wanted jobs."""

    @property
    def jobs(self) -> list[JobSample]:
        """The wanted jobs in order."""
        jobs = [job for job in self.sample.jobs if self.wanted in _words(job)]
        jobs.sort(key=lambda job: (job.name, job.region.path, job.job))
        if self.order is not Order.NAME:
            jobs.sort(key=self._weight, reverse=True)  # the sort is stable
        return jobs

    def rates(self, job: JobSample) -> Rates | None:
        """The job's rates; None if it was not in the sample before."""
        return self.change.jobs.get(job.key)

    def _weight(self, job: JobSample) -> float:
        rates = self.rates(job) or Rates()
        match self.order:
            case Order.MESSAGES:
                return rates.messages + rates.outside_messages
            case Order.COLLECTIVES:
                return rates.collectives
            case Order.RANKS:
                return job.ranks
            case Order.FAULTS:
                return len(job.faults)
            case _:
                return _all_bytes(rates)


def _words(job: JobSample) -> str:
    return "\n".join([job.name, job.region.path, *(each.hostname for each in job.members)])


def _all_bytes(rates: Rates) -> float:
    inside = rates.message_bytes + rates.outside_bytes
    return inside + rates.collective_bytes + rates.one_sided_bytes


def show_number(number: float) -> str:
    """A number in at most seven characters: `12`, `9,999`, `1.2M`."""
    if number > _MOST:
        return ">999T"  # no job is that fast: a member wrote it
    for unit, name in _UNITS:
        if number >= max(unit, _PLAIN):
            return f"{number / unit:.1f}{name}"
    return f"{number:,.0f}"


def show_bytes(count: float) -> str:
    """Bytes in at most ten characters."""
    return show_size(round(count)) if count < 1000 * TIB else "> 999 TiB"


def summary(shown: Shown) -> Text:
    """The line above everything: the host, its jobs, ranks and faults."""
    jobs = shown.sample.jobs
    faults = sum(len(job.faults) for job in jobs) + len(shown.sample.unreadable)
    words = [
        socket.gethostname(),
        show_count(len(jobs), "job"),
        show_count(sum(job.ranks for job in jobs), "rank"),
        show_count(len(shown.sample.regions), "region"),
    ]
    line = Text(", ".join(words), overflow="ellipsis", no_wrap=True)
    if faults:
        line.append(f", {show_count(faults, 'fault')}", style=_FAULT)
    return line


def jobs_table(shown: Shown, jobs: Sequence[JobSample], selected: JobSample | None = None) -> Table:
    """A row for each of these jobs."""
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True)
    table.add_column("job", no_wrap=True, overflow="ellipsis", min_width=12, ratio=1)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for job in jobs:
        rates = shown.rates(job)
        mark = "> " if job is selected else "  " if selected is not None else ""
        table.add_row(
            Text(f"{mark}{job.name}"),
            str(job.ranks),
            str(job.asleep),
            *_rate_cells(rates),
            _share(job.arena_used, job.arena_bytes),
            Text(str(len(job.faults)), style=_FAULT if job.faults else ""),
            style="reverse" if job is selected else "",
        )
    return table


def _rate_cells(rates: Rates | None) -> tuple[str, str, str, str]:
    if rates is None:
        return "-", "-", "-", "-"
    return (
        show_number(rates.messages + rates.outside_messages),
        show_bytes(_all_bytes(rates)),
        show_number(rates.collectives),
        show_number(rates.one_sided),
    )


def _share(used: int, whole: int) -> str:
    return f"{100 * used / whole:.0f}%" if whole else "-"


def unreadable_lines(sample: Sample) -> list[Text]:
    """A line for each region that could not be read."""
    return [_line(f"not shown: {reason}", style=_FAULT) for reason in sample.unreadable]


def nothing_runs(shown: Shown) -> Text:
    """Says why there is no job to show."""
    if shown.wanted and shown.sample.jobs:
        return Text(f"no job matches {shown.wanted}")
    return Text("no job runs through a region of this host now")


def job_lines(shown: Shown, job: JobSample) -> list[RenderableType]:
    """One job in detail, a line each: facts, rates, faults, members, and the paths of pairs."""
    region, counts, rates = job.region, job.counts, shown.rates(job)
    states = Counter(member.condition for member in job.members)
    heap = "none"
    if region.heap_bytes:
        heap = f"{show_bytes(region.heap_reserved_bytes)} of {show_bytes(region.heap_bytes)}"
    lines: list[RenderableType] = [
        _line(f"{job.name}, job {job.job or 'without a number'}", style="bold"),
        _line(f"region   {region.path}"),
        _line(
            f"members  {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}; "
            f"{job.asleep} asleep; {region.free_slots} of {region.slots} slots free"
        ),
        _line(
            f"memory   arenas {show_bytes(job.arena_used)} of {show_bytes(job.arena_bytes)}, "
            f"heaps {heap}, region {show_bytes(region.reserved_bytes)}"
        ),
    ]
    kinds = (
        ("messages", "messages", "message_bytes"),
        ("to other hosts", "outside_messages", "outside_bytes"),
        ("collectives", "collectives", "collective_bytes"),
        ("one-sided", "one_sided", "one_sided_bytes"),
    )
    for what, number, count in kinds:
        line = f"{what:<16} {show_number(getattr(counts, number)):>8}"
        line += f"  {show_bytes(getattr(counts, count)):>10}"
        if rates is not None:
            line += f"  {show_number(getattr(rates, number)):>8}/s"
            line += f"  {show_bytes(getattr(rates, count)):>10}/s"
        lines.append(_line(line))
    lines += [_line(f"fault    {fault.text}", style=_FAULT) for fault in job.faults]
    lines += [Text(), *_member_lines(job), Text(), *_pair_lines(shown, job)]
    return lines


def _member_lines(job: JobSample) -> Iterable[Text]:
    yield _line(
        f"{'rank':>6}  {'slot':>4}  {'pid':>7}  {'state':<8}{'waits':<9}{'arena':>10}  host"
    )
    for member in job.members:
        rank = "-" if member.rank is None else str(member.rank)
        waits = "asleep" if member.sleeping and member.condition != "left" else ""
        yield _line(
            f"{rank:>6}  {member.slot:>4}  {member.pid:>7}  {member.condition:<8}{waits:<9}"
            f"{show_bytes(member.arena_used):>10}  {member.hostname}",
            style=_FAULT if member.condition == "dead" else "",
        )


def _pair_lines(shown: Shown, job: JobSample) -> Iterable[Text]:
    rates = shown.change.pairs.get(job.key, {})
    yield _line(
        f"{'from':>6}  {'to':>6}  {'path':<8}{'messages':>9}  {'volume':>10}"
        f"  {'msgs/s':>8}  bytes/s"
    )
    for pair in job.traffic.pairs:
        each = rates.get((pair.sender, pair.receiver, pair.path))
        now = "" if each is None else f"{show_number(each[0]):>8}  {show_bytes(each[1])}"
        yield _line(
            f"{pair.sender:>6}  {pair.receiver:>6}  {pair.path:<8}{show_number(pair.messages):>9}"
            f"  {show_bytes(pair.bytes):>10}  {now}"
        )


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def whole_view(shown: Shown, job: JobSample | None) -> Group:
    """Everything at once, for a stream instead of a screen: all jobs, or one job in detail."""
    if job is not None:
        body: list[RenderableType] = job_lines(shown, job)
    elif jobs := shown.jobs:
        body = [jobs_table(shown, jobs)]
    else:
        body = [nothing_runs(shown)]
    return Group(summary(shown), *body, *unreadable_lines(shown.sample))
