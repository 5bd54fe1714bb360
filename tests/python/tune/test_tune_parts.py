"""Parts of the tuner's search: settings, screening design, Pareto sets, mechanisms, files."""

import json
from math import exp
from pathlib import Path

import numpy as np
import pytest

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.tune.search.blocks import Blocks, Budget
from vicinal.labs.tune.search.choosing import Outcome, PhaseChoice, choose, pareto
from vicinal.labs.tune.search.confirming import Compared, Confirmation, Verdict
from vicinal.labs.tune.search.design import MOST_LEVELS, draw_block, fit_effects, levels_of
from vicinal.labs.tune.search.halving import Scores
from vicinal.labs.tune.search.mechanism import interrupts_of, mechanism
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Space
from vicinal.labs.tune.search.trial import Measured, Stage, Trial, fault_of, read_trials, write_line


def test_a_present_value_that_is_none_of_a_knobs_is_put_in_its_place() -> None:
    space = Space.of(
        {"usecs": (0, 8, 64), "adaptive": ("off", "on"), "policy": ("a", "b")},
        {"usecs": 30, "adaptive": "on", "policy": "c", "other": 1},
    )
    assert space.knobs["usecs"] == (0, 8, 30, 64)
    assert space.knobs["policy"] == ("a", "b", "c")
    assert space.setting(space.present) == {"usecs": 30, "adaptive": "on", "policy": "c"}
    assert space.point(space.setting((3, 0, 1))) == (3, 0, 1)
    assert space.changes((2, 0, 2)) == {"adaptive": ("on", "off")}
    assert space.size == 4 * 2 * 3


def test_numbers_have_neighbours_and_words_have_all_others() -> None:
    space = Space.of({"usecs": (0, 8, 64), "policy": ("a", "b", "c")}, {"usecs": 0, "policy": "a"})
    assert set(space.neighbours((0, 0), (0, 1))) == {(1, 0), (0, 1), (0, 2)}
    assert set(space.neighbours((1, 2), (0,))) == {(0, 2), (2, 2)}


@pytest.mark.parametrize(
    ("knobs", "present", "message"),
    [
        ({"a": (1, 2)}, {}, "present value of a is unknown: remove the knob"),
        (
            {"a": (1, 1)},
            {"a": 1},
            r"values of a \(1, 1\) are missing or repeated: .* no value twice",
        ),
        ({"a": ()}, {"a": 1}, r"values of a \(none\) are missing or repeated"),
        ({"a": (1,)}, {"a": 1}, "no knob has a value other than its present one"),
    ],
)
def test_what_is_no_space_is_refused(
    knobs: dict[str, tuple[int, ...]], present: dict[str, int], message: str
) -> None:
    with pytest.raises(VicinalError, match=message):
        Space.of(knobs, present)


def test_a_rates_cost_falls_as_it_grows() -> None:
    gained = Objective.BANDWIDTH.cost(1100) - Objective.BANDWIDTH.cost(1000)
    assert gained < 0
    assert Objective.BANDWIDTH.ratio(gained) == pytest.approx(1.1)
    assert Objective.P99.ratio(Objective.P99.cost(11) - Objective.P99.cost(10)) == pytest.approx(
        1.1
    )


def test_levels_are_the_ends_the_present_one_and_some_between() -> None:
    assert levels_of(MOST_LEVELS, 3) == (0, 1, 2, 3, 4)
    assert levels_of(10, 4) == (0, 3, 4, 6, 9)
    assert levels_of(10, 9) == (0, 3, 6, 9)


def test_each_level_is_as_often_as_any_other_in_a_block() -> None:
    random = np.random.default_rng(3)
    levels = [(0, 2, 4, 6, 8), (0, 1), (0, 1, 2)]
    seen = [dict.fromkeys(each, 0) for each in levels]
    for _ in range(200):
        block = draw_block(levels, random)
        assert len(block) == 5
        for at, each in enumerate(levels):
            counts = [sum(point[at] == level for point in block) for level in each]
            assert max(counts) - min(counts) <= 1
            for point in block:
                seen[at][point[at]] += 1
    assert all(max(n.values()) < 1.15 * min(n.values()) for n in seen)


def simulated(blocks: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs of three knobs: the first is best at its middle value, the last has no effect."""
    random = np.random.default_rng(seed)
    levels = [(0, 1, 2, 3, 4), (0, 1), (0, 1, 2)]
    drawn = [[(0, 0, 0), *draw_block(levels, random)] for _ in range(blocks)]
    points = np.array([point for block in drawn for point in block])
    numbers = np.repeat(np.arange(blocks), len(drawn[0]))
    usual = np.array([0, -0.1, -0.2, -0.1, 0])[points[:, 0]] + 0.05 * points[:, 1]
    noise = random.normal(0, 0.03, len(points))
    noise += (
        np.where(random.random(len(points)) < 0.1, 0.5, 0) + random.normal(0, 1, blocks)[numbers]
    )
    return points, numbers, usual + noise


def test_an_optimum_between_the_ends_is_seen_through_interrupted_trials() -> None:
    points, numbers, costs = simulated(30, 5)
    levels = [(0, 1, 2, 3, 4), (0, 1), (0, 1, 2)]
    found = fit_effects(points, numbers, costs, levels, (0, 0, 0))
    assert found.knobs[0] == pytest.approx([0, -0.1, -0.2, -0.1, 0], abs=0.03)
    assert found.knobs[1] == pytest.approx([0, 0.05], abs=0.03)
    assert found.knobs[2] == pytest.approx([0, 0, 0], abs=0.03)
    assert found.p_values[0] < 1e-6
    assert found.p_values[1] < 0.01
    # A screening of only the extreme values, like Plackett and Burman's designs, finds no effect.
    ends = (points[:, 0] == 0) | (points[:, 0] == 4)
    two = fit_effects(
        points[ends], numbers[ends], costs[ends], [(0, 4), (0, 1), (0, 1, 2)], (0, 0, 0)
    )
    assert two.p_values[0] > 0.01


def test_knobs_that_do_nothing_are_called_important_as_rarely_as_their_level_says() -> None:
    levels = [(0, 1, 2, 3, 4), (0, 1), (0, 1, 2)]
    p_values = [
        fit_effects(*simulated(12, seed), levels, (0, 0, 0)).p_values[2] for seed in range(150)
    ]
    share = float(np.mean(np.array(p_values) <= 0.2))
    assert 0.1 < share < 0.3  # Huber's pseudo-values make the test slightly too liberal


def test_too_few_runs_are_refused() -> None:
    points, numbers, costs = simulated(1, 1)
    with pytest.raises(ValueError, match="6 runs are too few for 7 effects"):
        fit_effects(points, numbers, costs, [(0, 1, 2, 3, 4), (0, 1), (0, 1, 2)], (0, 0, 0))


def test_the_pareto_set_has_what_nothing_is_better_than_in_all() -> None:
    costs: dict[tuple[int, ...], list[float]] = {
        (0,): [0.0, 0.0],
        (1,): [-0.2, 0.1],
        (2,): [-0.1, 0.1],
        (3,): [0.1, -0.3],
    }
    assert pareto(costs) == ((0,), (1,), (3,))
    assert pareto({(0,): [0.0], (1,): [0.0], (2,): [0.1]}) == ((0,), (1,))


def chosen(*verdicts: tuple[Verdict, Verdict]) -> PhaseChoice:
    """The choice between (0,), the present setting, and the other settings by P50 and CPU time."""
    ratios = {Verdict.BETTER: 0.8, Verdict.UNDECIDED: 1.0, Verdict.WORSE: 1.1}
    objectives = (Objective.P50, Objective.CPU)
    one = Estimate(1, 1, 1, 0.95)
    compared = tuple(
        Compared(
            *("all", (number,), objective, 20, one, one),
            *(Estimate(ratios[verdict], 0, 2, 0.95), 0.5, 0.5, verdict),
        )
        for number, pair in enumerate(verdicts, 1)
        for objective, verdict in zip(objectives, pair, strict=True)
    )
    confirmation = Confirmation(0.05, len(compared), 20, {"all": ()}, compared, {})
    (phase,) = choose(confirmation, (0,), {"all": objectives}).phases
    return phase


def test_a_setting_that_makes_another_objective_worse_is_not_chosen() -> None:
    """However much such a setting gains, people choose whether the trade-off is worth it."""
    traded = (Verdict.BETTER, Verdict.WORSE)
    harmless = (Verdict.UNDECIDED, Verdict.BETTER)
    alone = chosen(traded)
    assert (alone.outcome, alone.choice, alone.pareto) == (Outcome.TRADE_OFF, (0,), ((0,), (1,)))
    assert (chosen(traded, harmless).outcome, chosen(traded, harmless).choice) == (
        Outcome.BETTER,
        (2,),
    )


def test_a_score_leans_the_less_towards_what_is_expected_the_more_was_measured() -> None:
    space = Space.of({"usecs": (0, 8)}, {"usecs": 0})
    blocks = Blocks(
        space,
        {"all": (Objective.P50,)},
        lambda setting, _: Measured({"p50": 1.0 if setting["usecs"] == 0 else exp(-1)}),
        Budget(trials=100),
        seed=1,
    )
    scores = Scores(blocks, "all")
    assert scores.of((1,), Objective.P50) == 0
    scores.expected[(1,), Objective.P50] = 1.0
    assert scores.of((1,), Objective.P50) == 1
    found = []
    for _ in range(9):
        scores.run(Stage.HALVING, [(1,)])
        found.append(scores.of((1,), Objective.P50))
    # The expectation has the weight of three blocks.
    assert found[0] == pytest.approx(1 / 2)
    assert found[2] == pytest.approx(0)
    assert found[8] == pytest.approx(-1 / 2)


def evidence(interrupts: float, seconds: float = 1.0, **other: float) -> dict[str, object]:
    counts = {"41 eth0": round(interrupts), "LOC": round(250 * seconds), "26 ttyS0": 2}
    return {"interrupts": counts, "seconds": seconds, **other}


def test_interrupts_that_changed_with_the_time_are_a_mechanism() -> None:
    ours = [evidence(1000 + 7 * at, 0.8) for at in range(12)]
    theirs = [evidence(5000 - 11 * at, 1.0) for at in range(12)]
    found = mechanism(ours, theirs)
    assert found.established
    assert [change.vector for change in found.changes] == ["41 eth0"]
    assert 0.15 < found.changes[0].ratio.value < 0.25
    assert interrupts_of(ours[0]) == 1002


def test_interrupts_that_only_follow_the_time_are_none() -> None:
    # A disk that interrupts at a constant rate interrupts less often in a shorter trial.
    wobble = (3, -5, 7, -9, 11, -13, 15, -17, 19, -21, 23, -25)
    steady = [
        evidence(5000 * s + at, s) for at, s in zip(wobble, np.linspace(0.7, 0.8, 12), strict=True)
    ]
    longer = [evidence(5000 * s, s) for s in np.linspace(1, 1.1, 12)]
    assert not mechanism(steady, longer).established
    # One interrupt for each packet: the same packets need as many interrupts, in less time.
    quick = [evidence(5000 + at, 0.8) for at in (1, -2, 3, -4, 5, -6, 7, -8)]
    slow = [evidence(5000, 1.0) for _ in range(8)]
    found = mechanism(quick, slow)
    assert not found.established
    assert found.reason == "the time changed, and the interrupts did not"
    # A trial of a fixed time does more work, with more interrupts; the evidence states how much
    # work.
    more = [evidence(6000 + at, 1.0, work=6e6) for at in (1, -2, 3, -4, 5, -6, 7, -8)]
    less = [evidence(5000, 1.0, work=5e6) for _ in range(8)]
    assert not mechanism(more, less).established


def test_without_interrupts_nothing_is_established() -> None:
    assert mechanism([{}] * 8, [{}] * 8).reason == "no interrupts were counted"
    few = [evidence(3)] * 8
    assert mechanism(few, few).reason == "hardly any device interrupted"
    assert interrupts_of({}) is None


def trial(number: int = 3) -> Trial:
    return Trial(
        number, "all", Stage.HALVING, 1, 0, {"a": 1, "b": "on"}, {"p50": 2.5}, evidence(5), 0.5
    )


def test_trials_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text(write_line(trial(0)) + write_line(trial(1)))
    assert read_trials(path) == [trial(0), trial(1)]
    whole = path.read_text()
    for cut in range(len(write_line(trial(0))), len(whole)):
        path.write_text(whole[:cut])
        assert read_trials(path) == [trial(0)]
    path.write_text(write_line(trial(0)) + json.dumps({"number": 1}) + "\n")
    with pytest.raises(VicinalError, match=r"trials.jsonl:2 is not a trial"):
        read_trials(path)


def test_values_that_are_no_measurement_are_named() -> None:
    assert fault_of({"p50": 1.0, "other": -1}, (Objective.P50,)) is None
    assert fault_of({"p50": 1.0}, (Objective.P50, Objective.P99)) == "the trial gave no p99"
    for value in (0.0, -1.0, float("inf"), float("nan")):
        found = fault_of({"p50": value}, (Objective.P50,))
        assert found is not None
        assert "no valid measurement" in found
    assert trial().cost(Objective.P50) == pytest.approx(np.log(2.5))
    assert exp(trial().cost(Objective.P50)) == pytest.approx(2.5)
