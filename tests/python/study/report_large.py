"""Create the report of a result of ten million samples, and print its cost.

    report_large.py FOLDER [--calls]

With --calls the program counts calls of VFs, which takes longer. The time is only the
processor time of this process from its start, because others may use the same cores. The samples
are random; another process draws and writes them.
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from study_results import LATENCY, NATIVE, NETWORK, STARTED, manifest_of
from work_count import calls_of

from vicinal.labs.report.making import make_report
from vicinal.labs.study.file.model import Comparison, Design, Study
from vicinal.labs.study.result.layout import Trial
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.writing import ResultWriter

TOTAL = 10_000_000
TRIALS = 10
SIZES = (8, 1024)


def write(folder: Path) -> None:
    """Write a result with that many samples: two environments and sizes, ten trials of each."""
    workload = replace(LATENCY, sizes=SIZES)
    study = Study(
        "large",
        "Ten million samples",
        "Is it quick?",
        "simulated",
        (NATIVE, NETWORK),
        (workload,),
        Design((Comparison(NATIVE.name, NETWORK.name),), trials=TRIALS),
    )
    count = TOTAL // (TRIALS * len(SIZES) * len(study.environments))
    chance = np.random.default_rng(1)
    with ResultWriter.create(folder, manifest_of(study)) as writer:
        for block in range(TRIALS):
            for index, environment in enumerate(study.environments):
                series = [
                    Series(size, 0, 2, chance.lognormal(6.5 + index, 0.3, count).astype(np.int64))
                    for size in SIZES
                ]
                trial = Trial(environment.name, workload.name, block, STARTED, 1)
                writer.add(trial, series)


def measure(folder: Path) -> dict[str, float]:
    trials = open_result(folder).trials
    samples = sum(facts.samples for trial in trials for facts in trial.series)
    began = time.monotonic()
    page = make_report([folder], folder / "report").page
    return {
        "samples": samples,
        "page_bytes": page.stat().st_size,
        "seconds": time.process_time(),
        "wall_seconds": time.monotonic() - began,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if "--write" in sys.argv:
        write(where)
    else:
        subprocess.run([sys.executable, __file__, where, "--write"], check=True)
        found: dict[str, float] = {}
        run = partial(lambda folder: found.update(measure(folder)), where)
        if "--calls" in sys.argv:
            found["calls"] = calls_of(run)
        else:
            run()
        print(json.dumps(found))
