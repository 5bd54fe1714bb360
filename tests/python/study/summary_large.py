"""Summarise results of ten million samples, and print the cost.

    summary_large.py write FOLDER CELLS     a result of two environments and CELLS sizes
    summary_large.py summarise FOLDER       in a separate process, because its memory is measured

The time is only the processor time of this process, because others may use the same cores.
"""

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from study_results import CONDITIONS, NATIVE, REGION, SMALL, STARTED, manifest_of

from vicinal.labs.study.analysis.as_json import summary_to_json
from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.result.layout import Trial
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.writing import ResultWriter

TOTAL = 10_000_000
BLOCKS = 8


def write(folder: Path, sizes: int) -> None:
    chance = np.random.default_rng(1)
    names = [NATIVE.name, REGION.name]
    samples = TOTAL // (BLOCKS * len(names) * sizes)
    workload = replace(
        SMALL.workloads[0], sizes=tuple(8 * (1 + index) for index in range(sizes)), samples=samples
    )
    study = replace(SMALL, workloads=(workload,))
    study = replace(study, design=replace(study.design, trials=BLOCKS, control=None))
    with ResultWriter.create(folder, manifest_of(study)) as writer:
        for block in range(BLOCKS):
            for name in names:
                series = [
                    Series(size, 0, 2, chance.lognormal(6.5, 0.3, samples).astype(np.int64))
                    for size in workload.sizes
                ]
                writer.add(Trial(name, workload.name, block, STARTED, 1.0, CONDITIONS), series)


def measure(folder: Path) -> dict[str, float]:
    began = time.process_time(), time.monotonic()
    summary = summarise(open_result(folder))
    text = json.dumps(summary_to_json(summary))
    return {
        "samples": sum(cell.pooled.count for cell in summary.cells if cell.pooled),
        "comparisons": len(summary.compared),
        "seconds": time.process_time() - began[0],
        "wall_seconds": time.monotonic() - began[1],
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "summary_bytes": len(text),
    }


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        print(json.dumps(measure(Path(sys.argv[2]))))
