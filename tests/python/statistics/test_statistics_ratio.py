"""Ratios and efficiencies with their intervals, checked against known cases and simulations."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statistics_hosts import SimulatedHost, noisy, quiet

from vicinal.labs.statistics.ratio import (
    Centre,
    efficiency,
    mean_ratio_estimate,
    paired_ratio,
    paired_ratio_estimate,
    ratio_estimate,
    resampled_medians,
)

positive = st.lists(st.tuples(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6)), min_size=2, max_size=12)


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


def test_the_paired_ratio_has_scipys_bca_interval() -> None:
    random = np.random.default_rng(2)
    ours, theirs = random.lognormal(0, 0.1, 20), random.lognormal(0, 0.1, 20)
    known = stats.bootstrap(
        (ours / theirs,),
        np.median,
        n_resamples=9999,
        method="BCa",
        rng=np.random.default_rng(20140301),
    ).confidence_interval
    found = paired_ratio_estimate(ours, theirs)
    assert found.value == pytest.approx(np.median(ours / theirs))
    assert found.value == paired_ratio(ours, theirs)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))


@pytest.mark.parametrize("count", [2, 3, 6, 7, 10, 15, 40, 300])
@pytest.mark.parametrize("digits", [12, 2], ids=["all different", "with ties"])
def test_medians_of_resamples_are_scipys_to_the_last_bit(count: int, digits: int) -> None:
    values = np.random.default_rng(count).lognormal(0, 0.1, count).round(digits)
    for seed in (20140301, 7):
        known = stats.bootstrap(
            (values,),
            np.median,
            vectorized=True,
            n_resamples=999,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).bootstrap_distribution
        assert np.array_equal(resampled_medians(values, 999, seed), known)


@pytest.mark.parametrize("count", [6, 20])
def test_equal_ratios_leave_nothing_to_correct_by(count: int) -> None:
    found = paired_ratio_estimate([3.0] * count, [2.0] * count)
    assert (found.value, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))
    most = paired_ratio_estimate([3.0] * (count - 1) + [9.0], [2.0] * count)
    assert most.low == pytest.approx(1.5)
    assert paired_ratio_estimate([3.0], [2.0]).confidence == 0


@pytest.mark.parametrize("host", [quiet, noisy])
@pytest.mark.parametrize("blocks", [6, 20])
def test_bca_intervals_hold_the_true_ratio_almost_as_often_as_they_say(
    host: SimulatedHost, blocks: int
) -> None:
    # docs/explanation/statistics.md states 93 to 94 % where 95 % is the target. The median's BCa
    # interval does not depend on the order of magnitude, so each study takes one bootstrap.
    studies = 200
    ours, theirs = host(np.random.default_rng(blocks), studies, blocks)
    held = sum(
        paired_ratio_estimate(left, right).holds(1)
        for left, right in zip(ours, theirs, strict=True)
    )
    assert stats.binomtest(held, studies, 0.92, alternative="less").pvalue > 0.01


def test_blocks_that_are_disturbed_as_a_whole_do_not_widen_a_paired_ratio() -> None:
    ours, theirs = (side[0] for side in noisy(np.random.default_rng(6), 1, 30))
    medians, paired = ratio_estimate(ours, theirs), paired_ratio_estimate(ours, theirs)
    assert paired.high - paired.low < (medians.high - medians.low) / 2


@pytest.mark.parametrize("host", [quiet, noisy])
@pytest.mark.parametrize("blocks", [5, 15])
def test_fiellers_intervals_hold_the_true_ratio_of_means(host: SimulatedHost, blocks: int) -> None:
    studies = 2000
    ours, theirs = host(np.random.default_rng(blocks), studies, blocks)
    held = sum(
        mean_ratio_estimate(left * 0.5, right).holds(0.5)
        for left, right in zip(ours, theirs, strict=True)
    )
    assert held / studies > 0.935


def test_fiellers_interval_is_what_a_paired_t_test_does_not_reject() -> None:
    random = np.random.default_rng(4)
    ours, theirs = random.normal(20, 2, 8), random.normal(10, 1, 8)
    found = mean_ratio_estimate(ours, theirs)
    assert found.value == pytest.approx(ours.mean() / theirs.mean())
    for end in (found.low, found.high):
        assert stats.ttest_rel(ours, end * theirs).pvalue == pytest.approx(0.05)


def test_means_that_could_be_zero_have_no_ratio_to_be_sure_of() -> None:
    assert mean_ratio_estimate([1.0, 2.0], [0.1, 50.0]).confidence == 0
    assert mean_ratio_estimate([1.0], [2.0]).confidence == 0


def test_efficiencies_as_published() -> None:
    # The fourth paper's table I: latencies of 128 and of 256 bytes.
    found = efficiency([2.235], [1.69], lower_is_better=True)
    assert found.value.value == pytest.approx(0.7561, abs=1e-4)
    assert (found.virtual, found.native) == (2.235, 1.69)
    assert efficiency([2.47], [2.475], lower_is_better=True).value.value == pytest.approx(
        1.002, abs=5e-4
    )
    # The first paper's bandwidths with polling, in MB/s.
    assert efficiency([6060.96], [6283.36], lower_is_better=False).value.value == pytest.approx(
        0.9646, abs=5e-5
    )
    assert json.loads(json.dumps(found.to_dict()))["centre"] == "median"


def test_an_efficiency_needs_values_above_zero() -> None:
    with pytest.raises(ValueError, match="above zero"):
        efficiency([0.0], [1.0], lower_is_better=True)


@given(positive)
def test_efficiency_says_the_same_of_times_and_of_rates(pairs: list[tuple[float, float]]) -> None:
    virtual, native = (list(side) for side in zip(*pairs, strict=True))
    times = efficiency(virtual, native, lower_is_better=True, centre=Centre.MEAN)
    better = times.value.value > 1
    assert better == (np.mean(native) > np.mean(virtual))
    swapped = efficiency(native, virtual, lower_is_better=False, centre=Centre.MEAN)
    assert swapped.value == times.value


@given(positive, st.floats(0.01, 100))
def test_a_ratio_has_no_unit(pairs: list[tuple[float, float]], factor: float) -> None:
    ours, theirs = (np.array(side) for side in zip(*pairs, strict=True))
    plain = mean_ratio_estimate(ours, theirs)
    other = mean_ratio_estimate(ours * factor, theirs * factor)
    assert other.value == pytest.approx(plain.value)
