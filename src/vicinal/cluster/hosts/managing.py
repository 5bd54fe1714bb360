"""Operations on an existing cluster over several hosts, from the hosts' records."""

from collections.abc import Callable, Collection, Mapping

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import (
    HostPartConnection,
    Listener,
    Request,
    ask_all,
    connected,
)
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
    """Send a request for the part to all hosts of a cluster at the same time.

    Does nothing if the cluster has no hosts. Raises errors after all hosts have finished.
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
    forget_vms: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Entry]:
    """Remove the parts on all hosts of a cluster; return the entries of resources on this host.

    The hosts in `lost` get no request and are forgotten. With `forget_vms`, the other hosts
    give up VMs whose libvirt is lost, and `say` gets what may be left. Raises VicinalError if a
    host does not answer or cannot remove its part. The parts of all other hosts are removed then,
    and the records of the failed hosts stay.
    """
    entries = journal.entries()
    records = {record.host: record for record in host_records(entries)}
    for host in lost:
        if host not in records:
            known = f"name one of {', '.join(records)}" if records else "leave out --forget"
            raise VicinalError(f"{name} has no host {host!r}", known)
        journal.write(records.pop(host), Event.REMOVED)
    with connected(list(records)) as connections:
        for record in records.values():
            journal.write(record, Event.REMOVING)
        down = _about(records, Request.DOWN, {"forget_vms": forget_vms})
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
            f"{error.message}; the part of {name} on {host} is not removed",
            f"{error.remedy}; then call `vicinal down {name}` again, with --forget {host} if the "
            "host never comes back",
        )
    return on_this_host(entries)


def state_over_hosts(name: str, entries: Mapping[str, Entry]) -> ClusterState:
    """Return the present state of a cluster on all its hosts, even if some do not answer."""
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
            # The host's reason is more useful than an interruption, which may be long ago.
            pieces.append(Piece(record.key, observed.condition, observed.why))
        else:
            pieces.append(seen(record.key, entries[record.key], observed, busy=busy))
    for move in all_moves(entries):
        moved = Observation(
            Condition.READY, f"{move.node} was moved from {move.home} to {move.host}"
        )
        pieces.append(seen(move.key, entries[move.key], moved, busy=busy))
    if SAVE_KEY in entries:
        saved = Observation(Condition.STOPPED, "its virtual machines are saved")
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


def _state(connection: HostPartConnection, record: HostRecord) -> HostState:
    connection.hello()
    found = connection.ask(Request.STATE, {"host_part": record.host_part})["state"]
    if found is None:
        return HostState(record.host, None, "it has no part of the cluster")
    try:
        return HostState(record.host, ClusterState.from_dict(found))
    except (ValueError, KeyError, TypeError) as error:
        raise VicinalError(
            f"host {record.host}: its agent's answer about the cluster is malformed",
            "check which Vicinal is installed there",
        ) from error


def _about(
    records: Mapping[str, HostRecord], request: Request, options: Mapping[str, object] | None = None
) -> Callable[[HostPartConnection, Listener], object]:
    def ask(connection: HostPartConnection, listener: Listener) -> object:
        connection.hello()
        host_part = records[connection.name].host_part
        return connection.ask(request, {"host_part": host_part, **(options or {})}, listener)

    return ask
