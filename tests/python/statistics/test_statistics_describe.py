"""Descriptions of samples, checked against hand calculations, SciPy's own test and simulations."""

import json
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from command_support import CHECKOUT
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from work_count import calls_of

from vicinal.labs.statistics.describe import (
    PERCENTILES,
    describe,
    describe_trials,
    mean_estimate,
    median_estimate,
    quantile_estimate,
)
from vicinal.labs.statistics.few_trials import median_of_few

finite = st.floats(-1e12, 1e12, allow_nan=False)


def test_median_interval_of_ten_values_lies_between_known_order_statistics() -> None:
    # P(median outside [x2, x9]) = 2 P(Binomial(10, 1/2) <= 1) = 2 * 11/1024.
    estimate = median_estimate([9, 2, 7, 4, 5, 6, 3, 8, 1, 10])
    assert (estimate.value, estimate.low, estimate.high) == (5.5, 2, 9)
    assert estimate.confidence == pytest.approx(1 - 22 / 1024)


def test_five_values_cannot_give_95_percent_and_say_so() -> None:
    estimate = median_estimate([5, 1, 4, 2, 3])
    assert (estimate.low, estimate.high) == (1, 5)
    assert estimate.confidence == pytest.approx(0.9375)


def test_one_value_has_no_interval() -> None:
    estimate = median_estimate([3.5])
    assert (estimate.value, estimate.low, estimate.high, estimate.confidence) == (3.5, 3.5, 3.5, 0)


@given(st.lists(finite, min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999]))
def test_the_median_of_few_is_the_same_without_numpy(
    values: list[float], confidence: float
) -> None:
    estimate, few = median_estimate(values, confidence), median_of_few(values, confidence)
    assert (few.low, few.high) == (estimate.low, estimate.high)
    assert few.value == pytest.approx(estimate.value)
    assert few.confidence == pytest.approx(estimate.confidence)


def test_the_median_of_few_refuses_what_is_no_measurement() -> None:
    for values in ([], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="no"):
            median_of_few(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "no values"),
        ([1.0, float("nan"), 2.0], "value 1 is nan"),
        ([float("inf")], "value 0 is inf"),
        ([[1.0], [2.0]], "2 dimensions"),
    ],
)
def test_what_is_no_measurement_is_an_error(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        describe(values)


@pytest.mark.parametrize("count", [8, 60, 500, 4000])
@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99, 0.999])
def test_intervals_are_those_of_scipys_quantile_test(count: int, quantile: float) -> None:
    values = np.random.default_rng(count).lognormal(size=count)
    ours = quantile_estimate(values, quantile)
    theirs: Any = stats.quantile_test(values, p=quantile).confidence_interval(0.95)
    assert ours.value == pytest.approx(np.quantile(values, quantile))
    if np.isnan(theirs.low) or np.isnan(theirs.high):  # SciPy has none; ours is weaker
        assert ours.confidence < 0.95
        assert ours.high == values.max()
    else:
        assert (ours.low, ours.high) == (theirs.low, theirs.high)
        assert ours.confidence >= 0.95


def test_the_tail_of_too_few_samples_is_worth_what_it_is_said_to_be() -> None:
    # The largest of 500 values lies above P99.9 only if at least one does: 1 - 0.999^500.
    estimate = describe(np.arange(500)).percentiles["P99.9"]
    assert estimate.high == 499
    assert estimate.confidence <= 1 - 0.999**500


@pytest.mark.parametrize(("count", "quantile"), [(9, 0.5), (400, 0.99), (60, 0.99)])
def test_intervals_hold_the_true_quantile_as_often_as_they_say(count: int, quantile: float) -> None:
    random = np.random.default_rng(7)
    studies = 1000
    true = -np.log(1 - quantile)
    values = random.exponential(size=(studies, count))
    held = sum(quantile_estimate(row, quantile).holds(true) for row in values)
    stated = quantile_estimate(values[0], quantile).confidence
    assert held / studies == pytest.approx(
        stated, abs=3.5 * np.sqrt(stated * (1 - stated) / studies)
    )


def test_a_description_by_hand() -> None:
    found = describe([4, 1, 3, 2])
    assert (found.count, found.mean, found.minimum, found.maximum) == (4, 2.5, 1, 4)
    assert found.standard_deviation == pytest.approx(np.sqrt(5 / 3))
    assert found.median.value == 2.5
    assert list(found.percentiles) == list(PERCENTILES)
    assert json.loads(json.dumps(found.to_dict()))["percentiles"]["P50"]["value"] == 2.5


@given(st.lists(finite, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_a_description_has_order_and_needs_none(values: list[float], random: object) -> None:
    found = describe(values)
    points = [found.percentiles[name] for name in PERCENTILES]
    for point in points:
        assert found.minimum <= point.low <= point.value <= point.high <= found.maximum
    assert [point.value for point in points] == sorted(point.value for point in points)
    random.shuffle(values)  # type: ignore[attr-defined]
    assert describe(values).percentiles == found.percentiles


@given(st.lists(finite, min_size=2, max_size=40), st.floats(0.5, 4), st.floats(-100, 100))
def test_another_unit_changes_nothing_but_the_unit(
    values: list[float], factor: float, offset: float
) -> None:
    plain, other = median_estimate(values), median_estimate([factor * x + offset for x in values])
    scale = max(map(abs, values)) + 1
    assert other.low == pytest.approx(factor * plain.low + offset, abs=1e-9 * scale)
    assert other.high == pytest.approx(factor * plain.high + offset, abs=1e-9 * scale)


def test_samples_that_hang_together_are_recognised() -> None:
    random = np.random.default_rng(3)
    alone = random.normal(size=10_000)
    slow = np.repeat(random.normal(size=100), 100) + 0.1 * alone
    assert abs(describe(alone).autocorrelation) < 0.04
    assert describe(slow).autocorrelation > 0.8
    assert describe(np.tile([1.0, 2.0], 500)).autocorrelation == pytest.approx(-1, abs=0.01)
    assert describe([5.0] * 10).autocorrelation == 0


def test_trials_count_and_not_their_iterations() -> None:
    random = np.random.default_rng(11)
    starts = random.normal(100, 5, 15)  # each start has its own level
    trials = [start + random.normal(0, 0.1, 5000) for start in starts]
    found = describe_trials(trials)
    across, pooled = found.across["P50"], found.pooled.median
    assert (found.trials, found.pooled.count) == (15, 75_000)
    assert across.holds(100)
    # The pooled interval assumes 75 000 independent values.
    assert across.high - across.low > 10 * (pooled.high - pooled.low)
    assert found.across["maximum"].value == pytest.approx(np.median([t.max() for t in trials]))
    with pytest.raises(ValueError, match="no trials"):
        describe_trials([])


def test_means_are_arithmetic_for_costs_and_harmonic_for_rates() -> None:
    assert mean_estimate([1.0, 2.0, 3.0]).value == 2
    # 60 km out at 30 km/h and 60 km back at 60 km/h take three hours for 120 km.
    assert mean_estimate([30.0, 60.0], rates=True).value == pytest.approx(40)
    assert mean_estimate([7.0]).confidence == 0
    with pytest.raises(ValueError, match="harmonic"):
        mean_estimate([1.0, 0.0], rates=True)


def test_mean_intervals_are_students_and_turn_round_for_rates() -> None:
    values = np.array([9.1, 10.4, 9.7, 10.9, 10.2])
    found = mean_estimate(values)
    known = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    rates = mean_estimate(1 / values, rates=True)
    assert (rates.low, rates.high) == pytest.approx((1 / known.high, 1 / known.low))
    assert mean_estimate([1.0, 100.0], rates=True).confidence == 0


LARGE = """
import resource
import numpy as np
values = np.random.default_rng(1).integers(900, 90_000, 10_000_000)
from vicinal.labs.statistics.describe import describe
found = describe(values)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
assert found.count == 10_000_000
"""


def test_ten_million_samples_fit_into_the_bounds() -> None:
    """The bound is one gibibyte of memory, in a process that does nothing else."""
    ran = subprocess.run(
        [sys.executable, "-c", LARGE], capture_output=True, text=True, check=True, timeout=240
    )
    assert float(ran.stdout) < 1024


def test_values_are_described_all_at_once_and_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of calls does not depend on the number of values, so ten million take a second."""
    random, sort, sorted_values = np.random.default_rng(1), np.sort, []

    def counted_sort(values: NDArray[Any]) -> NDArray[Any]:
        sorted_values.append(len(values))
        return sort(values)

    monkeypatch.setattr(np, "sort", counted_sort)
    calls = {}
    for count in (1000, 100_000, 200_000):
        values = random.integers(900, 90_000, count)
        describe(values)  # the ranks that enclose a quantile are computed once for each count
        calls[count] = calls_of(partial(describe, values))
    assert len({*calls.values()}) == 1, calls
    assert sorted_values == [count for count in calls for _ in range(2)]


def test_statistics_know_nothing_of_where_values_come_from() -> None:
    sources = sorted((CHECKOUT / "src/vicinal/labs/statistics").glob("*.py"))
    imports = [
        line
        for source in sources
        for line in source.read_text().splitlines()
        if line.startswith(("import vicinal", "from vicinal"))
    ]
    assert len(sources) > 10
    assert imports
    assert all(line.startswith("from vicinal.labs.statistics.") for line in imports)
