"""Checks the names in a study file: unique, and known to comparisons and published figures."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.base.wording import nearest
from vicinal.base.yaml import line_of
from vicinal.labs.study.file.model import Published, Quantity, Statistic, Study, Workload
from vicinal.labs.study.file.reading_sizes import read_size, show, show_all

RATIO, P_VALUE = "ratio", "p"
"""Units of a comparison's figures."""

_SIGNS = {"<": "less than", ">": "more than", "~": "about"}


def read_published(path: Path, values: Mapping[str, Any], study: Study, faults: Faults) -> Study:
    """Return the study with its published figures, after checking all names.

    Collects errors, with the line, for names that the study does not define.
    """
    faults.extend(_check_stand_ins(path, values["environments"], "environment"))
    faults.extend(_check_stand_ins(path, values["workloads"], "workload"))
    names = faults.attempt(lambda: [str(each["name"]) for each in values["environments"]])
    design = values["design"]
    for each in faults.attempt(lambda: list(design["comparisons"]), otherwise=[]):
        for side in ("base", "test"):
            faults.attempt(_check_environment, path, each, side, names)
        faults.attempt(_check_pair, path, each)
    if faults.attempt(lambda: "control" in design, otherwise=False):
        faults.attempt(_check_environment, path, design, "control", names)
    figures: list[Published] = []
    for each in faults.attempt(lambda: list(values.get("published", ())), otherwise=[]):
        found: list[Published] = faults.attempt(_figures, path, each, study, names, otherwise=[])
        figures += found
    return replace(study, published=tuple(figures))


def _check_environment(path: Path, values: Any, key: str, names: list[str]) -> None:
    """Raise VicinalError for an environment that the study does not define."""
    check_known(line_of(path, values, key), "environment", values[key], names)


def _check_pair(path: Path, pair: Any) -> None:
    if pair["base"] == pair["test"]:
        raise VicinalError(
            f"{line_of(path, pair, 'test')}: {pair['test']} is compared with itself",
            "name two environments; the control compares an environment with itself",
        )


def _check_stand_ins(path: Path, parts: Any, what: str) -> Iterator[VicinalError]:
    stands_for = {each["name"]: each.get("stands_for") for each in parts}
    for each in parts:
        other = stands_for[each["name"]]
        if other is None:
            continue
        position = line_of(path, each, "stands_for")
        if other not in stands_for:
            yield unknown_name(position, what, other, stands_for)
        elif stands_for[other] is not None:
            yield VicinalError(
                f"{position}: {each['name']} stands for {other}, which itself stands for another",
                "name the part that stands for no other",
            )


def _figures(
    path: Path, group: Mapping[str, Any], study: Study, names: list[str]
) -> list[Published]:
    """One figure, or one for each size."""
    return list(_each_figure(path, group, study, names))


def _each_figure(
    path: Path, group: Mapping[str, Any], study: Study, names: list[str]
) -> Iterator[Published]:
    position = line_of(path, group, "workload")
    check_known(position, "workload", group["workload"], (each.name for each in study.workloads))
    workload = study.workload(group["workload"])
    quantity = Quantity(group.get("quantity", workload.quantity))
    environment, comparison = _whose(path, group, names)
    unit = group.get("unit", quantity.unit if comparison is None else RATIO)
    if unit is None:
        raise VicinalError(
            f"{position}: figures of {quantity.value} have no default unit",
            "name the unit, such as unit: GFLOPS",
        )
    if comparison is not None and unit not in (RATIO, P_VALUE):
        raise VicinalError(
            f"{line_of(path, group, 'unit')}: a comparison's figure cannot be in {unit}",
            f"choose {RATIO} or {P_VALUE}",
        )
    for size, given, where in _values(path, group, workload):
        value, sign = _number(where, given)
        note = str(group.get("note", ""))
        yield Published(
            source=str(group.get("source", study.source)),
            workload=workload.name,
            quantity=quantity,
            value=value,
            unit=str(unit),
            environment=environment,
            comparison=comparison,
            size=size,
            statistic=Statistic(group.get("statistic", Statistic.MEAN)),
            note="; ".join(filter(None, (sign, note))),
        )


def _whose(
    path: Path, group: Mapping[str, Any], names: list[str]
) -> tuple[str | None, tuple[str, str] | None]:
    """The environment of a figure, or the two environments that it compares."""
    if ("environment" in group) == ("comparison" in group):
        raise VicinalError(
            f"{line_of(path, group, 'workload')}: a published figure needs either an environment "
            "or a comparison of two",
            "give one of the keys environment and comparison",
        )
    if "environment" in group:
        environment = str(group["environment"])
        check_known(line_of(path, group, "environment"), "environment", environment, names)
        return environment, None
    base, test = map(str, group["comparison"])
    for name in (base, test):
        check_known(line_of(path, group, "comparison"), "environment", name, names)
    return None, (base, test)


def _values(
    path: Path, group: Mapping[str, Any], workload: Workload
) -> Iterator[tuple[int | None, Any, str]]:
    """Yield the size, the value and the line of each figure."""
    here = line_of(path, group, "workload")
    if ("value" in group) == ("values" in group):
        raise VicinalError(
            f"{here}: a published figure needs either a value or several values by size",
            "give one of the keys value and values",
        )
    if "values" in group and "size" in group:
        raise VicinalError(
            f"{line_of(path, group, 'size')}: values already name their sizes", "leave out size"
        )
    if "value" in group:
        size = read_size(line_of(path, group, "size"), group["size"]) if "size" in group else None
        found = [(size, group["value"], line_of(path, group, "value"))]
    else:
        given = group["values"]
        found = []
        for key in given:
            where = line_of(path, group, "values")
            found.append((read_size(where, key), given[key], where))
    for size, _, where in found:
        if size is None and workload.sizes and "comparison" not in group:
            raise VicinalError(
                f"{where}: {workload.name} has sizes, but this figure has none", "give its size"
            )
        if size is not None and size not in workload.sizes:
            has = show_all(workload.sizes) or "none"
            raise VicinalError(
                f"{where}: {workload.name} has no size {show(size)}",
                f"add it to the workload's sizes, which are {has}",
            )
    yield from found


def _number(position: str, given: Any) -> tuple[float, str]:
    """The value, and the words for its sign."""
    text = str(given)
    sign = _SIGNS.get(text[:1], "")
    value = float(text[1:] if sign else text)
    if not math.isfinite(value):
        raise VicinalError(f"{position}: {text} is not a finite number", "give a number")
    return value, sign


def check_names(path: Path, parts: Any) -> Iterator[VicinalError]:
    """Errors, with the line, for two environments or workloads with the same name."""
    seen = set()
    for each in parts:
        if each["name"] in seen:
            yield VicinalError(
                f"{line_of(path, each, 'name')}: the name {each['name']} is given twice",
                "give each its own name",
            )
        seen.add(each["name"])


def check_known(position: str, what: str, name: str, known: Iterable[str]) -> None:
    """Raise VicinalError for a name that the study does not define."""
    names = list(known)
    if name not in names:
        raise unknown_name(position, what, name, names)


def unknown_name(position: str, what: str, name: str, known: Iterable[str]) -> VicinalError:
    """The error for a name that the study does not define."""
    return VicinalError(f"{position}: there is no {what} {name}", nearest(name, known))
