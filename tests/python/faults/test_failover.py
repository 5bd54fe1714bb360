"""A region that is overwritten or cut while ranks in isolated nodes use it: they continue over tcp.

Operations in progress end in an error. Later messages between the ranks arrive once and in order,
and no rank is restarted.
"""

import os
import re
import shlex
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from launch_support import GUARD_SECONDS, scribble
from libfabric_support import library_directory

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE, REMOTE_SHELL
from vicinal.mpi.environment import provider_directory

RANKS = 3
SECONDS = 4.0
"""Ranks run at least this long. Nonsense is written for a part of this time, once they talk."""
LONGEST = 60_000
ENDLESS = 10**9
PARTS = ("members", "tables", "cut")
"""Parts that forge messages are left out, because the expected messages would then be unknown."""
LINE = re.compile(r"^peer (\d+) sent (\d+) received (\d+) (\d+) later (\d+)$", re.M)


def start(
    cluster: EphemeralCluster, directory: Path, checkout: Path, rank: int
) -> list[str | Path]:
    variables = {
        "VICINAL_REGION": f"file:{EXCHANGE}/region",
        "VICINAL_RANK": str(rank),
        "FI_PROVIDER_PATH": str(provider_directory()),
        "LD_LIBRARY_PATH": str(library_directory("mpich")),
    }
    program = checkout / "build/release/tests/api/traffic"
    values = [directory, rank, RANKS, ENDLESS, ENDLESS, LONGEST, 7, SECONDS]
    own = ["env", *(f"{name}={text}" for name, text in variables.items())]
    command = shlex.join([*own, str(program), *map(str, values)])
    return [*cluster.head_command([REMOTE_SHELL, f"node{rank}", command], Path("/"))]


@pytest.mark.parametrize(
    "part",
    [pytest.param(each, marks=() if each == "cut" else pytest.mark.long) for each in PARTS],
)
def test_ranks_go_on_over_the_network(checkout: Path, tmp_path: Path, part: str) -> None:
    with EphemeralCluster(nodes=RANKS) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        file = cluster.exchange / "region"
        region.create(file, members=8)
        processes = [
            subprocess.Popen(
                start(cluster, tmp_path, checkout, rank),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=dict(os.environ),
            )
            for rank in range(RANKS)
        ]
        try:
            deadline = time.monotonic() + GUARD_SECONDS
            while len(list(tmp_path.glob("talks.*"))) < RANKS:
                assert time.monotonic() < deadline, "not all ranks talk"
                time.sleep(0.01)
            scribble(checkout / "build/release", file, part)
            said = [process.communicate(timeout=GUARD_SECONDS) for process in processes]
        finally:
            for process in processes:
                with suppress(psutil.Error):
                    for started in psutil.Process(process.pid).children(recursive=True):
                        started.kill()
                process.kill()
    assert [process.returncode for process in processes] == [0] * RANKS, said
    failed = 0
    for rank, (output, errors) in enumerate(said):
        assert errors == ""
        rows = [tuple(map(int, row)) for row in LINE.findall(output)]
        assert [peer for peer, *_ in rows] == [peer for peer in range(RANKS) if peer != rank]
        for peer, sent, received, error, later in rows:
            print(f"{rank} from {peer}: {received} of some {sent}, error {error}, {later} after it")
            failed += error != 0
            assert (later if error else received) > 100
    # Nonsense in a table may be overwritten before a rank reads it.
    least = {"members": 1, "tables": 0, "cut": RANKS * (RANKS - 1)}
    assert failed >= least[part]
