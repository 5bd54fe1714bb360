"""The part of the host that a VM moves to: arrive, which the other host calls by ssh.

It keeps what the VM is to get until the VM has it, or is not to come any more. If the other host's
driver is killed, or the network between is cut, it waits for what becomes of the VM: OpenNebula's
script goes on without its driver, and may not even have begun to move it.
"""

import base64
import time
from contextlib import ExitStack
from typing import Any

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.requests import Answers, Requests
from vicinal.integrations.opennebula.belongings import Belongings
from vicinal.integrations.opennebula.placement import Placement
from vicinal.integrations.opennebula.site import Site
from vicinal.integrations.opennebula.steps import MARK, Step
from vicinal.integrations.opennebula.stock import Call

_COMING_SECONDS = 3600.0
"""For a VM that is on its way when the other host is not heard of any more."""
_LOST_SECONDS = 600.0
"""For one of which nothing is here yet then."""
_POLL_SECONDS = 0.5


class Arrival:
    """Of one VM."""

    def __init__(self, call: Call, site: Site) -> None:
        self._call = call
        self._site = site
        self._machine = site.machine(call.vm)
        self._kept = ExitStack()
        self._hold = -1
        self._what = Belongings()
        self._has_all = True
        self._over = False
        self._expected = ""
        """Says that the VM is expected by us, and not by who was asked for it again."""

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        """Do a step, and say what came of it. Raises VicinalError."""
        match step:
            case Step.HELLO:
                if values["version"] != vicinal.__version__:
                    raise VicinalError(
                        f"it has Vicinal {vicinal.__version__}, and the other host has "
                        f"{values['version']}",
                        "install the same version on all hosts",
                    )
            case Step.PLACE:
                self._require(Placement.from_json(values["placed"]))
            case Step.EXPECT:
                placed = Placement.from_json(values["placed"])
                self._expect(Belongings.from_json(values["what"]), placed)
            case Step.GIVE:
                self._machine.give(self._what)
                self._has_all = True
            case Step.SEND_BACK:
                self._send_back(str(values["to"]), base64.b64decode(values["given"]))
            case Step.OVER:
                self._over = True
        return {}

    def end(self) -> None:
        """The other host has done with it, or is gone: the VM gets what it lacks if it came."""
        with self._kept:
            began = time.monotonic()
            while not self._has_all and self._waits(time.monotonic() - began):
                if self._machine.runs:
                    self._machine.give(self._what)
                    self._has_all = True
                else:
                    time.sleep(_POLL_SECONDS)
            if not self._machine.is_here and self._is_ours:
                self._site.records.lacks(self._call.vm, something=False)

    @property
    def _is_ours(self) -> bool:
        return self._site.records.expected(self._call.vm) == self._expected

    def _waits(self, seconds: float) -> bool:
        """Whether the VM is waited for, so long after the other host was heard of."""
        if self._machine.is_here:
            return seconds < _COMING_SECONDS and self._is_ours
        return not self._over and seconds < _LOST_SECONDS and self._is_ours

    def _require(self, placed: Placement) -> None:
        placed.require(self._call.action, self._machine.name, self._site.host)

    def _expect(self, what: Belongings, placed: Placement) -> None:
        if self._machine.is_here:
            raise VicinalError(
                f"there is a domain {self._machine.name} on it already", "see whose that is"
            )
        self._require(placed)
        kept = self._site.kept(self._call.vm, what, placed.nodes)
        self._hold = self._kept.enter_context(kept)
        self._expected = self._site.records.expect(self._call.vm)
        self._what, self._has_all = what, False

    def _send_back(self, home: str, given: bytes) -> None:
        self._machine.take(self._what)
        self._has_all = False
        own = self._call.arguments[-1]
        call = self._call.other("migrate", self._machine.name, home, own)
        status = self._site.stock(call, self._hold, given)
        if status != 0:
            raise VicinalError(
                f"{call.stock} ended with status {status}", "see what it said before"
            )


def serve(call: Call, site: Site) -> int:
    """Answer the other host until it has done; the exit status."""
    requests, answers, arrival = Requests(), Answers(MARK), Arrival(call, site)
    try:
        while (request := requests.next()) is not None:
            try:
                step = Step(request.pop("do"))
                answers.say(**arrival.ask(step, **request))
            except VicinalError as error:
                answers.say(error=error.message, remedy=error.remedy)
    finally:
        arrival.end()
    return 0
