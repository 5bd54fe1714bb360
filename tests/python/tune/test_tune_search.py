"""The tuner's search on simulated hosts whose best setting is known."""

from dataclasses import replace
from functools import cache
from math import log
from random import Random

import pytest
from scipy import stats
from tune_hosts import KNOBS, SimulatedHost

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.search.blocks import Budget
from vicinal.labs.tune.search.choosing import Outcome
from vicinal.labs.tune.search.confirming import Verdict
from vicinal.labs.tune.search.explain import explain
from vicinal.labs.tune.search.finding import Found, Plan, find, trials_needed
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Setting, Space
from vicinal.labs.tune.search.trial import Measured, Stage, Trial

SEARCHES = [25, pytest.param(100, marks=pytest.mark.long)]
"""Searches of each kind. docs/how-to/tuning.md has figures of 200, with other seeds."""

PLAN = Plan((Objective.P50,), Budget(trials=800))


def search(host: SimulatedHost, seed: int, trials: int = 800) -> Found:
    return find(host.space, replace(PLAN, budget=Budget(trials), seed=seed), host.measure)


@cache
def searched(seed: int) -> tuple[SimulatedHost, Found]:
    host = SimulatedHost(seed)
    return host, search(host, seed)


def at_least(count: int, of: int, share: float) -> bool:
    """Whether a count this low is compatible with a share."""
    return bool(stats.binomtest(count, of, share, alternative="less").pvalue > 0.01)


@pytest.mark.parametrize("count", SEARCHES)
def test_it_finds_a_setting_within_2_percent_of_the_optimum_in_95_of_100(count: int) -> None:
    within = 0
    for host, found in map(searched, range(count)):
        assert host.excess(host.space.present) > 0.1
        assert len(found.trials) <= 800
        phase = found.choice.phases[0]
        within += phase.outcome is Outcome.BETTER and host.excess(phase.choice) <= 0.02
    assert at_least(within, count, 0.95), within


@pytest.mark.parametrize("count", SEARCHES)
def test_that_is_not_to_be_had_by_taking_the_best_of_many_trials(count: int) -> None:
    """If the best of many trials were good enough, the hosts would be too easy."""
    within = 0
    for host, found in map(searched, range(count)):
        screening = [trial for trial in found.trials if trial.stage is Stage.SCREENING]
        assert len(screening) > 150
        best = min(screening, key=lambda trial: trial.values[Objective.P50])
        within += host.excess(host.space.point(best.setting)) <= 0.02
    assert within < count / 2


@pytest.mark.parametrize("kind", ["flat", "at_optimum"])
@pytest.mark.parametrize("count", SEARCHES)
def test_it_says_that_there_is_no_better_setting_in_95_of_100(kind: str, count: int) -> None:
    none = promised = 0
    for seed in range(count):
        host = SimulatedHost(seed, **{kind: True})
        found = search(host, seed, trials=300)
        none += found.choice.phases[0].outcome is Outcome.NO_BETTER
        promised += halving_promised(found)
    assert at_least(none, count, 0.95), none
    if kind == "flat":  # without the confirmation, the search would often be wrong
        assert promised > count / 2


def halving_promised(found: Found) -> bool:
    """Whether the finalist beat the present setting before the confirmation."""
    finalist = found.space.setting(found.finalists["all"][0])
    differences = []
    for trial in found.trials:
        if trial.stage in (Stage.HALVING, Stage.REFINING) and trial.setting == finalist:
            block = [other for other in found.trials if other.block == trial.block]
            present = next(
                o for o in block if o.setting == found.space.setting(found.space.present)
            )
            differences.append(log(trial.values["p50"] / present.values["p50"]))
    return sum(differences) < 0


def test_the_confirmation_is_of_fresh_trials_in_random_order() -> None:
    found = searched(0)[1]
    fresh = [trial for trial in found.trials if trial.stage is Stage.CONFIRMING]
    others = [trial for trial in found.trials if trial.stage is not Stage.CONFIRMING]
    assert min(t.number for t in fresh) > max(t.number for t in others)
    row = found.confirmation.compared[0]
    assert row.blocks == 30
    present = found.space.setting(found.space.present)
    first = [trial.setting == present for trial in fresh if trial.position == 0]
    assert 5 < sum(first) < 25
    values = [trial.values["p50"] for trial in fresh if trial.setting == present]
    assert sorted(values)[14] <= row.present.value <= sorted(values)[15]


def test_an_interrupted_search_goes_on_as_if_nothing_had_happened() -> None:
    plan = replace(PLAN, budget=Budget(400), seed=5)
    kept: list[Trial] = []
    host = SimulatedHost(5)
    whole = find(host.space, plan, host.measure, record=kept.append)
    assert kept == list(whole.trials)

    def unmeasured(setting: Setting, phase: str) -> Measured:
        raise AssertionError((setting, phase))

    again = find(host.space, plan, unmeasured, recorded=kept)
    assert again.to_dict() == whole.to_dict()

    measured = iter(whole.trials[150:])

    def rest(setting: Setting, phase: str) -> Measured:
        trial = next(measured)
        assert (trial.setting, trial.phase) == (setting, phase)
        return Measured(trial.values, trial.evidence)

    new: list[Trial] = []
    gone_on = find(host.space, plan, rest, recorded=kept[:150], record=new.append)
    assert gone_on.choice == whole.choice
    assert len(new) == len(kept) - 150


def test_trials_of_another_search_are_refused() -> None:
    kept = searched(3)[1].trials
    with pytest.raises(VicinalError, match=r"recorded trial 1?[0-9] is not the one"):
        find(SimulatedHost(3).space, replace(PLAN, seed=4), SimulatedHost(3).measure, recorded=kept)


def test_several_objectives_give_a_pareto_set_with_intervals() -> None:
    """On some of these hosts, interrupt moderation saves CPU time and costs latency."""
    host = SimulatedHost(8)
    plan = Plan((Objective.P50, Objective.CPU), Budget(trials=1200), seed=8)
    found = find(host.space, plan, host.measure)
    phase = found.choice.phases[0]
    assert len(phase.pareto) >= 2
    rows = found.confirmation.compared
    assert {row.objective for row in rows} == {Objective.P50, Objective.CPU}
    assert found.confirmation.family == 2 * len(found.finalists["all"])
    for row in rows:
        assert row.ratio.low < row.ratio.value < row.ratio.high
        assert row.adjusted >= row.p_value
    for point in phase.pareto:
        assert not any(
            {row.verdict for row in rows if row.point == other} == {Verdict.BETTER}
            and point == host.space.present
            for other in phase.pareto
        )
    quickest = min(phase.pareto, key=host.excess)
    assert host.excess(quickest) < host.excess(host.space.present) - 0.05


def test_phases_that_want_other_settings_get_them() -> None:
    """One phase is judged by latency, the other by bandwidth; a trial measures one phase."""
    latency, bulk = SimulatedHost(20), SimulatedHost(21)
    both = {"latency": latency, "bulk": bulk}
    space = latency.space

    def measure(setting: Setting, phase: str) -> Measured:
        values = both[phase].measure(setting, phase).values
        return Measured({wanted[phase]: values[wanted[phase]]})

    wanted = {"latency": Objective.P50, "bulk": Objective.BANDWIDTH}
    own = {"bulk": (Objective.BANDWIDTH,)}
    plan = Plan((Objective.P50,), Budget(2000), tuple(both), seed=2, own_objectives=own)
    found = find(space, plan, measure)
    assert {(each.phase, each.objective) for each in found.confirmation.compared} == {
        *wanted.items()
    }
    text = explain(found)
    assert "Objectives: P50 of latency, bandwidth of bulk.\n" in text
    assert found.choice.common is None
    assert found.choice.losses
    for phase in found.choice.phases:
        assert phase.outcome is Outcome.BETTER
        host = both[phase.phase]
        other = bulk if host is latency else latency
        assert host.excess(phase.choice) < 0.05 < other.excess(phase.choice)


def test_phases_that_are_alike_get_one_setting() -> None:
    host = SimulatedHost(20)
    plan = Plan((Objective.P50,), Budget(trials=2000), phases=("one", "two"), seed=3)
    found = find(host.space, plan, host.measure)
    assert found.choice.common is not None
    assert not found.choice.losses
    assert host.excess(found.choice.common) <= 0.05


def test_a_budget_in_seconds_is_kept() -> None:
    host = SimulatedHost(6)
    clock = [0.0]

    def measure(setting: Setting, phase: str) -> Measured:
        clock[0] += 2
        return host.measure(setting, phase)

    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("vicinal.labs.tune.search.blocks.monotonic", lambda: clock[0])
    with monkeypatch.context():
        found = find(host.space, replace(PLAN, budget=Budget(seconds=1200)), measure)
    monkeypatch.undo()
    assert 900 < clock[0] <= 1200
    assert found.choice.phases[0].outcome is Outcome.BETTER
    assert sum(trial.seconds for trial in found.trials) == clock[0]


def test_a_budget_that_cannot_show_anything_is_refused() -> None:
    host = SimulatedHost(0)
    needed = trials_needed(host.space, PLAN)
    with pytest.raises(VicinalError, match=f"too small for this search, which needs {needed} tri"):
        find(host.space, replace(PLAN, budget=Budget(needed - 1)), host.measure)
    assert len(find(host.space, replace(PLAN, budget=Budget(needed)), host.measure).trials)
    for budget in ({}, {"trials": 0}, {"seconds": -1.0}):
        with pytest.raises(VicinalError, match="without a budget"):
            Budget(**budget)


def test_settings_that_fail_are_left_out_and_named() -> None:
    host = SimulatedHost(9)

    def measure(setting: Setting, phase: str) -> Measured:
        if setting["eth0/rx-usecs"] == KNOBS["eth0/rx-usecs"][host.optimum[0]]:
            raise VicinalError("the link went down", "mend it")
        return host.measure(setting, phase)

    assert host.space.present[0] != host.optimum[0]
    found = find(host.space, replace(PLAN, seed=9), measure)
    assert found.choice.phases[0].choice[0] != host.optimum[0]
    failed = [trial for trial in found.trials if trial.failed]
    assert failed
    assert all(trial.error == "the link went down: mend it" for trial in failed)
    assert set(found.failed.values()) <= {"the link went down: mend it"}


def test_a_present_setting_that_fails_ends_the_search() -> None:
    def measure(_setting: Setting, _phase: str) -> Measured:
        return Measured({"p50": float("nan")})

    space = Space.of({"a": (1, 2)}, {"a": 1})
    plan = Plan((Objective.P50,), Budget(400), phases=("a", "b", "c"))
    with pytest.raises(VicinalError, match=r"the present setting failed in 3 blocks.*p50 is nan"):
        find(space, plan, measure)


def test_a_knob_that_is_best_as_it_is_is_not_one_that_does_nothing() -> None:
    space = Space.of({"copies": (1, 2), "idle": (0, 1)}, {"copies": 1, "idle": 0})
    random = Random(3)

    def measure(setting: Setting, phase: str) -> Measured:
        del phase
        return Measured({"p50": int(setting["copies"]) * random.gauss(1, 0.01)})

    found = find(space, Plan((Objective.P50,), Budget(80), seed=2), measure)
    assert found.choice.phases[0].choice == space.present
    assert "    copies 1: P50 is best at the present value (p < 0.0001)\n" in explain(found)


def test_a_small_space_is_measured_whole() -> None:
    space = Space.of(
        {"rx-usecs": (0, 10, 20, 40), "adaptive": ("off", "on")},
        {
            "rx-usecs": 0,
            "adaptive": "on",
        },
    )
    host = SimulatedHost(4, flat=True)

    def measure(setting: Setting, phase: str) -> Measured:
        noise = host.measure(host.space.setting(host.space.present), phase)
        factor = 1 + 0.01 * abs(int(setting["rx-usecs"]) - 20) + 0.1 * (setting["adaptive"] == "on")
        return Measured({"bandwidth": noise.values["bandwidth"] / factor})

    plan = Plan((Objective.BANDWIDTH,), Budget(300), seed=2)
    found = find(space, plan, measure)
    effects = {each.knob: each for each in found.pools["all"].effects}
    assert (effects["rx-usecs"].level, effects["adaptive"].level) == ("20", "off")
    assert all(each.p_value < 0.001 for each in effects.values())
    assert effects["adaptive"].ratio == pytest.approx(1.1, abs=0.02)
    text = explain(found)
    assert (
        "Effects in all trials before the confirmation, over all values of the other knobs:" in text
    )
    assert "adaptive off: bandwidth +" in text
    assert space.setting(found.choice.phases[0].choice) == {"rx-usecs": 20, "adaptive": "off"}
    row = found.confirmation.compared[0]
    assert row.verdict is Verdict.BETTER
    assert row.ratio.holds(1.3)  # a rate: higher is better
    assert row.gain == pytest.approx(row.ratio.value - 1)
