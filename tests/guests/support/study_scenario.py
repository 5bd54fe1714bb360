"""Runs a study in two virtual machines, with and without a region, and prints the result."""

import json
import sys
from pathlib import Path

from vicinal.cluster.plan.state import cluster_names
from vicinal.labs.study.file.model import Comparison, Design, Environment, Quantity, Study, Workload
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.running.runner import run_study
from vicinal.labs.study.running.view import Lines
from vicinal.labs.study.workloads.driver import Tools
from vicinal.mpi.environment import MessagePath

VMS = {
    "nodes": [{"name": "vm", "backend": "vm", "count": 2, "memory": "512M"}],
    "region": {"members": 8},
}
ENVIRONMENTS = (
    Environment("network", "by their cards", VMS | {"region": "none"}, path=MessagePath.NETWORK),
    Environment("region", "by a region", VMS),
    # MPI is told to use TCP, whatever the environment says.
    Environment("wrong", "past it", VMS, variables={"FI_PROVIDER": "tcp"}),
)
WORKLOADS = (
    Workload("latency", "", "record", "latency", Quantity.LATENCY, (8,), samples=100, seconds=0.5),
    # The VMs lack its libraries.
    Workload("message", "", "libfabric", "latency", Quantity.LATENCY, (64,)),
)


def main() -> None:
    from rich.console import Console

    folder = Path(sys.argv[1]) / "result"
    study = Study(
        "vms",
        "Vms",
        "?",
        "Vicinal",
        ENVIRONMENTS,
        WORKLOADS,
        Design((Comparison("network", "region"),), trials=1),
    )
    view = Lines(Console(stderr=True))
    outcome = run_study(study, folder, Tools(), resume=False, view=view, seed=1)
    result = open_result(folder)
    found = {
        "lacking": outcome.lacking,
        "clusters": cluster_names(),
        "environments": result.manifest["environments"],
        "trials": {
            each.trial.environment: {
                "failure": each.failure,
                "conditions": each.trial.conditions,
                "samples": [series.samples for series in each.series],
            }
            for each in result.trials
        },
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
