"""The agent of a command on each host of a cluster: `python -m vicinal.cluster.host_part_agent`.

The agent executes requests for this host's part of the cluster (hosts/connection.py), by the code
that serves this host's own clusters. Without KEEP from the command, the agent undoes what it
created: another host failed, a user pressed Ctrl-C, or the command, its host or the network between
them is gone.
"""

import os
import socket
import sys
from typing import Any

import vicinal
from vicinal.base.crash_report import report_crash
from vicinal.base.errors import VicinalError, fail
from vicinal.base.signals import Ended, signals_raise
from vicinal.cluster.file.hosts import is_host_part
from vicinal.cluster.hosts.connection import MARK, Answers, Request, Requests
from vicinal.cluster.hosts.host_part import host_part_of
from vicinal.cluster.hosts.moving import MoveStep, MoveSteps
from vicinal.cluster.hosts.saving import SaveStep, SaveSteps
from vicinal.cluster.manager import (
    bring_up,
    cluster_state,
    open_own_nodes,
    plan_cluster,
    start_cluster,
    stop_cluster,
    take_down,
)
from vicinal.cluster.nodes.job_nodes import OwnNodes
from vicinal.cluster.plan.planning import Shown
from vicinal.cluster.plan.state import cluster_names, journal_of
from vicinal.cluster.vm.libvirt.uri import default_uri


class Agent:
    """The agent of one command."""

    def __init__(self) -> None:
        self._requests = Requests()
        self._say = Answers(MARK).say
        self._nodes: OwnNodes | None = None
        self._entered_host_part = ""
        self._move: MoveSteps | None = None
        self._save: SaveSteps | None = None

    def serve(self) -> None:
        """Answer requests until the end of input."""
        try:
            while (request := self._requests.next()) is not None:
                try:
                    self._serve(request)
                except VicinalError as error:
                    first, *more = [(each.message, each.remedy) for each in error.each]
                    self._say(error=first[0], remedy=first[1], more=more)
        finally:
            for steps in (self._move, self._save):
                if steps is not None:
                    steps.close()

    def _serve(self, request: dict[str, Any]) -> None:
        match Request(request["do"]):
            case Request.HELLO:
                self._hello(str(request["version"]))
            case Request.PLAN:
                steps = plan_cluster(host_part_of(request))
                self._say(steps=[_as_json(step) for step in steps])
            case Request.UP:
                self._up(request)
            case Request.DOWN:
                forget = bool(request.get("forget_vms"))
                say = self._speak
                there = take_down(_host_part(request), self._show, forget_vms=forget, say=say)
                self._say(was_there=there)
            case Request.START:
                start_cluster(_host_part(request), self._show)
                self._say()
            case Request.STOP:
                stop_cluster(_host_part(request), self._show)
                self._say()
            case Request.STATE:
                name = _host_part(request)
                there = name in cluster_names()
                self._say(state=cluster_state(name).to_dict() if there else None)
            case Request.ENTER:
                self._entered_host_part = _host_part(request)
                self._nodes = open_own_nodes(self._entered_host_part)
                self._nodes.enter()
                if request["ranks"] is not None:
                    self._nodes.check_room(int(request["ranks"]), heap=bool(request["heap"]))
                self._say()
            case Request.CHECK:
                entries = journal_of(self._entered_host_part).entries().values()
                whole = {entry.key.partition("/")[2] for entry in entries if entry.whole}
                self._entered().check(whole)
                self._say()
            case Request.MOVE:
                if self._move is None:
                    self._move = MoveSteps(_host_part(request), str(request["node"]))
                self._say(**self._move.do(MoveStep(request["step"]), request))
            case Request.SAVE:
                if self._save is None:
                    self._save = SaveSteps(_host_part(request), self._show)
                self._say(**self._save.do(SaveStep(request["step"])))
            case Request.TRAFFIC:
                traffic = self._entered().traffic(int(request["job"]))
                self._say(traffic=None if traffic is None else traffic.to_dict())
            case Request.KEEP | Request.UNDO | Request.HERE:
                self._say()  # nothing is being created

    def _entered(self) -> OwnNodes:
        if self._nodes is None:
            raise VicinalError("the nodes were not entered", "send ENTER before this request")
        return self._nodes

    def _hello(self, version: str) -> None:
        if version != vicinal.__version__:
            raise VicinalError(
                f"it has Vicinal {vicinal.__version__}, and the command's host has {version}",
                "install the same version on all hosts",
            )
        # Addresses of both ends of the connection, if the command came by ssh.
        ends = os.environ.get("SSH_CONNECTION", "").split()
        came_from, came_to = (ends[0], ends[2]) if len(ends) == 4 else ("", "")
        self._say(
            hostname=socket.gethostname(),
            address=came_to,
            command_address=came_from,
            hypervisor=default_uri(),
        )

    def _up(self, request: dict[str, Any]) -> None:
        host_part = host_part_of(request)
        try:
            self._requests.making(True)
            steps = bring_up(host_part, self._show, self._speak, self._settle)
        except VicinalError as error:
            left = _half_made(host_part.kept_as)
            self._say(error=error.message, remedy=error.remedy, left=left)
        except Ended:
            left = _half_made(host_part.kept_as)
            self._say(undone=True, left=left)
            raise
        else:
            self._say(steps=[_as_json(step) for step in steps])
        finally:
            self._requests.making(False)

    def _settle(self) -> None:
        """Wait for KEEP, after all hosts have created their parts. Raises VicinalError without."""
        self._requests.making(False)
        self._say(made=True)
        request = self._requests.next()
        if request is None or request.get("do") != Request.KEEP:
            raise VicinalError(
                "the command did not keep the host's part of the cluster",
                "check the errors of the other hosts",
            )

    def _show(self, step: Shown) -> None:
        self._say(step=_as_json(step))

    def _speak(self, text: str) -> None:
        self._say(say=text)


def main() -> None:
    """Serve one command, until the end of the input."""
    try:
        with signals_raise():
            Agent().serve()
    except Ended as ended:
        sys.exit(ended.status)
    except Exception as error:  # ssh shows the output to the user on the other host
        sys.exit(fail(report_crash(error, sys.argv[1:], host=socket.gethostname())))


def _host_part(request: dict[str, Any]) -> str:
    name = str(request["host_part"])
    if not is_host_part(name) or "/" in name:
        raise VicinalError(
            f"{name!r} is not the name of a host's part of a cluster", "write CLUSTER.HOST"
        )
    return name


def _half_made(name: str) -> list[str]:
    """Return the keys of resources that could not be undone."""
    return [key for key, entry in journal_of(name).entries().items() if not entry.whole]


def _as_json(step: Shown) -> list[str]:
    return [step.action.value, step.key, step.why, *step.changes]


if __name__ == "__main__":
    main()
