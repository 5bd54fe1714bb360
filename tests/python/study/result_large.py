"""Write ten million samples to a result, read and reduce them, and print the cost.

    result_large.py FOLDER SERIES [--calls]

With --calls the program counts calls of VFs, which takes longer. The time is only the
processor time of this process, because others may use the same cores.
"""

import json
import resource
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from work_count import calls_of

from vicinal.labs.provenance import now
from vicinal.labs.study.result.layout import Trial, samples_file
from vicinal.labs.study.result.manifest import make_manifest
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.writing import ResultWriter

TOTAL = 10_000_000
PERCENTILES = [0, 50, 90, 95, 99, 99.9, 100]


def measure(folder: Path, count: int) -> dict[str, float]:
    chance = np.random.default_rng(1)
    series = [
        Series(8 * (1 + number), 0, 2, chance.lognormal(6.5, 0.3, TOTAL // count).astype(np.int64))
        for number in range(count)
    ]
    manifest = make_manifest({"name": "large"}, [], seed=1)
    began = time.process_time(), time.monotonic()
    with ResultWriter.create(folder, manifest) as writer:
        writer.add(Trial("native", "latency", 0, now(), 1.0), series)
    wrote = time.process_time()
    result = open_result(folder)
    samples = 0
    for each in result.series(result.trials[0]):
        np.percentile(each.nanoseconds, PERCENTILES)
        samples += len(each.nanoseconds)
    return {
        "samples": samples,
        "seconds": time.process_time() - began[0],
        "writing_seconds": wrote - began[0],
        "wall_seconds": time.monotonic() - began[1],
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "disk_bytes": samples_file(folder, 1).stat().st_size,
    }


if __name__ == "__main__":
    found: dict[str, float] = {}
    run = partial(lambda *given: found.update(measure(*given)), Path(sys.argv[1]), int(sys.argv[2]))
    if "--calls" in sys.argv:
        found["calls"] = calls_of(run)
    else:
        run()
    print(json.dumps(found))
