"""Ranks with the same names and numbers: only their regions' memory tells them apart.

A cloned virtual machine has the host name, machine id and process numbers of its original. If it
was cloned with its memory, it also has a copy of the region with the same id.
"""

import json
import shutil

import pytest
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS, MPIS, in_regions

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import launch
from vicinal.mpi.job import Job
from vicinal.mpi.traffic import pair_traffic

ORIGINAL, CLONE = "original", "clone"
PRETEND = 'hostname same && echo "$(uname -n) $$" >&2; '


@pytest.mark.parametrize("mpi", MPIS)
def test_a_clone_is_told_from_its_original(mpi: str) -> None:
    program = CHECKOUT / "build/programs" / mpi / "verify"
    with EphemeralCluster(nodes=2) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        original, clone = (cluster.exchange / name for name in (ORIGINAL, CLONE))
        made = region.create(original, members=8)
        shutil.copyfile(original, clone)
        clone.chmod(0o600)
        regions = [f"file:{EXCHANGE}/{name}" for name in (ORIGINAL, CLONE)]
        command = in_regions(
            dict(zip(("node0", "node1"), regions, strict=True)),
            [str(program), "--max-size", "300000"],
            before=PRETEND,
        )
        job = Job(command, 2, mpi=mpi, region=regions[0])
        result = launch(job, cluster, timeout=GUARD_SECONDS)
        states = [region.inspect(path) for path in (original, clone)]
    assert result.returncode == 0, result.stdout + result.stderr
    assert made.id == states[0].header.id == states[1].header.id
    # Name, process number and member slot are the same. Only the memory differs.
    names = [line for line in result.stderr.splitlines() if line.startswith("same ")]
    assert len(names) == 2
    assert len({*names}) == 1, names
    (one, *_), (other, *_) = (state.members for state in states)
    assert (one.slot, one.epoch, one.pid) == (other.slot, other.epoch, other.pid)
    assert (one.rank, other.rank) == (0, 1)
    assert one.nonce != other.nonce
    # All messages went over the network, and arrived.
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(checks) > 10
    assert not [each for each in checks if each["errors"]]
    for state in states:
        assert not [pair for pair in pair_traffic(state) if pair.sender != pair.receiver]
