"""A region with a job, and the command `vicinal metrics --listen`, for tests of metrics."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch_support import package_path
from written_region import WrittenRegion

from vicinal.region.states import Route


def written(path: Path) -> WrittenRegion:
    region = WrittenRegion(path, label='a "solver"\\')
    done = {"collectives": 5, "collective_bytes": 40, "one_sided": 2, "one_sided_bytes": 16}
    region.join(0, rank=0, liveness=0, **done)  # nobody waits for a sign of life of this kind
    region.join(1, rank=1, liveness=0, sleeping=17)
    region.join(2, rank=2, liveness=0)
    region.condemn(2)
    region.connect(0, 1, messages=10, bytes=1000)
    region.connect(1, 0, id=0, messages=4, bytes=40, route=Route.NETWORK)
    region.beyond(1, 0, messages=3, bytes=30)
    return region


@contextmanager
def served(address: str, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yields the URL at which the command serves, and its process."""
    with subprocess.Popen(
        [sys.executable, "-m", "vicinal", "metrics", "--listen", address, *words],
        env=os.environ | {"PYTHONPATH": package_path()},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert said.startswith("vicinal: metrics at http://"), said
            yield said.split()[-1], process
        finally:
            process.kill()
