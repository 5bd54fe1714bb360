"""The manifest of a result: under which conditions it came about."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from vicinal.labs.provenance import (
    describe_hypervisor,
    describe_machine,
    describe_network,
    describe_variables,
    describe_versions,
)
from vicinal.labs.study.result.layout import SCHEMA, UNITS
from vicinal.mpi.libraries import Mpi


def now() -> str:
    """UTC, as results have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_manifest(study: dict[str, Any], mpis: Sequence[Mpi], *, seed: int) -> dict[str, Any]:
    """Describe this machine as it is now, for a study that begins.

    `study` is the study as it is run, with its `name`: design, environments, workloads, and what
    was adapted to this machine.
    """
    machine = describe_machine()
    return {
        "schema": SCHEMA,
        "study": study,
        "created": now(),
        "seed": seed,
        "machine": machine | {"network": describe_network(), "hypervisor": describe_hypervisor()},
        "versions": describe_versions(list(mpis)),
        "variables": describe_variables(),
        "units": UNITS,
    }
