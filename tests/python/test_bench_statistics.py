"""Medians and ratios with their intervals, against cases that can be known by hand."""

import numpy as np
import pytest

from vicinal.bench.statistics import median_estimate, ratio_estimate


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


def test_no_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_estimate([])


def test_median_interval_holds_the_true_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    rounds, held = 2000, 0
    for _ in range(rounds):
        estimate = median_estimate(random.exponential(size=9))
        held += estimate.low <= np.log(2) <= estimate.high
    # 9 values give 96.1 %; 2000 rounds know it to half a percent (one sigma).
    assert held / rounds == pytest.approx(estimate.confidence, abs=0.02)


def test_ratio_is_that_of_the_medians_not_the_mean_of_ratios() -> None:
    assert ratio_estimate([1, 2, 30], [2, 4, 5]).value == pytest.approx(0.5)


def test_ratio_of_equal_sides_is_one_without_doubt() -> None:
    estimate = ratio_estimate([4.0] * 6, [4.0] * 6)
    assert (estimate.value, estimate.low, estimate.high) == (1, 1, 1)


def test_what_slows_both_sides_of_a_pair_down_does_not_widen_the_interval() -> None:
    drift = np.array([1.0, 5.0, 2.0, 9.0, 3.0, 7.0, 4.0])
    together = ratio_estimate(list(drift * 0.5), list(drift))
    apart = ratio_estimate(list(drift * 0.5), list(drift[::-1]))
    assert together.low == pytest.approx(0.5)
    assert together.high == pytest.approx(0.5)
    assert apart.high > 0.6


def test_ratio_interval_is_the_same_each_time() -> None:
    ours, theirs = [1.0, 1.3, 1.1, 1.2], [2.0, 2.2, 1.9, 2.4]
    assert ratio_estimate(ours, theirs) == ratio_estimate(ours, theirs)


def test_one_pair_has_no_interval() -> None:
    assert ratio_estimate([1.0], [2.0]).confidence == 0


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0])])
def test_sides_that_make_no_pairs_are_an_error(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="do not make pairs"):
        ratio_estimate(ours, theirs)
