"""The tuner's file, and the report of a search that ended."""

import json
from pathlib import Path

import pytest
from command_support import CHECKOUT
from tune_hosts import SimulatedHost

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.measuring.phases import study_of
from vicinal.labs.tune.search.blocks import Budget
from vicinal.labs.tune.search.explain import explain
from vicinal.labs.tune.search.finding import Found, Plan, find
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Setting
from vicinal.labs.tune.search.spec import parse_spec
from vicinal.labs.tune.search.trial import Measured

WHOLE = """\
name: igb
title: Moderation of an igb card
objectives: [p50, cpu]
phases:
  - name: latency
    workload: {driver: sockperf, operation: latency, sizes: 64}
  - name: bulk
    workload:
      driver: iperf3
      operation: bandwidth
knobs:
  eth1/rx-usecs: [0, 3, 20, 100]
  eth1/adaptive-rx: [off, on]
  poll: all
budget: {trials: 900, minutes: 30}
seed: 7
confirmation: 40
"""


def test_a_file_is_read() -> None:
    spec = parse_spec(Path("tuning.yaml"), WHOLE)
    assert spec.plan == Plan(
        (Objective.P50, Objective.CPU),
        Budget(900, 1800),
        ("latency", "bulk"),
        seed=7,
        confirmation=40,
    )
    assert spec.knobs == {
        "eth1/rx-usecs": (0, 3, 20, 100),
        "eth1/adaptive-rx": ("off", "on"),
        "poll": None,
    }
    assert spec.workloads["latency"]["sizes"] == 64
    present: Setting = {"eth1/rx-usecs": 5, "eth1/adaptive-rx": "on", "poll": 1}
    available: dict[str, tuple[int | float | str, ...]] = {
        "eth1/rx-usecs": (0, 1),
        "eth1/adaptive-rx": ("off", "on"),
        "poll": (1, 2),
    }
    assert dict(spec.space(available, present).knobs) == {
        "eth1/rx-usecs": (0, 3, 5, 20, 100),
        "eth1/adaptive-rx": ("off", "on"),
        "poll": (1, 2),
    }
    with pytest.raises(
        VicinalError, match="this host has no knob 'poll': use eth1/adaptive-rx, eth1/rx-usecs"
    ):
        spec.space({name: row for name, row in available.items() if name != "poll"}, present)


def test_what_is_left_out_is_the_usual() -> None:
    rest = WHOLE.partition("seed:")[0]
    assert parse_spec(Path("t"), rest).plan == Plan(
        (Objective.P50, Objective.CPU), Budget(900, 1800), ("latency", "bulk")
    )


def test_a_phase_may_have_objectives_of_its_own() -> None:
    own = WHOLE.replace("  - name: bulk", "  - name: bulk\n    objectives: [bandwidth]")
    plan = parse_spec(Path("t"), own).plan
    assert plan.by_phase == {
        "latency": (Objective.P50, Objective.CPU),
        "bulk": (Objective.BANDWIDTH,),
    }
    assert [plan.finalists(phase) for phase in plan.phases] == [3, 1]
    each = own.replace("objectives: [p50, cpu]\n", "").replace(
        "  - name: latency", "  - name: latency\n    objectives: [p99]"
    )
    assert parse_spec(Path("t"), each).plan.by_phase == {
        "latency": (Objective.P99,),
        "bulk": (Objective.BANDWIDTH,),
    }
    twice = own.replace("[bandwidth]", "[bandwidth, bandwidth]")
    with pytest.raises(VicinalError, match="t:8: objectives has 'bandwidth' twice"):
        parse_spec(Path("t"), twice)
    with pytest.raises(VicinalError, match="t:4: the phase 'latency' has no objectives: add"):
        parse_spec(Path("t"), own.replace("objectives: [p50, cpu]\n", ""))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[p50, cpu]", "[p50, p50]", "t.yaml:3: objectives has 'p50' twice: remove one of them"),
        ("[p50, cpu]", "[p51]", r't.yaml:3: objectives\[0\] cannot be "p51": choose p50, p99, '),
        ("name: bulk", "name: latency", "t.yaml:7: phases has 'latency' twice"),
        (
            "{trials: 900, minutes: 30}",
            "{}",
            "t.yaml:15: budget cannot be {}: give keys and values with 1 key",
        ),
        ("trials: 900", "trials: 0", r"budget.trials cannot be 0: give a whole number not below 1"),
        (
            "[0, 3, 20, 100]",
            "[0, 20, 3]",
            "t.yaml:12: the values of 'eth1/rx-usecs' are not in ascending order",
        ),
        ("[0, 3, 20, 100]", "[0, 0]", "t.yaml:12: 'eth1/rx-usecs' has a value twice"),
        ("[0, 3, 20, 100]", "[0, on, x]", "t.yaml:12: 'eth1/rx-usecs' has both numbers and words"),
        (
            "poll: all",
            "poll: most",
            'knobs.poll cannot be "most": give a list of values in order, or the',
        ),
        ("seed: 7", "sed: 7", "t.yaml:16: unknown key sed: did you mean seed"),
        (
            "operation: bandwidth",
            "size: 5",
            r"t.yaml:.: phases\[1\].workload has no operation: add",
        ),
        (
            "confirmation: 40",
            "confirmation: 5",
            "cannot be 5: give a whole number not below 6",
        ),
        ("name: igb", "name: [", "t.yaml:"),
    ],
)
def test_each_mistake_has_its_line_and_remedy(old: str, new: str, message: str) -> None:
    assert WHOLE.count(old) == 1
    with pytest.raises(VicinalError, match=message):
        parse_spec(Path("t.yaml"), WHOLE.replace(old, new))


def test_the_example_of_the_page_is_a_tuning_file() -> None:
    page = (CHECKOUT / "docs" / "reference" / "tuning-file.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    path = Path("example.yaml")
    study = study_of(path, parse_spec(path, example))
    assert study.name == "igb-latency"
    assert [each.name for each in study.workloads] == ["small", "larger", "bulk"]


def with_interrupts(host: SimulatedHost, *, by: str) -> Found:
    """A search on a host whose interrupt rate follows its first knob, or is constant."""

    def measure(setting: Setting, phase: str) -> Measured:
        measured = host.measure(setting, phase)
        moderated = 200 * (1 + host.space.point(setting)[0]) if by == "knob" else 1000
        # The count varies a little, and independently of the time.
        count = moderated + round(1e6 * measured.values["cpu"]) % 11
        evidence = {"interrupts": {"41 eth0": count}, "seconds": 1.0}
        return Measured(measured.values, evidence)

    plan = Plan((Objective.P50,), Budget(trials=800), seed=2)
    return find(host.space, plan, measure)


def first_knob_matters(seed: int) -> bool:
    host = SimulatedHost(seed)
    return host.curve(0).max() >= 0.15 and host.optimum[0] != host.space.present[0]


MODERATED = next(seed for seed in range(100) if first_knob_matters(seed))


def test_a_better_setting_is_explained_with_its_trials_and_intervals() -> None:
    found = with_interrupts(SimulatedHost(MODERATED), by="knob")
    text = explain(found)
    row = found.confirmation.compared[0]
    for name, (now, after) in found.space.changes(row.point).items():
        assert f"{name} {after} (now {now})" in text
    assert "Phase all: a better setting." in text
    assert f"p50 {row.ours.value:.4g}".upper() in text.upper()
    assert f"{100 * (row.ratio.value - 1):+.1f} %" in text
    assert f"{100 * (row.ratio.low - 1):+.1f} to {100 * (row.ratio.high - 1):+.1f}" in text
    assert "30 fresh blocks" in text
    kept = text.partition("Screening kept")[2].partition("Set ")[0]
    idle = text.partition("These knobs showed no effect of their own: ")[2]
    idle_names = {name for name in idle.partition(".\n")[0].split(", ") if name}
    changed = set(found.space.changes(row.point))
    assert {name for name in changed if f"    {name} " not in kept} == idle_names
    fresh = [trial.number for trial in found.trials if trial.stage == "confirming"]
    assert f"(trials {fresh[0]} to {fresh[-1]})" in text
    assert "Mechanism: interrupts changed as well:\n    41 eth0:" in text
    screened = text.partition("Screening kept")[2].partition("Set ")[0].splitlines()
    first = [line for line in screened if line.strip().startswith("eth0/rx-usecs")]
    assert first
    assert "not established" not in first[0]
    others = [line for line in screened[1:] if "(p " in line and "rx-usecs" not in line]
    assert others
    assert all(line.endswith("mechanism not established") for line in others)


def test_a_knob_that_changed_the_time_alone_is_labelled() -> None:
    found = with_interrupts(SimulatedHost(MODERATED), by="nothing")
    assert not found.mechanisms["all"].established
    assert "Mechanism not established: the time changed, and the interrupts did not." in explain(
        found
    )


def test_a_search_without_a_better_setting_says_so() -> None:
    host = SimulatedHost(1, at_optimum=True)
    plan = Plan((Objective.P50,), Budget(trials=400), seed=1)
    found = find(host.space, plan, host.measure)
    text = explain(found)
    assert "Phase all: no better setting." in text
    assert "none of the finalists was shown to be better" in text
    assert "Mechanism" not in text


def test_phases_and_objectives_and_failures_are_all_in_the_text() -> None:
    both = {"latency": SimulatedHost(20), "bulk": SimulatedHost(21)}

    def measure(setting: Setting, phase: str) -> Measured:
        if setting["chunk"] == 8 and phase == "bulk":
            raise VicinalError("no memory", "use less")
        return both[phase].measure(setting, phase)

    plan = Plan(
        (Objective.P50, Objective.CPU), Budget(trials=4000), phases=("latency", "bulk"), seed=2
    )
    space = both["latency"].space
    assert space.setting(space.present)["chunk"] != 8
    found = find(space, plan, measure)
    text = explain(found)
    assert "Phase latency: " in text
    assert "Phase bulk: " in text
    assert "in the Pareto set" in text
    assert "CPU time" in text
    assert "chunk 8" in text
    assert ": no memory: use less\n" in text
    again = json.loads(json.dumps(found.to_dict()))
    assert {phase["phase"] for phase in again["phases"]} == {"latency", "bulk"}
    assert again["trials"] == len(found.trials) <= 4000
