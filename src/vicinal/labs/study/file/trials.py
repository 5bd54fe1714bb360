"""Whether a study has trials enough for what it asks."""

from vicinal.labs.statistics.least_pairs import signed_rank_pairs
from vicinal.labs.study.file.model import Correction, Study


def count_tests(study: Study) -> int:
    """How many tests it makes: each comparison in each workload, size and statistic."""
    cells = sum(
        max(len(each.sizes), 1) * len(each.statistics)
        for each in study.workloads
        if each.name not in study.unavailable
    )
    return len(study.design.comparisons) * cells


def trials_needed(study: Study) -> int:
    """The least number of trials with which it can claim anything; 0 where it makes no tests.

    Wilcoxon's test of n pairs has no p value below 2/2^n. By Holm's correction the smallest one
    of m counts m times; by Benjamini and Hochberg's all of them may be as large as alpha together.
    """
    tests = count_tests(study)
    if tests == 0:
        return 0
    design = study.design
    share = tests if design.correction is Correction.HOLM else 1
    return signed_rank_pairs(design.alpha / share)


def warnings_of(study: Study) -> tuple[str, ...]:
    """What its reader should know before it is run, in sentences."""
    design, needed = study.design, trials_needed(study)
    most = design.most_trials or design.trials
    if most >= needed:
        return ()
    tests = count_tests(study)
    several = f" each of {tests} tests" if tests > 1 else " its test"
    corrected = f", with {design.correction.value}'s correction," if tests > 1 else ""
    return (
        f"{most} trials are too few:{several}{corrected} takes {needed} at least to reach "
        f"{design.alpha:g}. Figures will be shown, and no claims.",
    )
