"""Paired tests on published data, families of tests, equivalence, and splits of a change."""

import json
from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from statistics_hosts import SimulatedHost, noisy, quiet

from vicinal.labs.statistics.compare import compare, paired_t
from vicinal.labs.statistics.correct import Correction, benjamini_hochberg, correct, holm
from vicinal.labs.statistics.equivalence import (
    Verdict,
    equivalence,
    equivalence_p_value,
    equivalent_difference,
)
from vicinal.labs.statistics.samples import Floats, Scale, TooFewTrialsError
from vicinal.labs.statistics.signed_rank import (
    hodges_lehmann,
    signed_rank,
    signed_rank_p_values,
    signed_rank_pairs,
    signed_rank_test,
)
from vicinal.labs.statistics.split import compare_splits, split

# Student (1908): hours of sleep that ten patients gained by each of two drugs; R's `sleep`.
SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]

# Hollander and Wolfe (1973): depression scores of nine patients; the example of R's wilcox.test.
DEPRESSION_1 = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
DEPRESSION_2 = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_paired_t_of_students_sleep_is_rs() -> None:
    found = paired_t(SLEEP_1, SLEEP_2)
    assert found.statistic == pytest.approx(-4.0621, abs=5e-5)
    assert found.degrees_of_freedom == 9
    assert found.p_value == pytest.approx(0.002833, abs=5e-7)
    assert found.mean.value == pytest.approx(-1.58)
    assert (found.mean.low, found.mean.high) == pytest.approx((-2.4598858, -0.7001142), abs=5e-8)


def test_signed_rank_of_the_depression_scores_is_rs() -> None:
    # R: V = 40, one-sided p = 0.01953. V is the sum of the ranks above zero; 45 is the sum of all
    # ranks.
    found = signed_rank(DEPRESSION_1, DEPRESSION_2, Scale.DIFFERENCE)
    assert found.statistic == 45 - 40
    assert found.p_value == pytest.approx(2 * 0.01953, abs=1e-5)
    assert found.differing == 9


def test_ties_and_equal_pairs_keep_the_signed_rank_test_exact() -> None:
    # One pair of `sleep` does not differ and two pairs differ by 1.3. The nine pairs that differ
    # all have the same sign, which has the probability 2 / 2^9 for any sizes.
    found = signed_rank(SLEEP_1, SLEEP_2, Scale.DIFFERENCE)
    assert (found.statistic, found.differing) == (0, 9)
    assert found.p_value == pytest.approx(2 / 2**9)
    # By hand: ranks 1.5 (negative), 1.5, 3, 4, 5, 6; of 64 outcomes, 3 on each side are as extreme.
    tied = signed_rank([0, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 1], Scale.DIFFERENCE)
    assert tied.statistic == 1.5
    assert tied.p_value == pytest.approx(6 / 64)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_ranks_with_ties_are_as_scipys_permutations_and_those_without_as_its_tables(
    alternative: Literal["two-sided", "greater", "less"],
) -> None:
    random = np.random.default_rng(5)
    every = stats.PermutationMethod(n_resamples=9999)
    tied = random.integers(-2, 5, 12).astype(float)
    tied = tied[tied != 0]
    known = stats.wilcoxon(tied, alternative=alternative, method=every)
    assert signed_rank_test(tied, alternative) == pytest.approx((known.statistic, known.pvalue))
    for count in (1, 7, 30, 50, 80):
        values = random.normal(0.2, 1, count)
        known = stats.wilcoxon(values, alternative=alternative)
        found = signed_rank_test(values, alternative)
        assert found == pytest.approx((known.statistic, known.pvalue))


def test_the_interval_has_the_shifts_that_the_test_does_not_reject() -> None:
    random = np.random.default_rng(9)
    for count in (6, 9, 15, 30, 60):
        values = random.standard_t(3, count) + 0.4
        found = hodges_lehmann(values)
        width = found.high - found.low
        for end, inwards in ((found.low, 1), (found.high, -1)):
            just_inside = stats.wilcoxon(values - (end + inwards * 1e-6 * width)).pvalue
            just_outside = stats.wilcoxon(values - (end - inwards * 1e-6 * width)).pvalue
            assert just_outside <= 0.0501
            assert just_inside > 0.0499
        assert found.low < found.value < found.high
        assert found.confidence >= 0.95
    assert hodges_lehmann(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).confidence == pytest.approx(0.9375)
    assert hodges_lehmann(np.array([1.0])).confidence == 0


def test_hodges_and_lehmanns_estimate_by_hand() -> None:
    # The means of all pairs of 1, 2 and 6 are 1, 1.5, 2, 3.5, 4 and 6.
    assert hodges_lehmann(np.array([6.0, 1.0, 2.0])).value == pytest.approx((2 + 3.5) / 2)


@pytest.mark.parametrize("host", [quiet, noisy])
def test_the_signed_rank_interval_holds_the_true_ratio(host: SimulatedHost) -> None:
    studies = 1000
    ours, theirs = host(np.random.default_rng(10), studies, 12)
    held = sum(
        signed_rank(0.4 * left, right).shift.holds(0.4)
        for left, right in zip(ours, theirs, strict=True)
    )
    stated = signed_rank(ours[0], theirs[0]).shift.confidence
    assert held / studies == pytest.approx(stated, abs=3.5 * np.sqrt(0.05 * 0.95 / studies))


def test_sides_that_never_differ_are_not_different() -> None:
    found = compare([4.0] * 8, [4.0] * 8)
    assert found.p_value == 1
    assert (found.ratio.value, found.t.statistic, found.wilcoxon.differing) == (1, None, 0)


def test_pairs_that_all_differ_by_the_same_have_no_t() -> None:
    found = compare(np.arange(1, 9) * 0.1 + 0.3, np.arange(1, 9) * 0.1)
    assert found.t.p_value == 0
    assert found.t.mean.value == pytest.approx(0.3)
    assert found.p_value == pytest.approx(2 / 2**8)
    assert json.loads(json.dumps(found.to_dict()))["t"]["statistic"] is None
    same = signed_rank(np.arange(1, 9) * 0.3, np.arange(1, 9) * 0.1)
    assert same.p_value == pytest.approx(2 / 2**8)
    assert same.shift.low == pytest.approx(3)
    assert same.shift.high == pytest.approx(3)


def test_published_tables_of_fifteen_trials_are_reproduced() -> None:
    """Tables IV and V of the third paper: a paired two-tailed t-test over 15 trials, alpha 0.05.

    The paper's samples are not published, so these samples are made with a known answer. Fifteen
    differences of mean m and standard deviation s have t = m / (s / sqrt(15)). Student's t with 14
    degrees of freedom exceeds 2.1448 with probability 0.05 and 4.1405 with probability 0.001.
    """
    random = np.random.default_rng(20140301)
    shape = random.normal(size=15)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    base = 2.9 + 0.3 * random.normal(size=15)
    for statistic, p_value in ((2.1448, 0.05), (4.1405, 0.001), (0.0, 1.0), (1.7613, 0.1)):
        differences = 0.02 * (shape + statistic / np.sqrt(15))
        found = paired_t(base + differences, base)
        assert found.degrees_of_freedom == 14
        assert found.statistic == pytest.approx(statistic, abs=1e-9)
        assert found.p_value == pytest.approx(p_value, rel=1e-3)


def test_one_interrupted_trial_hides_nothing_from_the_ranks() -> None:
    theirs = np.linspace(10, 11, 15)
    ours = theirs * (1.02 + 0.002 * np.linspace(-1, 1, 15))
    ours[7] = theirs[7] / 2
    found = compare(ours, theirs)
    assert found.p_value == found.wilcoxon.p_value < 0.01
    assert found.t.p_value > 0.05
    assert found.wilcoxon.shift.low > 1.01
    assert found.paired_ratio.value == pytest.approx(1.02, abs=1e-3)


def test_too_few_trials_are_refused_with_how_many_are_needed() -> None:
    assert signed_rank_pairs(0.05) == 6
    with pytest.raises(TooFewTrialsError, match=r"5 trials are too few .* needs 6") as refused:
        compare([1.0] * 5, [2.0] * 5)
    assert (refused.value.given, refused.value.needed) == (5, 6)
    assert refused.value.remedy == "measure at least 6 trials of each side"
    with pytest.raises(TooFewTrialsError, match="family of 9 comparisons, which needs 9"):
        compare([1.0] * 8, [2.0] * 8, comparisons=9)
    with pytest.raises(TooFewTrialsError, match=r"1 trial .* paired t-test, which needs 2"):
        paired_t([1.0], [2.0])


@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.01, 0.05 / 9, 0.001])
def test_the_pairs_that_are_said_to_be_needed_are(alpha: float) -> None:
    needed = signed_rank_pairs(alpha)
    for pairs, reached in ((needed, True), (needed - 1, False)):
        if pairs:
            found = signed_rank(np.arange(1, pairs + 1.0), np.zeros(pairs), Scale.DIFFERENCE)
            assert (found.p_value <= alpha) == reached


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ([1.0] * 6, [1.0] * 7, "do not make pairs"),
        ([1.0] * 6, [1.0] * 5 + [0.0], "0 is not above zero"),
        ([1.0] * 6, [1.0] * 5 + [float("nan")], "value 5 is nan"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    ours: list[float], theirs: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare(ours, theirs)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=6, max_size=12))
def test_which_side_comes_first_changes_no_p_value(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (list(side) for side in zip(*pairs, strict=True))
    for scale in Scale:
        one, other = paired_t(ours, theirs, scale), paired_t(theirs, ours, scale)
        assert one.p_value == pytest.approx(other.p_value)
        ranks = signed_rank(ours, theirs, scale), signed_rank(theirs, ours, scale)
        assert ranks[0].p_value == pytest.approx(ranks[1].p_value)


def test_many_studies_at_once_have_the_p_values_of_each() -> None:
    random = np.random.default_rng(8)
    ours, theirs = random.lognormal(0.03, 0.04, (20, 15)), random.lognormal(0, 0.04, (20, 15))
    together = signed_rank_p_values(np.log(ours / theirs))
    each = [signed_rank(left, right).p_value for left, right in zip(ours, theirs, strict=True)]
    assert together == pytest.approx(each)


def test_holm_and_benjamini_hochberg_by_hand() -> None:
    # Sorted: 0.005 0.01 0.03 0.04. Holm multiplies by 4, 3, 2 and 1, and no result is below the
    # previous one.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # Benjamini and Hochberg multiply by 4/1, 4/2, 4/3 and 4/4, and no result is above the next one.
    found = benjamini_hochberg([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_benjamini_and_hochbergs_own_example() -> None:
    # Section 3.2 of their paper of 1995: fifteen hypotheses on thrombolysis. At 0.05 their
    # procedure rejects the four smallest; Bonferroni's procedure, and here Holm's too, rejects
    # three.
    published = [
        *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344),
        *(0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000),
    ]
    family = {str(number): p_value for number, p_value in enumerate(published)}
    sweep = correct(family, Correction.BENJAMINI_HOCHBERG)
    assert [name for name, claim in sweep.claims.items() if claim.claimed] == ["0", "1", "2", "3"]
    study = correct(family, Correction.HOLM)
    assert [name for name, claim in study.claims.items() if claim.claimed] == ["0", "1", "2"]
    assert json.loads(json.dumps(study.to_dict()))["correction"] == "Holm"


@given(p_values)
def test_corrections_keep_the_order_and_never_help(values: list[float]) -> None:
    order = np.argsort(values, kind="stable")
    strict, mild = holm(values), benjamini_hochberg(values)
    assert (np.diff(strict[order]) >= 0).all()
    assert (np.diff(mild[order]) >= -1e-12).all()
    assert (strict >= mild - 1e-12).all()
    assert (mild >= np.array(values) - 1e-12).all()
    assert (strict <= 1).all()
    assert strict.min() == pytest.approx(min(1, len(values) * min(values)))


@pytest.mark.parametrize("values", [[0.5, 1.1], [-0.1], [float("nan")]])
def test_what_is_no_p_value_is_an_error(values: list[float]) -> None:
    with pytest.raises(ValueError, match="value"):
        holm(values)


def test_a_family_of_none_claims_nothing() -> None:
    assert correct({}).claims == {}


def test_corrections_keep_the_errors_that_they_promise() -> None:
    random = np.random.default_rng(13)
    studies, members, different = 1000, 10, 3
    shift = np.where(np.arange(members) < different, 3.5, 0)
    statistics = random.normal(shift, 1, (studies, members))
    every = 2 * stats.norm.sf(np.abs(statistics))
    false = np.arange(members) >= different
    any_false = np.mean([(holm(row) <= 0.05)[false].any() for row in every])
    rates = []
    for row in every:
        claimed = benjamini_hochberg(row) <= 0.05
        rates.append(claimed[false].sum() / max(1, claimed.sum()))
    assert any_false <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / studies)
    assert np.mean(rates) <= 0.05 * 7 / 10 + 0.01
    assert np.mean([(row <= 0.05)[false].any() for row in every]) > 0.2  # without a correction


def test_equivalence_of_students_sleep_by_hand() -> None:
    # Mean -1.58, standard error 1.58 / 4.0621: against -3 and 0.5, t is 3.6508 and -5.3476.
    found = equivalent_difference(SLEEP_1, SLEEP_2, low=-3, high=0.5)
    error = 1.58 / 4.0621277
    assert found.p_low == pytest.approx(stats.t.sf((3 - 1.58) / error, 9), rel=1e-5)
    assert found.p_high == pytest.approx(stats.t.sf((1.58 + 0.5) / error, 9), rel=1e-5)
    assert found.p_value == found.p_low
    assert (found.equivalent, found.different) == (True, True)
    assert found.verdict is Verdict.NEGLIGIBLE
    # The 90 % interval: -1.58 -+ 1.83311 * 0.38896.
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (-2.29301, -0.86699), abs=5e-6
    )


@pytest.mark.parametrize(
    ("factor", "noise", "verdict"),
    [
        (1.0, 0.01, Verdict.EQUIVALENT),
        (1.0, 0.2, Verdict.UNDECIDED),
        (1.1, 0.01, Verdict.DIFFERENT),
        (1.01, 0.005, Verdict.NEGLIGIBLE),
    ],
)
def test_verdicts(factor: float, noise: float, verdict: Verdict) -> None:
    random = np.random.default_rng(17)
    theirs = random.lognormal(0, 0.1, 20)
    wobble = random.normal(0, noise, 20)
    ours = theirs * factor * np.exp(wobble - wobble.mean())
    assert equivalence(ours, theirs, margin=0.03).verdict is verdict
    assert equivalence(theirs, ours, margin=0.03).verdict is verdict


def ranks_are_distinct(log_ratios: Floats) -> bool:
    sizes = np.sort(np.abs(log_ratios))
    return bool((np.diff(sizes, prepend=0) > 1e-6).all())


@settings(deadline=None)
@given(
    st.lists(st.floats(0.8, 1.2), min_size=5, max_size=12),
    st.floats(0.005, 0.3),
)
@example(
    # Two sizes are equal except for rounding, and one ratio lies on the margin. By the exact
    # distribution of these ranks, p is 0.048, and the interval reaches over the margin.
    [1, 1.125, 1.0625, 1.1875, 1.15625, 0.875, 0.8125, 0.9375, 0.84375, 0.8, 0.8000000000000002],
    0.15625,
)
def test_equivalent_is_where_the_90_percent_interval_lies_within_the_margin(
    ratios: list[float], margin: float
) -> None:
    found = equivalence(ratios, [1.0] * len(ratios), margin=margin)
    inside = found.low < found.interval.low and found.interval.high < found.high
    if found.equivalent:
        assert inside
    reach = np.log1p(margin)
    if all(ranks_are_distinct(np.log(ratios) + shift) for shift in (-reach, reach)):
        assert found.equivalent == inside


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.9, 0.96, 1.0, 1.04, 1.05, 1.1, 1.2]), min_size=6, max_size=14))
@example([1.0] * 3 + [1.04, 1.05, 1.1, 1.2, 1.21, 1.22])  # p = 2 / 2^6; the interval starts at 1
def test_a_difference_is_claimed_only_where_the_interval_does_not_hold_1(
    ratios: list[float],
) -> None:
    theirs = [1.0] * len(ratios)
    found = signed_rank(ratios, theirs)
    if found.p_value <= 0.05:
        assert not found.shift.holds(1)
    if ranks_are_distinct(np.log(ratios)):
        assert (found.p_value <= 0.05) == (not found.shift.holds(1))
    assert equivalence(ratios, theirs, margin=0.03).different == (found.p_value <= 0.05)


def test_equivalence_is_rarely_claimed_at_the_edge_of_its_margin() -> None:
    random = np.random.default_rng(19)
    studies = 500
    ours = random.lognormal(np.log(1.03), 0.01, (studies, 15))
    theirs = random.lognormal(0, 0.01, (studies, 15))
    claims = sum(
        equivalence(left, right, margin=0.03).equivalent
        for left, right in zip(ours, theirs, strict=True)
    )
    assert 0.02 < claims / studies < 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / studies)


def test_the_p_value_of_equivalence_alone_is_the_same() -> None:
    random = np.random.default_rng(23)
    for count in (6, 9, 15):
        ours, theirs = random.lognormal(0.01, 0.01, count), random.lognormal(0, 0.01, count)
        whole = equivalence(ours, theirs, margin=0.03)
        assert equivalence_p_value(ours, theirs, margin=0.03) == whole.p_value
    with pytest.raises(ValueError, match="margin of 0"):
        equivalence_p_value([1.0] * 9, [1.0] * 9, margin=0.0)
    with pytest.raises(TooFewTrialsError, match="4 trials are too few"):
        equivalence_p_value([1.0] * 4, [1.0] * 4, margin=0.03)


@pytest.mark.parametrize(("margin", "message"), [(0.0, "margin of 0"), (-0.1, "margin of -0.1")])
def test_margins_are_above_zero(margin: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        equivalence([1.0, 2.0], [1.0, 2.0], margin=margin)


def test_a_split_adds_up() -> None:
    found = split([10.0, 12.0, 11.0], [4.0, 6.0, 5.0])
    assert (found.total.value, found.communication.value, found.computation.value) == (11, 5, 6)
    assert found.share == pytest.approx(5 / 11)


def test_a_split_says_what_the_change_came_from() -> None:
    # The second paper's figure 8: communication takes 36 % less time, the total 8 % less.
    theirs = ([100.0, 101.0, 99.0, 100.0], [22.0, 22.5, 21.5, 22.0])
    ours = ([92.08, 93.0, 91.16, 92.08], [14.08, 14.4, 13.76, 14.08])
    found = compare_splits(ours, theirs)
    assert found.communication is not None
    assert found.computation is not None
    assert found.communication.value == pytest.approx(1 - 0.36)
    assert found.total.value == pytest.approx(1 - 0.0792)
    assert found.computation.value == pytest.approx(1)
    assert found.saved == pytest.approx(found.saved_by_communication)
    alone = compare_splits(([2.0, 2.0], [1.0, 1.0]), ([3.0, 3.0], [0.0, 0.0]))
    assert alone.communication is None
    assert json.loads(json.dumps(alone.to_dict()))["saved"] == 1


@pytest.mark.parametrize("part", [[11.0, 1.0], [-1.0, 1.0]])
def test_a_part_is_not_more_than_the_whole(part: list[float]) -> None:
    with pytest.raises(ValueError, match="trial 0 has"):
        split([10.0, 10.0], part)
