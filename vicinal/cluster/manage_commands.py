"""`vicinal plan`, `up`, `status`, `exec`, `ssh`, `stop`, `start` and `down`: virtual clusters."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.manager import (
    DEFAULT_FILE,
    ClusterState,
    bring_up,
    cluster_state,
    find_name,
    open_containers,
    plan_cluster,
    start_cluster,
    stop_cluster,
    take_down,
)
from vicinal.cluster.plan.planning import Action, Plan, Step
from vicinal.cluster.plan.resource import Condition
from vicinal.cluster.plan.state import cluster_names
from vicinal.errors import VicinalError
from vicinal.host.topology import show_cpu_list
from vicinal.region.sizes import show_size

CHANGES = 2
"""Exit status of `plan` when something would change."""

_SIGNS = {
    Action.CREATE: "+",
    Action.REMOVE: "-",
    Action.START: ">",
    Action.STOP: "x",
    Action.KEEP: " ",
}
_DOING = {
    Action.CREATE: "making",
    Action.REMOVE: "taking away",
    Action.START: "starting",
    Action.STOP: "stopping",
}

_FILE = Annotated[
    Path, typer.Argument(metavar="FILE", help="The cluster's file.", show_default=True)
]
_CLUSTER = Annotated[
    str | None,
    typer.Argument(
        metavar="CLUSTER",
        help="The cluster's name, or its file; without it cluster.yaml, or the only one there is.",
    ),
]
_OF_CLUSTER = Annotated[
    str | None,
    typer.Option(
        "-c",
        "--cluster",
        metavar="CLUSTER",
        help="The cluster's name, or its file; without it cluster.yaml, or the only one there is.",
    ),
]
_QUIET = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing of single steps.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.command(name="plan")(plan)
    app.command(name="up")(up)
    app.command(name="status")(status)
    for name, function in (("exec", execute), ("ssh", ssh)):
        app.command(
            name=name,
            # What follows the node is the command's.
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        )(function)
    app.command(name="stop")(stop)
    app.command(name="start")(start)
    app.command(name="down")(down)


def plan(file: _FILE = DEFAULT_FILE) -> int:
    """Show what `up` would do; exit with 2 if that is anything."""
    made = plan_cluster(read_cluster(file))
    for step in made.steps:
        why = "" if step.action is Action.KEEP else f"  ({step.why})"
        typer.echo(f"{_SIGNS[step.action]} {step.resource.key}{why}")
    typer.echo(_summary(made))
    return CHANGES if made.changes else 0


def up(file: _FILE = DEFAULT_FILE, quiet: _QUIET = False) -> None:
    """Make a cluster, or what is missing of it; what fails is rolled back."""
    cluster = read_cluster(file)
    done = bring_up(cluster, _silent if quiet else _tell)
    state = cluster_state(cluster.name)
    for limitation in state.limitations:
        _note(f"this system does not give the nodes {limitation}")
    _note(f"{cluster.name} is up: {_summary(done)}")


def status(
    cluster: _CLUSTER = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write it as JSON.")] = False,
) -> int:
    """Show what is there of a cluster; exit with 1 if not all of it runs."""
    if cluster is None and not cluster_names() and not DEFAULT_FILE.is_file():
        typer.echo("[]" if as_json else "No cluster is up.")
        return 0
    state = cluster_state(find_name(cluster))
    if as_json:
        typer.echo(json.dumps(_as_json(state), indent=1))
    else:
        _show(state)
    return 0 if state.whole else 1


def execute(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments.")
    ],
    cluster: _OF_CLUSTER = None,
) -> None:
    """Run a command in a node, with this terminal, and exit as it does."""
    _become(node, command, cluster)


def ssh(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="A command; without it a shell.")
    ] = None,
    cluster: _OF_CLUSTER = None,
) -> None:
    """Open a shell in a node, or run a command line of its shell, as ssh does."""
    line = ["/bin/sh", "-c", " ".join(command)] if command else ["/bin/sh", "-l"]
    _become(node, line, cluster)


def stop(cluster: _CLUSTER = None, quiet: _QUIET = False) -> None:
    """End what runs in a cluster's nodes, and keep them."""
    stop_cluster(find_name(cluster), _silent if quiet else _tell)


def start(cluster: _CLUSTER = None, quiet: _QUIET = False) -> None:
    """Let a cluster's stopped nodes run again."""
    start_cluster(find_name(cluster), _silent if quiet else _tell)


def down(cluster: _CLUSTER = None, quiet: _QUIET = False) -> None:
    """Take a cluster away, however much of it is there, and leave nothing behind."""
    name = find_name(cluster)
    there = take_down(name, _silent if quiet else _tell)
    _note(f"{name} is down" if there else f"nothing was there of {name}")


def _become(node: str, command: list[str], cluster: str | None) -> None:
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    line = open_containers(find_name(cluster)).exec_command(node, command, tty=terminal)
    sys.stdout.flush()
    try:
        os.execvp(line[0], line)
    except OSError as error:
        raise VicinalError(
            f"`{shlex.join(line[:1])}` could not be run ({error.strerror})", "install util-linux"
        ) from error


def _show(state: ClusterState) -> None:
    console = Console()
    table = Table(title=state.name, title_justify="left", box=None, pad_edge=False)
    for column in ("node", "state", "address", "processors", "memory", "made by"):
        table.add_column(column)
    shown = {f"node/{each.spec.name}": each for each in state.containers}
    for piece in state.pieces:
        if not piece.key.startswith("node/"):
            continue
        container = shown.get(piece.key)
        if container is None:
            table.add_row(piece.key[len("node/") :], piece.condition.value, "", "", "", "")
            continue
        memory = container.spec.memory
        table.add_row(
            container.spec.name,
            container.state.value,
            container.address,
            show_cpu_list(container.spec.cpus) or "any",
            show_size(memory) if memory is not None else "any",
            container.runtime,
        )
    console.print(table)
    if state.region is not None:
        console.print(f"region: {state.region}", markup=False, soft_wrap=True, highlight=False)
    for piece in state.pieces:
        if piece.condition not in (Condition.READY, Condition.STOPPED):
            why = f": {piece.why}" if piece.why else ""
            console.print(f"{piece.key}: {piece.condition.value}{why}", markup=False)
    for limitation in state.limitations:
        console.print(f"this system does not give the nodes {limitation}", markup=False)


def _as_json(state: ClusterState) -> dict[str, object]:
    return {
        "name": state.name,
        "whole": state.whole,
        "region": None if state.region is None else str(state.region),
        "pieces": [
            {"key": piece.key, "condition": piece.condition, "why": piece.why}
            for piece in state.pieces
        ],
        "nodes": [
            {
                "name": each.spec.name,
                "state": each.state,
                "address": each.address,
                "processors": list(each.spec.cpus),
                "memory_bytes": each.spec.memory,
                "runtime": each.runtime,
            }
            for each in state.containers
        ],
        "limitations": list(state.limitations),
    }


def _summary(plan: Plan) -> str:
    counts = {
        "to make": Action.CREATE,
        "to start": Action.START,
        "to take away": Action.REMOVE,
        "as it is to be": Action.KEEP,
    }
    actions = [step.action for step in plan.steps]
    parts = [f"{actions.count(action)} {word}" for word, action in counts.items()]
    return ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing"


def _tell(step: Step) -> None:
    _note(f"{_DOING[step.action]} {step.resource.key} ({step.why})")


def _silent(step: Step) -> None:
    del step


def _note(text: str) -> None:
    typer.echo(f"vicinal: {text}", err=True)
