"""What is done with a cluster over several hosts once it is there, from the hosts' records."""

from collections.abc import Callable, Collection, Mapping

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import Listener, Request, ShareConnection, ask_all, connected
from vicinal.cluster.hosts.record import (
    SAVE_KEY,
    HostRecord,
    SaveRecord,
    all_moves,
    host_records,
    on_this_host,
)
from vicinal.cluster.plan.applying import Show
from vicinal.cluster.plan.journal import Entry, Event, Journal
from vicinal.cluster.plan.resource import Condition, Observation
from vicinal.cluster.plan.state import is_worked_on, journal_of
from vicinal.cluster.resources.keys import KeysResource
from vicinal.cluster.status import ClusterState, HostState, Piece, seen


def over_hosts(name: str, request: Request, show: Show) -> None:
    """Have all hosts of a cluster do something with their shares, at the same time.

    Does nothing where the cluster has no hosts. Raises the first error when all have ended.
    """
    records = {record.host: record for record in host_records(journal_of(name).entries())}
    with connected(list(records)) as connections:
        ask_all(connections, _about(records, request), show).all()


def down_over_hosts(
    name: str,
    journal: Journal,
    show: Show,
    lost: Collection[str] = (),
    *,
    forget_machines: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Entry]:
    """Take away what the hosts of a cluster have of it; what is left is on this host.

    The hosts in `lost` are not asked, and forgotten; the others do with machines whose libvirt is
    lost as `forget_machines` says, and `say` is told. Raises VicinalError where another could not
    be asked or something stays there: the others have nothing more then, and this host keeps what
    it knows of those.
    """
    entries = journal.entries()
    records = {record.host: record for record in host_records(entries)}
    for host in lost:
        if host not in records:
            raise VicinalError(
                f"{name} has no host {host}", f"name one of {', '.join(records) or 'none'}"
            )
        journal.write(records.pop(host), Event.REMOVED)
    with connected(list(records)) as connections:
        for record in records.values():
            journal.write(record, Event.REMOVING)
        down = _about(records, Request.DOWN, {"forget_machines": forget_machines})
        outcomes = ask_all(connections, down, show, say)
    for host in outcomes.answers:
        journal.write(records[host], Event.REMOVED)
    for move in all_moves(entries):
        if not outcomes.errors:
            journal.write(move, Event.REMOVED)
    if SAVE_KEY in entries and not outcomes.errors:
        journal.write(SaveRecord(), Event.REMOVED)
    for host, error in outcomes.errors.items():
        raise VicinalError(
            f"{error.message}; what {host} has of {name} is still there",
            f"{error.remedy}; then call `vicinal down {name}` again, or with --forget {host} if it "
            "never comes back",
        )
    return on_this_host(entries)


def state_over_hosts(name: str, entries: Mapping[str, Entry]) -> ClusterState:
    """What is there of a cluster now, on all its hosts, also where one is not reached."""
    records = {record.host: record for record in host_records(entries)}
    with connected(list(records)) as connections:
        outcomes = ask_all(connections, lambda each, _: _state(each, records[each.name]))
    busy = is_worked_on(name)
    hosts, pieces = [], []
    for key, entry in on_this_host(entries).items():
        observed = KeysResource.from_settings(entry.settings).observe()
        pieces.append(seen(key, entry, observed, busy=busy))
    for host, record in records.items():
        error = outcomes.errors.get(host)
        if error is not None:
            state = HostState(host, None, error.message.removeprefix(f"host {host}: "))
        else:
            state = outcomes.answers[host]
        hosts.append(state)
        observed = _observed(state)
        if state.state is None and not busy:
            # Why says more than that a command was interrupted: that may be long ago.
            pieces.append(Piece(record.key, observed.condition, observed.why))
        else:
            pieces.append(seen(record.key, entries[record.key], observed, busy=busy))
    for move in all_moves(entries):
        moved = Observation(
            Condition.READY, f"{move.node} was moved from {move.home} to {move.host}"
        )
        pieces.append(seen(move.key, entries[move.key], moved, busy=busy))
    if SAVE_KEY in entries:
        saved = Observation(Condition.STOPPED, "its machines are saved")
        pieces.append(seen(SAVE_KEY, entries[SAVE_KEY], saved, busy=busy))
    return ClusterState(name=name, pieces=tuple(pieces), busy=busy, hosts=tuple(hosts))


def _observed(host: HostState) -> Observation:
    if host.state is None:
        return Observation(Condition.BROKEN, host.why)
    if host.state.ready:
        return Observation(Condition.READY)
    conditions = {piece.condition for piece in host.state.pieces}
    stopped = conditions <= {Condition.READY, Condition.STOPPED}
    return Observation(Condition.STOPPED if stopped else Condition.BROKEN, "not all of it runs")


def _state(connection: ShareConnection, record: HostRecord) -> HostState:
    connection.hello()
    found = connection.ask(Request.STATE, {"share": record.share})["state"]
    if found is None:
        return HostState(record.host, None, "it has nothing of the cluster")
    try:
        return HostState(record.host, ClusterState.from_dict(found))
    except (ValueError, KeyError, TypeError) as error:
        raise VicinalError(
            f"host {record.host}: it says nothing sensible of the cluster", "see what runs there"
        ) from error


def _about(
    records: Mapping[str, HostRecord], request: Request, options: Mapping[str, object] | None = None
) -> Callable[[ShareConnection, Listener], object]:
    def ask(connection: ShareConnection, listener: Listener) -> object:
        connection.hello()
        share = records[connection.name].share
        return connection.ask(request, {"share": share, **(options or {})}, listener)

    return ask
