"""A search of a real card's interrupt moderation, in a guest: QEMU's igb, its driver, its packets.

Knob, traffic and counters are in the guest (tune_search_inside.py); what chooses the trials is
outside, since the guest has no scipy. The guest's processors are emulated, so no figure says
anything of other machines; that interrupts follow the knob, and time follows them, does.
"""

from pathlib import Path
from statistics import median
from typing import Any

import pyroute2
import pytest
from functions_guest import Work, asked_inside

from vicinal.errors import VicinalError
from vicinal.tune.search.blocks import Budget
from vicinal.tune.search.choosing import Outcome
from vicinal.tune.search.explain import explain
from vicinal.tune.search.finding import Found, Plan, find
from vicinal.tune.search.objective import Objective
from vicinal.tune.search.space import Setting, Space
from vicinal.tune.search.trial import Measured

WORK = Work(
    "tune-search",
    ("igb", "virtio_net", "virtio_pci"),
    ("tune_search_inside.py",),
    (Path(pyroute2.__file__).parent,),
    ("-netdev", "hubport,id=far,hubid=0", "-device", "virtio-net-pci,netdev=far,romfile="),
    processors=2,
)
SLOW, MIDDLING, QUICK = 5000, 1000, 20
"""Microseconds between interrupts, at least."""
WANTED = {"small": Objective.P50, "bulk": Objective.BANDWIDTH}
"""Bursts of small packets are judged by their time, and a stream of TCP by its bandwidth."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Any, str]:
    with asked_inside(tmp_path_factory.mktemp("guest"), print, WORK) as ask:
        knob = f"{ask({'card': True})['card']}/rx-usecs"

        def measure(setting: Setting, phase: str) -> Measured:
            found = ask({"setting": dict(setting), "phase": phase})
            if "error" in found:
                raise VicinalError(found["error"], "see the guest")
            return Measured(found["values"], found["evidence"])

        before = ask({"read": knob})["value"]
        # The present setting is a bad one, on purpose.
        space = Space.of({knob: (QUICK, MIDDLING)}, {knob: SLOW})
        own = {phase: (objective,) for phase, objective in WANTED.items()}
        plan = Plan((), Budget(100), tuple(own), seed=1, confirmation=10, own_objectives=own)
        found = find(space, plan, measure)
        after = ask({"end": True})["value"]
    print(explain(found))
    for value in (QUICK, MIDDLING, SLOW):
        print(value, [round(each) for each in rates(found, knob, value)])
    assert after == before
    return found, before, knob


def rates(found: Found, knob: str, value: int) -> list[float]:
    """Of the card's queues, per second, in each trial that had the value."""
    device = knob.partition("/")[0]
    return [
        sum(count for name, count in trial.evidence["interrupts"].items() if device in name)
        / trial.evidence["seconds"]
        for trial in found.trials
        if trial.phase == "small" and trial.setting[knob] == value and not trial.failed
    ]


def test_interrupts_follow_the_knob(searched: tuple[Found, Any, str]) -> None:
    found, _, knob = searched
    slow, quick = rates(found, knob, SLOW), rates(found, knob, QUICK)
    assert len(slow) >= 6
    assert len(quick) >= 6
    assert median(quick) > 2 * median(slow)


def test_each_phase_gets_a_better_setting_by_its_own_objective(
    searched: tuple[Found, Any, str],
) -> None:
    """Which of the two others that is may differ between phases, and on a busy machine by luck."""
    found, _, knob = searched
    for phase in found.choice.phases:
        assert phase.outcome is Outcome.BETTER
        assert found.space.setting(phase.choice)[knob] in (QUICK, MIDDLING)
        assert f"Phase {phase.phase}: a better setting." in explain(found)
        chosen = [
            each
            for each in found.confirmation.compared
            if (each.phase, each.point) == (phase.phase, phase.choice)
        ]
        assert [each.objective for each in chosen] == [WANTED[phase.phase]]
        assert (chosen[0].ratio.value < 1) == WANTED[phase.phase].lower_is_better


def test_the_mechanism_of_small_packets_is_their_interrupts(
    searched: tuple[Found, Any, str],
) -> None:
    assert searched[0].mechanisms["small"].established
