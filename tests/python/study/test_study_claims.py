"""Claims of studies on simulated machines with a known truth: not too many, and not too few."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statistics_hosts import Floats, noisy
from study_results import (
    CONDITIONS,
    NATIVE,
    REGION,
    SMALL,
    STARTED,
    Drawn,
    in_memory,
    trials_of,
)

from vicinal.labs.statistics.power import power_of
from vicinal.labs.statistics.stopping import Rule, even_rule, watch
from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.analysis.summary import Summary, Verdict
from vicinal.labs.study.file.model import (
    Comparison,
    Correction,
    Design,
    Published,
    Quantity,
    Statistic,
    Study,
    control_name,
)
from vicinal.labs.study.result.layout import Trial
from vicinal.labs.study.result.samples import Series


def latencies(name: str, block: int, workload: str, by_size: dict[int, Floats]) -> Drawn:
    """A trial of round trips, which took twice these µs."""
    series = [
        Series(size, 0, 2, (2000 * values).round().astype(np.int64))
        for size, values in by_size.items()
    ]
    return Trial(name, workload, block, STARTED, 1.0, CONDITIONS), series


def study_of(blocks: int, sizes: tuple[int, ...], statistics: tuple[Statistic, ...]) -> Study:
    return replace(
        SMALL,
        workloads=(replace(SMALL.workloads[0], sizes=sizes, statistics=statistics),),
        design=Design((Comparison(NATIVE.name, REGION.name),), trials=blocks),
    )


def noisy_study(seed: int, study: Study, factor: float = 1.0) -> Summary:
    """A study on the noisy machine; the second environment costs `factor` as much as the first."""
    chance = np.random.default_rng(seed)
    sizes = study.workloads[0].sizes
    blocks = study.design.trials
    hosts = {size: noisy(chance, 1, blocks) for size in sizes}

    def trials() -> Iterator[Drawn]:
        for block in range(blocks):
            sides = [(NATIVE.name, 0, 1.0), (REGION.name, 1, factor)]
            for name, side, cost in sides:
                yield latencies(
                    name,
                    block,
                    "latency",
                    {
                        size: cost * hosts[size][side][0, block] * chance.lognormal(1, 0.02, 30)
                        for size in sizes
                    },
                )

    return summarise(in_memory(study, drawn=list(trials())))


def test_a_study_of_equal_sides_claims_no_difference_in_95_of_100_seeds() -> None:
    study = study_of(12, (8, 64), (Statistic.MEDIAN, Statistic.P99))
    claiming = 0
    for seed in range(100):
        summary = noisy_study(seed, study)
        assert len(summary.compared) == 4
        claiming += any(
            each.verdict in (Verdict.BETTER, Verdict.WORSE) for each in summary.compared
        )
    assert claiming <= 5


def test_planted_3_percent_are_found_with_the_stated_power() -> None:
    """With noise of 4 % between pairs, 15 blocks find 3 % as often as power_of() says."""
    study = study_of(15, (8,), (Statistic.MEDIAN,))
    stated = power_of(15, difference=0.03, noise=0.04).power
    studies, found = 150, 0
    for seed in range(studies):
        chance = np.random.default_rng(seed)
        drawn = [
            latencies(
                name,
                block,
                "latency",
                {8: np.full(3, cost * np.exp(chance.normal(0, 0.04 / np.sqrt(2))))},
            )
            for block in range(15)
            for name, cost in ((NATIVE.name, 100.0), (REGION.name, 103.0))
        ]
        (compared,) = summarise(in_memory(study, drawn=drawn)).compared
        assert compared.verdict is not Verdict.BETTER
        found += compared.verdict is Verdict.WORSE
    spread = np.sqrt(studies * stated * (1 - stated))
    assert abs(found - studies * stated) <= 3 * spread


def test_a_table_of_fifteen_trials_as_paper_3_has_it() -> None:
    """Minimum, maximum, percentiles, and the paired t-test of 15 trials, with known answers.

    The samples of a trial are 1, 2, ..., 1001 times a factor, so its P90 is 901 factors, and so on.
    """
    wanted = {"min": 1, "max": 1001, "median": 501, "P90": 901, "P95": 951, "P99": 991}
    chance = np.random.default_rng(7)
    factors = {
        name: chance.normal(mean, 0.05, 15)
        for name, mean in ((NATIVE.name, 1.0), (REGION.name, 1.02))
    }
    factors = {name: np.round(each, 3) for name, each in factors.items()}
    published = Published(
        "P3 table IV",
        "latency",
        Quantity.LATENCY,
        0.10,
        "p",
        comparison=(NATIVE.name, REGION.name),
        size=8,
        statistic=Statistic.MEAN,
    )
    study = replace(
        study_of(15, (8,), tuple(Statistic(name) for name in wanted)), published=(published,)
    )
    ladder = np.arange(1, 1002)
    drawn = [
        latencies(name, block, "latency", {8: factors[name][block] * ladder})
        for block in range(15)
        for name in (NATIVE.name, REGION.name)
    ]
    summary = summarise(in_memory(study, drawn=drawn))
    for cell in summary.cells:
        for name, rung in wanted.items():
            known = factors[cell.environment] * rung
            assert cell.values[Statistic(name)] == pytest.approx(tuple(known))
            assert cell.across[Statistic(name)].value == pytest.approx(np.median(known))
    expected = stats.ttest_rel(factors[REGION.name], factors[NATIVE.name])
    (comparison,) = summary.published
    assert comparison.measured is not None
    assert comparison.measured.value == pytest.approx(expected.pvalue)
    median = next(each for each in summary.compared if each.statistic is Statistic.MEDIAN)
    logarithms = stats.ttest_rel(np.log(factors[REGION.name]), np.log(factors[NATIVE.name]))
    assert median.p_t == pytest.approx(logarithms.pvalue)
    ranks = stats.wilcoxon(np.log(factors[REGION.name] / factors[NATIVE.name]))
    assert median.p_signed_rank == pytest.approx(ranks.pvalue)


def test_too_few_blocks_claim_nothing_whatever_they_show() -> None:
    for blocks, verdict in ((5, Verdict.TOO_FEW), (6, Verdict.BETTER)):
        study = study_of(blocks, (8,), (Statistic.MEDIAN,))
        drawn = [
            latencies(name, block, "latency", {8: np.full(3, cost + block)})
            for block in range(blocks)
            for name, cost in ((NATIVE.name, 100.0), (REGION.name, 50.0))
        ]
        (compared,) = summarise(in_memory(study, drawn=drawn)).compared
        assert compared.verdict is verdict
        assert compared.base.value > compared.test.value
        assert (compared.ratio is None) == (verdict is Verdict.TOO_FEW)


def test_a_family_that_no_outcome_could_pass_is_too_small_and_one_by_sweeps_is_not() -> None:
    """Seven blocks reach p = 2 / 128, and for eight tests Holm requires 0.05 / 8."""
    sizes = tuple(8 << power for power in range(8))
    for correction, verdict in (
        (Correction.HOLM, Verdict.TOO_FEW),
        (Correction.BENJAMINI_HOCHBERG, Verdict.WORSE),
    ):
        study = study_of(7, sizes, (Statistic.MEDIAN,))
        study = replace(study, design=replace(study.design, correction=correction))
        costs = {NATIVE.name: 1.0, REGION.name: 2.0}
        drawn = list(trials_of(study, costs=costs))
        summary = summarise(in_memory(study, drawn=drawn))
        assert {each.verdict for each in summary.compared} == {verdict}
        few = [text for text in summary.warnings if "too few for any claim in 8 comp" in text]
        assert bool(few) == (verdict is Verdict.TOO_FEW)


def test_equal_sides_on_a_quiet_host_are_equivalent() -> None:
    study = study_of(12, (8,), (Statistic.MEDIAN,))
    chance = np.random.default_rng(11)
    drawn = [
        latencies(name, block, "latency", {8: np.full(3, 100 * chance.lognormal(0, 0.01))})
        for block in range(12)
        for name in (NATIVE.name, REGION.name)
    ]
    (compared,) = summarise(in_memory(study, drawn=drawn)).compared
    assert compared.verdict is Verdict.EQUIVALENT


def test_only_blocks_that_have_both_sides_are_pairs() -> None:
    study = study_of(9, (8,), (Statistic.MEDIAN,))
    drawn = [
        latencies(name, block, "latency", {8: np.full(3, cost * (1 + block))})
        for block in range(9)
        for name, cost in ((NATIVE.name, 100.0), (REGION.name, 90.0))
        if (name, block) not in {(NATIVE.name, 2), (REGION.name, 5)}
    ]
    (compared,) = summarise(in_memory(study, drawn=drawn)).compared
    assert compared.pairs == 7
    assert compared.ratio is not None
    assert (compared.ratio.low, compared.ratio.high) == pytest.approx((0.9, 0.9))


def test_a_host_that_differs_from_itself_is_said_first() -> None:
    study = replace(SMALL, design=replace(SMALL.design, trials=12))
    costs = {NATIVE.name: 1.0, REGION.name: 1.0}

    def slowed(drawn: Drawn) -> Drawn:
        trial, series = drawn
        if trial.environment != control_name(NATIVE.name):
            return drawn
        return trial, [replace(each, nanoseconds=each.nanoseconds * 2) for each in series]

    quiet = summarise(in_memory(study, costs=costs))
    assert quiet.control is not None
    assert (quiet.control.different, quiet.control.tests) == ((), 2)
    drawn = [slowed(each) for each in trials_of(study, costs=costs)]
    summary = summarise(in_memory(study, drawn=drawn))
    assert summary.control is not None
    assert len(summary.control.different) == 2
    assert summary.control.widest == pytest.approx(0.5, abs=0.05)
    assert summary.warnings[0].startswith("the machine differs from itself: native, latency, 8 B")


def sequential(trials: int, cap: int) -> Study:
    study = study_of(trials, (8,), (Statistic.MEDIAN, Statistic.P99))
    return replace(study, design=replace(study.design, most_trials=cap, precision=0.01))


def test_a_study_that_may_stop_early_claims_by_the_intervals_of_its_looks() -> None:
    """The intervals are those of statistics.stopping for two tests that share alpha."""
    study = sequential(8, 20)
    drawn = [
        latencies(name, block, "latency", {8: np.full(3, cost + block % 5)})
        for block in range(20)
        for name, cost in ((NATIVE.name, 100.0), (REGION.name, 120.0))
    ]
    result = in_memory(study, drawn=drawn)
    result.manifest["ending"] = {
        "blocks": 20,
        "reasons": {"containers-region/native latency 8": "different"},
    }
    summary = summarise(result)
    base = np.array([100.0 + block % 5 for block in range(20)])
    looks = tuple(look for look in even_rule(20, precision=0.01).looks if look >= 8)
    look = watch(Rule(looks, comparisons=2, margin=0.03), base + 20, base)
    assert look is not None
    assert look.trials < 20
    for each in summary.compared:
        assert each.verdict is Verdict.WORSE
        assert each.ratio == look.ratio
        assert (each.p_t, each.p_signed_rank, each.p_corrected) == (None, None, None)
    assert (
        "blocks stopped at their cap of 20 (1 comparison different); the intervals are those of a "
        "study that looked at its data, and there are no p values"
    ) in summary.warnings


def test_a_cap_that_is_too_low_for_any_look_claims_nothing() -> None:
    study = sequential(4, 5)
    drawn = list(trials_of(study, costs={NATIVE.name: 1.0, REGION.name: 2.0}))
    for each in summarise(in_memory(study, drawn=drawn)).compared:
        assert (each.verdict, each.ratio) == (Verdict.TOO_FEW, None)
