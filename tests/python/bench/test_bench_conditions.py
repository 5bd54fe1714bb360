"""The conditions of a measurement: CPU placement, priority, and what the result keeps of them."""

import os
from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.labs.bench.compare import LineTimes, State, find_boundary
from vicinal.labs.bench.running import Partial, realtime
from vicinal.labs.provenance import changes
from vicinal.labs.statistics.ratio import best_ratio_estimate


def test_two_clusters_of_line_times_have_a_boundary_between_them() -> None:
    times = [58, 60, 61, 63, 65, 138, 140, 141, 150]
    boundary = find_boundary(times)
    assert boundary is not None
    assert 65 < boundary < 138
    assert LineTimes(60, 65).state(boundary) is State.TOGETHER
    assert LineTimes(140, 150).state(boundary) is State.APART
    assert LineTimes(60, 140).state(boundary) is State.CHANGED
    assert LineTimes(140, 60).state(boundary) is State.CHANGED


@pytest.mark.parametrize(
    "times",
    [
        [60.0, 140.0],  # too few values to tell
        [58, 60, 61, 63, 65, 66, 68, 70, 72, 75],  # one state
        [58, 60, 61, 63, 65, 66, 68, 70, 500, 900],  # one state, and two interruptions
    ],
)
def test_one_state_has_no_boundary(times: list[float]) -> None:
    assert find_boundary(times) is None


def test_a_bootstrap_may_find_another_candidate_to_be_the_best() -> None:
    ours = [10.0] * 5
    steady, wild = [5.0] * 5, [4.0, 4.0, 6.0, 6.0, 6.0]
    estimate = best_ratio_estimate(ours, [steady, wild], lower_is_better=True)
    assert estimate.value == 2
    assert estimate.high == 2.5
    assert estimate.low == 2


def test_trials_that_are_no_pairs_may_differ_in_number() -> None:
    sides = [1.0, 1.0, 1.0], [[2.0, 2.0]]
    assert best_ratio_estimate(*sides, lower_is_better=True, paired=False).value == 0.5
    with pytest.raises(ValueError, match="do not make pairs"):
        best_ratio_estimate(*sides, lower_is_better=True)


def test_priority_is_taken_back() -> None:
    before = os.sched_getscheduler(0)
    with realtime(False):
        assert os.sched_getscheduler(0) == before
    try:
        with realtime(True):
            assert os.sched_getscheduler(0) == os.SCHED_RR
    except VicinalError as error:
        # The error is the only other outcome: this user may not use real-time priority.
        assert "may not use real-time priority" in str(error)  # noqa: PT017
    assert os.sched_getscheduler(0) == before


def test_what_changed_since_a_result_was_begun_is_said_in_phrases() -> None:
    facts = [("trials", 9, 9), ("commit", "abc", "abd"), ("realtime", None, True)]
    assert changes(facts, "unset") == ["commit was abc, is abd", "realtime was unset, is True"]


def kept(directory: Path, **conditions: object) -> Partial:
    partial = Partial(directory, {"commit": "abc", "trials": 9} | conditions)
    partial.load()
    return partial


def test_rows_are_kept_for_the_same_conditions_alone(tmp_path: Path) -> None:
    directory = tmp_path / "partial"
    kept(directory).keep("some", [{"name": "row", "trials": 9}])
    assert kept(directory).rows == {"row": {"name": "row", "trials": 9}}
    other = kept(directory, commit="abd", realtime=True)
    assert other.rows == {}
    assert other.differences == [
        "some: commit was abc, is abd",
        "some: realtime was unknown, is True",
    ]


def test_a_group_in_which_something_went_wrong_is_measured_anew(tmp_path: Path) -> None:
    rows = [{"name": "good", "failed": False}, {"name": "bad", "failed": True}]
    kept(tmp_path).keep("some", rows)
    assert kept(tmp_path).rows == {}
    assert kept(tmp_path).differences == ["some: bad failed"]


def test_a_file_that_was_damaged_is_not_used(tmp_path: Path) -> None:
    kept(tmp_path).keep("some", [{"name": "row"}])
    (tmp_path / "some.json").write_text('{"conditions"')
    assert kept(tmp_path).differences == ["some.json cannot be read"]
    kept(tmp_path).clear()
    assert list(tmp_path.iterdir()) == []
