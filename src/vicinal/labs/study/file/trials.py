"""Checks whether a study has enough trials for its questions."""

from vicinal.labs.statistics.least_pairs import signed_rank_pairs
from vicinal.labs.study.file.model import Correction, Study


def count_tests(study: Study) -> int:
    """The number of tests: each comparison in each workload, size and statistic."""
    cells = sum(
        max(len(each.sizes), 1) * len(each.statistics)
        for each in study.workloads
        if each.name not in study.unavailable
    )
    return len(study.design.comparisons) * cells


def trials_needed(study: Study) -> int:
    """The least number of trials with which the study can make a claim; 0 for a study without
    tests.

    Wilcoxon's test of n pairs has no p value below 2/2^n. Holm's correction multiplies the smallest
    of m p values by m. With Benjamini and Hochberg's correction, all p values together may be as
    large as alpha.
    """
    tests = count_tests(study)
    if tests == 0:
        return 0
    design = study.design
    share = tests if design.correction is Correction.HOLM else 1
    return signed_rank_pairs(design.alpha / share)


def warnings_of(study: Study) -> tuple[str, ...]:
    """Warnings that a user should read before running the study, as sentences."""
    design, needed = study.design, trials_needed(study)
    most = design.most_trials or design.trials
    if most >= needed:
        return ()
    tests = count_tests(study)
    several = f" each of {tests} tests" if tests > 1 else " its test"
    corrected = f", with {design.correction.value}'s correction," if tests > 1 else ""
    return (
        f"{most} trials are too few:{several}{corrected} needs at least {needed} to reach "
        f"{design.alpha:g}. The report will show values but claim nothing.",
    )
