"""The manifest of a result: the conditions under which it was measured."""

from collections.abc import Sequence
from typing import Any

from vicinal.labs.provenance import (
    describe_hypervisor,
    describe_network,
    describe_origin,
    describe_variables,
)
from vicinal.labs.study.result.layout import SCHEMA, UNITS
from vicinal.mpi.libraries import Mpi


def make_manifest(study: dict[str, Any], mpis: Sequence[Mpi], *, seed: int) -> dict[str, Any]:
    """Describe this machine as it is now, for a study that begins.

    `study` is the adapted study, with its `name`: design, environments, workloads and adaptations.
    """
    origin = describe_origin(mpis)
    origin["host"] |= {"network": describe_network(), "hypervisor": describe_hypervisor()}
    return {
        "schema": SCHEMA,
        "study": study,
        "seed": seed,
        **origin,
        "variables": describe_variables(),
        "units": UNITS,
    }
