"""Several results of one study beside each other: do they say the same?"""

from collections.abc import Sequence

from vicinal.labs.report import numbers
from vicinal.labs.report.content import Part
from vicinal.labs.report.glance import representative
from vicinal.labs.report.tables import Column, Table
from vicinal.labs.study.analysis.summary import Compared


def across(parts: Sequence[Part]) -> list[Table]:
    """A table for each comparison: workloads in rows, results in columns."""
    comparisons = dict.fromkeys(
        (each.base, each.test) for part in parts for each in part.summary.study.design.comparisons
    )
    tables = [_table(parts, base, test) for base, test in comparisons]
    return [table for table in tables if table.rows]


def _table(parts: Sequence[Part], base: str, test: str) -> Table:
    titles = {each.name: each.title for part in parts for each in part.summary.study.environments}
    rows = []
    workloads = {each.name: each for part in parts for each in part.summary.study.workloads}
    for workload in workloads.values():
        found = [
            {
                each.size: each
                for each in part.summary.compared
                if (each.comparison.base, each.comparison.test) == (base, test)
                and each.workload == workload.name
                and each.statistic == workload.statistics[0]
            }
            for part in parts
        ]
        everything = [each for of_part in found for each in of_part.values()]
        if everything:
            rows += [
                (workload.title, numbers.size(size), *(_cell(each.get(size)) for each in found))
                for size in representative(everything)
            ]
    return Table(
        f"{titles[test]} beside {titles[base]}: base → test, ratio with its interval, verdict",
        (
            Column("Workload", number=False),
            Column("Size"),
            *(Column(part.source.name, number=False) for part in parts),
        ),
        tuple(rows),
    )


def _cell(compared: Compared | None) -> str:
    if compared is None:
        return "–"
    ratio = "" if compared.ratio is None else f"; {numbers.estimated(compared.ratio)}"
    return (
        f"{numbers.number(compared.base.value)} → "
        f"{numbers.with_unit(compared.test.value, compared.unit)}{ratio}; {compared.verdict}"
    )
