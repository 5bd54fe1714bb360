"""Stopping early: published boundaries, and the error rate of simulated studies that stop early."""

import json

import numpy as np
import pytest
from scipy import stats
from statistics_hosts import Floats, SimulatedHost, noisy, quiet

from vicinal.labs.statistics.samples import TooFewTrialsError
from vicinal.labs.statistics.signed_rank import signed_rank_p_values
from vicinal.labs.statistics.stopping import Reason, Rule, boundaries, even_rule, watch

STUDIES = 5000


def claimed(ratios: Floats, looks: tuple[int, ...], levels: tuple[float, ...]) -> float:
    """The share of studies that claim a difference at any look."""
    different = np.zeros(len(ratios), dtype=bool)
    for trials, level in zip(looks, levels, strict=True):
        different |= signed_rank_p_values(ratios[:, :trials]) <= level
    return float(different.mean())


def test_boundaries_are_the_published_ones() -> None:
    # Lan and DeMets' spending function like Pocock's, five even looks, two-sided 0.05: the
    # boundaries quoted from R's ldbounds. The next test checks other boundaries against SciPy.
    known = (2.4380, 2.4268, 2.4101, 2.3966, 2.3859)
    assert boundaries((1, 2, 3, 4, 5), 0.05) == pytest.approx(known, abs=2e-4)
    assert boundaries((20,), 0.05) == pytest.approx((stats.norm.isf(0.025),))


def test_boundaries_spend_what_scipys_multivariate_normal_says() -> None:
    looks = (7, 12, 30)
    found = np.array(boundaries(looks, 0.05 / 3))
    shared = np.sqrt(np.minimum.outer(looks, looks) / np.maximum.outer(looks, looks))
    inside = stats.multivariate_normal.cdf(
        found, mean=np.zeros(3), cov=shared, lower_limit=-found, rng=np.random.default_rng(1)
    )
    assert 1 - inside == pytest.approx(0.05 / 3, abs=1e-4)


@pytest.mark.parametrize("host", [quiet, noisy])
@pytest.mark.parametrize("cap", [15, 40])
def test_looking_five_times_is_not_wrong_more_often(host: SimulatedHost, cap: int) -> None:
    rule = even_rule(cap)
    assert len(rule.looks) == 5
    ours, theirs = host(np.random.default_rng(43), STUDIES, cap)
    ratios = np.log(ours / theirs)
    wrong = claimed(ratios, rule.looks, rule.levels)
    assert wrong <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / STUDIES)
    # The rule prevents the errors of five looks at 0.05 each.
    assert claimed(ratios, rule.looks, (0.05,) * 5) > 0.08


def test_comparisons_that_stop_together_share_the_error() -> None:
    rule = even_rule(30, comparisons=4)
    ours, theirs = quiet(np.random.default_rng(47), STUDIES, 30)
    each = claimed(np.log(ours / theirs), rule.looks, rule.levels)
    assert 0.003 < each <= 0.0125 + 2.6 * np.sqrt(0.0125 / STUDIES)


@pytest.mark.parametrize("host", [quiet, noisy])
def test_the_interval_that_a_study_stopped_with_holds_the_true_ratio(host: SimulatedHost) -> None:
    rule = even_rule(30, margin=0.03, precision=0.02)
    studies = 200
    ours, theirs = host(np.random.default_rng(53), studies, rule.cap)
    held, reasons = 0, set()
    for left, right in zip(ours * 1.03, theirs, strict=True):
        look = watch(rule, left, right)
        assert look is not None
        assert look.reason is not None
        reasons.add(look.reason)
        held += look.ratio.holds(1.03)
    assert stats.binomtest(held, studies, 0.95, alternative="less").pvalue > 0.01
    assert {Reason.DIFFERENT, Reason.CAP} <= reasons


def test_a_large_difference_stops_at_the_first_look() -> None:
    rule = even_rule(40)
    ours, theirs = (side[0] for side in noisy(np.random.default_rng(59), 1, 40))
    look = watch(rule, 5 * ours, theirs)
    assert look is not None
    assert (look.trials, look.reason) == (rule.looks[0], Reason.DIFFERENT)
    assert json.loads(json.dumps(look.to_dict()))["reason"] == "different"
    assert json.loads(json.dumps(rule.to_dict()))["looks"] == list(rule.looks)


def test_equal_sides_stop_as_equivalent_or_precise_or_at_the_cap() -> None:
    ours, theirs = (side[0] for side in quiet(np.random.default_rng(61), 1, 40))
    reasons = {
        watch(even_rule(40, **wanted), ours, theirs).reason  # type: ignore[union-attr, arg-type]
        for wanted in ({"margin": 0.1}, {"precision": 0.05}, {})
    }
    assert reasons == {Reason.EQUIVALENT, Reason.PRECISE, Reason.CAP}


def test_an_interrupted_study_goes_on_as_if_nothing_had_happened() -> None:
    rule = Rule((10, 20, 30))
    ours, theirs = (side[0] for side in quiet(np.random.default_rng(67), 1, 30))
    assert watch(rule, ours[:9], theirs[:9]) is None
    first = watch(rule, ours[:10], theirs[:10])
    assert first is not None
    assert first.reason is None
    assert watch(rule, ours[:19], theirs[:19]) == first  # nothing changes between looks
    last = watch(rule, ours, theirs)
    assert last is not None
    assert (last.trials, last.reason) == (30, Reason.CAP)
    # Results of later blocks do not change the decision.
    decided = watch(rule, 2 * ours[:10], theirs[:10])
    assert decided == watch(rule, np.append(2 * ours[:10], ours[10:]), theirs)


@pytest.mark.parametrize("looks", [(), (10, 10), (20, 10), (0, 10)])
def test_looks_must_grow(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not grow"):
        Rule(looks)


def test_a_look_that_could_find_nothing_is_refused() -> None:
    with pytest.raises(TooFewTrialsError, match=r"first look at 0\.013, which needs 8"):
        Rule((6, 35))
    with pytest.raises(TooFewTrialsError, match="needs 6"):
        even_rule(5)
    assert even_rule(6).looks == (6,)


@pytest.mark.parametrize("cap", range(6, 60, 7))
@pytest.mark.parametrize("comparisons", [1, 12])
def test_every_cap_that_can_find_anything_has_looks(cap: int, comparisons: int) -> None:
    try:
        rule = even_rule(cap, comparisons=comparisons)
    except TooFewTrialsError as refused:
        assert refused.needed > cap  # noqa: PT017
        return
    assert rule.cap == cap
    assert max(rule.levels) - 1e-9 <= 0.05 / comparisons <= sum(rule.levels) + 1e-9
