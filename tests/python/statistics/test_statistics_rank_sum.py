"""Two sides whose trials are not paired, checked against R, SciPy and hand calculations."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statistics_hosts import SimulatedHost, noisy, quiet

from vicinal.labs.statistics.rank_sum import least_rank_sum_p_value, rank_sum, unpaired_equivalence

# Permeability of the human chorioamnion at term and at 12 to 26 weeks (Hollander and Wolfe 1973,
# page 69). R's wilcox.test gives W = 35 and one-sided p = 0.1272.
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLIER = [1.15, 0.88, 0.90, 0.74, 1.21]


def test_the_permeability_example_is_as_rs() -> None:
    found = rank_sum(AT_TERM, EARLIER)
    assert found.statistic == 35
    assert found.p_value == pytest.approx(2 * 0.1272, abs=1e-4)
    assert found.ratio.holds(1)


def test_p_values_without_ties_are_those_of_all_orders_and_scipys() -> None:
    ours, theirs = [1.1, 3.2, 4.1, 5.3], [2.0, 6.0, 7.5, 8.0, 9.0]
    found = rank_sum(ours, theirs)
    ranks = stats.rankdata(ours + theirs)
    ours_sum, middle = ranks[:4].sum(), 4 * 10 / 2
    sums = np.array([sum(ranks[list(chosen)]) for chosen in combinations(range(9), 4)])
    as_far = np.abs(sums - middle) >= abs(ours_sum - middle)
    assert found.p_value == pytest.approx(as_far.mean())
    scipys = stats.mannwhitneyu(ours, theirs, method="exact")
    assert found.p_value == pytest.approx(scipys.pvalue)
    assert found.statistic == scipys.statistic


def test_the_interval_has_the_ratios_that_scipys_test_does_not_reject() -> None:
    chance = np.random.default_rng(3)
    ours, theirs = chance.lognormal(0.2, 0.3, 9), chance.lognormal(0, 0.3, 11)
    ratio = rank_sum(ours, theirs).ratio
    quotients = np.sort(np.divide.outer(ours, theirs), axis=None)
    middles = np.sqrt(quotients[1:] * quotients[:-1])
    kept = [
        middle
        for middle in middles
        if stats.mannwhitneyu(ours / middle, theirs, method="exact").pvalue > 0.05
    ]
    assert ratio.low == pytest.approx(quotients[quotients < kept[0]][-1])
    assert ratio.high == pytest.approx(quotients[quotients > kept[-1]][0])
    assert ratio.value == pytest.approx(np.median(quotients))
    assert ratio.confidence >= 0.95


def test_many_trials_have_scipys_normal_approximation() -> None:
    chance = np.random.default_rng(4)
    ours, theirs = chance.lognormal(0.1, 0.3, 60), chance.lognormal(0, 0.3, 70)
    expected = stats.mannwhitneyu(ours, theirs, method="asymptotic").pvalue
    assert rank_sum(ours, theirs).p_value == pytest.approx(expected)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
)
def test_ties_never_claim_what_the_interval_does_not_show(
    ours: list[int], theirs: list[int]
) -> None:
    found, turned = rank_sum(ours, theirs), rank_sum(theirs, ours)
    assert found.p_value == pytest.approx(turned.p_value)
    if found.p_value <= 0.05:
        assert not found.ratio.holds(1)
    equal = unpaired_equivalence(ours, theirs, margin=0.03)
    if equal.p_value <= 0.05:
        assert 1 / 1.03 - 1e-9 <= equal.interval.low <= equal.interval.high <= 1.03 + 1e-9


@pytest.mark.parametrize("host", [quiet, noisy])
def test_equal_sides_are_called_different_no_more_often_than_they_may(host: SimulatedHost) -> None:
    """The trials are independent, like trials of two different days."""
    studies = 1000
    one, _ = host(np.random.default_rng(5), studies * 10, 1)
    other, _ = host(np.random.default_rng(6), studies * 10, 1)
    claimed = sum(
        rank_sum(left, right).p_value <= 0.05
        for left, right in zip(one.reshape(studies, 10), other.reshape(studies, 10), strict=True)
    )
    assert claimed <= 50 + 3 * np.sqrt(studies * 0.05 * 0.95)


def test_equivalence_by_hand() -> None:
    close = unpaired_equivalence(
        [1.0, 1.001, 1.002, 1.003], [1.0, 1.001, 1.002, 1.003], margin=0.03
    )
    assert close.p_value == pytest.approx(1 / 70)  # all 16 ratios are inside: 1 of 70 orders
    apart = unpaired_equivalence([2.0, 2.1, 2.2, 2.3], [1.0, 1.1, 1.2, 1.3], margin=0.03)
    assert apart.p_value == 1
    with pytest.raises(ValueError, match="margin of 0 is not above zero"):
        unpaired_equivalence([1], [1], margin=0)


def test_so_few_trials_can_say_no_more() -> None:
    assert least_rank_sum_p_value(4, 4) == pytest.approx(2 / 70)
    assert rank_sum([5, 6, 7, 8], [1, 2, 3, 4]).p_value == pytest.approx(2 / 70)
    assert least_rank_sum_p_value(1, 1) == 1
    with pytest.raises(ValueError, match="0 is not above zero"):
        rank_sum([1, 0], [1])
    with pytest.raises(ValueError, match="no values"):
        rank_sum([], [1])


def test_sides_of_equal_values_are_not_different() -> None:
    found = rank_sum([3.0] * 8, [3.0] * 8)
    assert found.p_value == 1
    assert (found.ratio.low, found.ratio.value, found.ratio.high) == (1, 1, 1)
