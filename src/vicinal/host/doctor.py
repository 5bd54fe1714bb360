"""Runs checks on a host, and makes a document of what they found."""

import difflib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jsonschema

import vicinal
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.host.finding import Check, Finding, Status, failed, warned
from vicinal.host.system import Host

FORMAT = "vicinal-doctor-1"


@dataclass(frozen=True)
class Examined:
    """A check and what it found."""

    check: Check
    findings: tuple[Finding, ...]


def choose_checks(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """Those of these names, in the order of `checks`; all without names.

    Raises VicinalError for a name that no check has.
    """
    known = [check.name for check in checks]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise VicinalError(
                f"there is no check {name!r}", f"{hint}`vicinal doctor --list` shows all"
            )
    return [check for check in checks if not names or check.name in names]


def examine(host: Host, checks: Sequence[Check]) -> Iterator[Examined]:
    """Run checks one after the other; one that cannot go on says so, and the others follow."""
    for check in checks:
        yield Examined(check, tuple(_findings(host, check)))


def _findings(host: Host, check: Check) -> Iterator[Finding]:
    try:
        yield from check.examine(host)
    except VicinalError as error:
        yield failed(error.message, error.remedy)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        yield warned(
            f"this could not be found out: {place}{describe_os_error(error)}", "try it as root"
        )


def count(examined: Sequence[Examined]) -> dict[Status, int]:
    """How many findings there are of each status."""
    counts = Counter(finding.status for each in examined for finding in each.findings)
    return {status: counts[status] for status in Status}


def document(examined: Sequence[Examined]) -> dict[str, Any]:
    """All of it as data, in the form of schema/doctor.json, which it was checked against."""
    result = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "vicinal": vicinal.__version__,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "summary": {status.value: number for status, number in count(examined).items()},
        "checks": [
            {
                "name": each.check.name,
                "title": each.check.title,
                "findings": [
                    {
                        "status": finding.status.value,
                        "text": finding.text,
                        "remedy": finding.remedy,
                        "facts": dict(finding.facts),
                    }
                    for finding in each.findings
                ],
            }
            for each in examined
        ],
    }
    jsonschema.Draft202012Validator(load_schema()).validate(result)
    return result


def load_schema() -> dict[str, Any]:
    """The JSON schema of document()."""
    schema: dict[str, Any] = json.loads(
        (resources.files("vicinal.host") / "schema" / "doctor.json").read_text()
    )
    return schema
