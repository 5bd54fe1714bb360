"""The commands of virtual clusters: `vicinal plan`, `up`, `status`, `exec`, `ssh`, `stop`, `start`,
`save`, `restore`, `migrate` and `down`.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vicinal.base.errors import VicinalError
from vicinal.base.plain_call import for_typer
from vicinal.base.sizes import show_size
from vicinal.base.waiting import told
from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.hosts.record import MOVE_KIND
from vicinal.cluster.manager import (
    DEFAULT_FILE,
    bring_up,
    cluster_state,
    find_name,
    migrate_vm,
    node_command,
    restore_cluster,
    save_cluster,
    start_cluster,
    stop_cluster,
    take_down,
    unowned_names,
)
from vicinal.cluster.nodes.vm.ranks import Return
from vicinal.cluster.owners import left_behind
from vicinal.cluster.ownership import check_not_in_use, ownership_of
from vicinal.cluster.plan.planning import Action, Shown
from vicinal.cluster.plan.resource import Condition
from vicinal.cluster.plan.state import cluster_names
from vicinal.cluster.plan_command import plan, summary
from vicinal.cluster.resources.containers import ContainerResource
from vicinal.cluster.resources.host_node import HostNodeResource
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.status import SAVED, ClusterState, Piece
from vicinal.cluster.vm.libvirt.uri import is_own
from vicinal.host.topology import show_cpu_list

_DOING = {
    Action.CREATE: "creating",
    Action.REMOVE: "removing",
    Action.START: "starting",
    Action.STOP: "stopping",
}

_CHANGES_IN_LINE = 4
"""Maximum number of changed attributes in a line about one step; `plan` shows all."""

_NODE_KINDS = (ContainerResource.KIND, HostNodeResource.KIND, VmResource.KIND)

_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="The cluster file.", show_default=True)]
_CLUSTER = Annotated[
    str | None,
    typer.Argument(
        metavar="CLUSTER",
        help="The cluster's name or file. Default: cluster.yaml, or the only cluster that `up` "
        "created.",
    ),
]
_OF_CLUSTER = Annotated[
    str | None,
    typer.Option(
        "-c",
        "--cluster",
        metavar="CLUSTER",
        help="The cluster's name or file. Default: cluster.yaml, or the only cluster that `up` "
        "created.",
    ),
]
_QUIET = Annotated[bool, typer.Option("-q", "--quiet", help="Do not print single steps.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.command(name="plan")(for_typer(plan))
    app.command(name="up")(up)
    app.command(name="status")(status)
    for name, function in (("exec", execute), ("ssh", ssh)):
        app.command(
            name=name,
            # Options after the node belong to the command.
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        )(function)
    app.command(name="stop")(stop)
    app.command(name="start")(start)
    app.command(name="save")(save)
    app.command(name="restore")(restore)
    app.command(name="migrate")(migrate)
    app.command(name="down")(down)


def up(file: _FILE = DEFAULT_FILE, quiet: _QUIET = False) -> None:
    """Create a cluster, or its missing parts. If a step fails, all steps are rolled back."""
    cluster = read_cluster(file)
    with told(f"checking the present state of {cluster.name}", quiet=quiet) as word:
        tell, say = word.before(_tell), word.before(_note)
        done = bring_up(cluster, _silent if quiet else tell, _silent if quiet else say)
    state = cluster_state(cluster.name)
    for note in _notes(state):
        _note(note)
    _note(f"{cluster.name} is up: {summary(done, done=True)}")


def status(
    cluster: _CLUSTER = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show a cluster's nodes and their states; exit with 1 unless all run and there are nodes."""
    if cluster is None and not unowned_names() and not DEFAULT_FILE.is_file():
        typer.echo("[]" if as_json else "No cluster is up.")
        if not as_json:
            _show_owned()
        return 0
    name = find_name(cluster)
    with told(f"checking the nodes of {name}"):
        state = cluster_state(name)
    if as_json:
        typer.echo(json.dumps(state.to_dict(), indent=1))
    else:
        _show(state)
        for each in left_behind():
            if state.name in each.clusters:
                typer.echo(f"Note: {each}")
    return 0 if state.whole else 1


def _show_owned() -> None:
    """Print the clusters of studies and searches, which `status NAME` shows."""
    for name in cluster_names():
        whose = ownership_of(name)
        if whose is not None and whose.runs:
            typer.echo(f"Note: {name} belongs to {whose.what}, which is running.")
    for each in left_behind():
        typer.echo(f"Note: {each}")


def execute(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments.")
    ],
    cluster: _OF_CLUSTER = None,
) -> None:
    """Run a command in a node, with this terminal, and exit with its status."""
    _become(node, command, cluster)


def ssh(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A command line. Default: an interactive shell."),
    ] = None,
    cluster: _OF_CLUSTER = None,
) -> None:
    """Open a shell in a node, or run a command line in the node's shell, as ssh does."""
    line = ["/bin/sh", "-c", " ".join(command)] if command else ["/bin/sh", "-l"]
    _become(node, line, cluster)


def stop(cluster: _CLUSTER = None, quiet: _QUIET = False) -> None:
    """End what runs in a cluster's nodes, and keep the nodes."""
    name = find_name(cluster)
    check_not_in_use(name)
    with told(f"stopping the nodes of {name}", quiet=quiet) as word:
        stop_cluster(name, _silent if quiet else word.before(_tell))


def start(cluster: _CLUSTER = None, quiet: _QUIET = False) -> None:
    """Start a cluster's stopped nodes."""
    name = find_name(cluster)
    with told(f"starting the nodes of {name}", quiet=quiet) as word:
        start_cluster(name, _silent if quiet else word.before(_tell))


def save(cluster: _CLUSTER = None) -> None:
    """Save a cluster's running virtual machines with their jobs, and end them.

    All hosts of the cluster save their virtual machines, or none does. If one cannot be saved, all
    run on.
    """
    name = find_name(cluster)
    check_not_in_use(name)
    with told(f"saving the virtual machines of {name}") as word:
        save_cluster(name, word.before(_note))
    _note(f"{name} is saved; restore it with `vicinal restore {name}`")


def restore(cluster: _CLUSTER = None, quiet: _QUIET = False) -> None:
    """Restore a cluster's saved virtual machines, and resume them after all are restored."""
    name = find_name(cluster)
    with told(f"restoring the virtual machines of {name}", quiet=quiet) as word:
        restore_cluster(name, _silent if quiet else word.before(_tell))


def migrate(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The virtual machine's name.")],
    host: Annotated[
        str,
        typer.Argument(metavar="HOST", help="Another host of the cluster, as its file names it."),
    ],
    cluster: _OF_CLUSTER = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Time limit of each step.")
    ] = 300.0,
    quiet: _QUIET = False,
) -> None:
    """Move a virtual machine with its jobs to another host of its cluster.

    If the move fails or is interrupted, the virtual machine stays on its host, in its region.
    """
    say = _silent if quiet else _note
    name = find_name(cluster)
    check_not_in_use(name)
    with told(f"moving {node} to {host}", quiet=quiet) as word:
        report = migrate_vm(name, node, host, seconds=timeout, say=word.before(say))
    still = report.moved.still_seconds
    stood = "" if still is None else f", and was paused for {still:.2f} s"
    _note(f"{node} is on {host}: the move took {report.moved.seconds:.1f} s{stood}")
    say_who_is_out(report.ranks, report.back)


def say_who_is_out(ranks: int, back: Return) -> None:
    """Warn about ranks that left a VM's region and have not joined the region of its new host."""
    if back.out:
        _note(
            f"warning: {back.out} of {ranks} ranks are not in the new host's region, and use the "
            f"network: {back.why}"
        )


def down(
    cluster: _CLUSTER = None,
    quiet: _QUIET = False,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host of the cluster that never comes back: it gets no request. Repeatable.",
        ),
    ] = None,
    forget_vms: Annotated[
        bool,
        typer.Option(
            "--forget-vms",
            help="Give up virtual machines whose libvirt does not answer, and print what may be "
            "left.",
        ),
    ] = False,
    owned: Annotated[
        bool,
        typer.Option(
            "--owned",
            help="Also remove a cluster that a running study or search created for itself; the "
            "study or search then ends.",
        ),
    ] = False,
) -> None:
    """Remove a cluster completely, even if only parts of it exist."""
    name = find_name(cluster)
    if not owned:
        check_not_in_use(name)
    with told(f"removing {name}", quiet=quiet) as word:
        show = _silent if quiet else word.before(_tell)
        say = word.before(_note)
        there = take_down(name, show, forget or (), forget_vms=forget_vms, say=say)
    _note(f"{name} is down" if there else f"{name} does not exist")


def _become(node: str, command: list[str], cluster: str | None) -> None:
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    line = node_command(find_name(cluster), node, command, tty=terminal)
    sys.stdout.flush()
    try:
        os.execvp(line[0], line)
    except OSError as error:
        raise VicinalError(
            f"`{shlex.join(line[:1])}` could not be run ({error.strerror})",
            "install the package that contains it",
        ) from error


def _show(state: ClusterState) -> None:
    console = Console()
    table = Table(title=state.name, title_justify="left", box=None, pad_edge=False)
    hosts = ["host"] if state.hosts else []
    for column in ("node", *hosts, "state", "address", "processors", "memory", "made by"):
        table.add_column(column)
    for row in _rows(state, []):
        table.add_row(*row)
    for host in state.hosts:
        if host.state is not None:
            for row in _rows(host.state, [host.name]):
                table.add_row(*row)
    console.print(table)
    _show_pieces(console, state, "")
    for host in state.hosts:
        if host.state is not None:
            _show_pieces(console, host.state, f"{host.name}: ")
    for note in [*_at_work(state), *_notes(state)]:
        console.print(note, markup=False, soft_wrap=True, highlight=False)


def _at_work(state: ClusterState) -> Iterator[str]:
    """Yield why a cluster does not run, and how to continue."""
    if any(each.busy for each in (state, *(host.state for host in state.hosts if host.state))):
        yield "another command works on the cluster now"
    elif SAVED in {node["state"] for node in state.to_dict()["nodes"]}:
        whole = state.name.partition(".")[0]  # the cluster's name, if `state` is of a host's part
        yield f"the cluster is saved: restore it with `vicinal restore {whole}`"
    elif state.ready and not state.has_nodes:
        yield "the cluster has no nodes: create those of its file with `vicinal up`"


def _rows(state: ClusterState, host: list[str]) -> Iterator[list[str]]:
    """Yield a row for each node; `host` has the node's host, or nothing on one host."""
    shown = {each.name: each for each in state.nodes}
    for piece in state.pieces:
        kind, _, name = piece.key.partition("/")
        if kind not in _NODE_KINDS:
            continue
        facts = shown.get(name)
        if facts is None:
            yield [name, *host, piece.condition.value, "", "", "", ""]
            continue
        memory = facts.memory_bytes
        yield [
            name,
            *host,
            facts.state,
            facts.address,
            show_cpu_list(facts.cpus) or "any",
            show_size(memory) if memory is not None else "any",
            facts.runtime,
        ]


def _show_pieces(console: Console, state: ClusterState, host: str) -> None:
    """Print the region, and resources that are not ready."""
    if state.region is not None:
        line = f"{host}region: {state.region}"
        console.print(line, markup=False, soft_wrap=True, highlight=False)
    for piece in state.pieces:
        if _is_worth_saying(piece, state):
            why = f": {piece.why}" if piece.why else ""
            console.print(f"{host}{piece.key}: {piece.condition.value}{why}", markup=False)


def _is_worth_saying(piece: Piece, state: ClusterState) -> bool:
    """Whether a resource is not ready, and the nodes' rows do not show that."""
    if piece.condition is not Condition.STOPPED:
        return piece.condition is not Condition.READY
    is_node = piece.key.partition("/")[0] in _NODE_KINDS
    return not is_node and any(node.state == "running" for node in state.nodes)


def _notes(state: ClusterState) -> list[str]:
    """Return notes about a running cluster: limitations, libvirt, accelerator and moves."""
    notes = [f"this system does not give the nodes {each}" for each in state.limitations]
    if state.libvirt is not None:
        own = "Vicinal's own, until `vicinal down`: " if is_own(state.libvirt) else ""
        notes.append(f"libvirt: {own}{state.libvirt}")
    if state.accelerator is not None:
        made = state.accelerator
        notes.append(f"virtual machines: {made.accelerator.description} ({made.reason})")
    moved = [piece for piece in state.pieces if piece.key.startswith(f"{MOVE_KIND}/")]
    notes += [piece.why for piece in moved if piece.condition is Condition.READY]
    for host in state.hosts:
        if host.state is not None:
            notes += [f"{host.name}: {note}" for note in _notes(host.state)]
    return notes


def _tell(step: Shown) -> None:
    changes = [*step.changes[:_CHANGES_IN_LINE]]
    if more := len(step.changes) - len(changes):
        changes.append(f"{more} more")
    why = f"{step.why}: {', '.join(changes)}" if changes else step.why
    _note(f"{_DOING[step.action]} {step.key} ({why})")


def _silent(_: object) -> None:
    """Print nothing."""


def _note(text: str) -> None:
    typer.echo(f"vicinal: {text}", err=True)
