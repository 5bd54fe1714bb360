"""Running clusters of containers: isolation of nodes, limits of nodes, and MPI jobs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checks.leftovers import new_shared_path
from container_support import (
    GUARD_SECONDS,
    both,
    installed,
    run,
)
from launch_support import ONE_MPI, REGION, check_reports, package_path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import ContainerCluster, cluster_names, remove_cluster
from vicinal.cluster.nodes.container.jobs import check_seen
from vicinal.cluster.nodes.container.spec import Bind, ContainerSpec, RegionFile
from vicinal.launch.running import launch
from vicinal.mpi.job import Job
from vicinal.mpi.traffic import job_traffic
from vicinal.region import create, inspect

LIMIT = 64 << 20


@pytest.fixture(scope="module", params=[installed("crun"), installed("bubblewrap")])
def cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    programs: dict[str, Path],
) -> Iterator[ContainerCluster]:
    base = tmp_path_factory.mktemp("containers")
    shown = programs["mpich"].parent
    region = new_shared_path()
    name = f"lab{os.getpid()}"
    create(region, members=4)
    try:
        made, new = ContainerCluster.create(name, base)
        assert new
        for number, more in enumerate(({}, {"cpus": (0,), "memory": LIMIT})):
            wanted = ContainerSpec(
                cluster=name,
                name=f"node{number}",
                binds=(Bind(str(shown), str(shown)),),
                regions=(RegionFile(str(region)),),
                **more,  # type: ignore[arg-type]
            )
            assert made.create_node(wanted, request.param)
        yield made
    finally:
        region.unlink()
        remove_cluster(name, base)


def test_every_node_has_namespaces_of_its_own(cluster: ContainerCluster) -> None:
    kinds = ("uts", "ipc", "pid", "mnt", "net")
    command = ["readlink", *(f"/proc/self/ns/{kind}" for kind in kinds)]
    theirs = [said.split() for said in both(cluster, *command)]
    for number, kind in enumerate(kinds):
        ours = str(Path(f"/proc/self/ns/{kind}").readlink())
        assert len({ours, theirs[0][number], theirs[1][number]}) == 3


def test_nodes_know_their_names_and_each_other(cluster: ContainerCluster) -> None:
    assert both(cluster, "hostname") == ["node0", "node1"]
    assert both(cluster, "cat", "/etc/hostname") == ["node0", "node1"]
    assert both(cluster, "getent", "hosts", "node1")[0].split() == ["10.0.0.2", "node1"]
    assert [node.address for node in cluster.nodes] == ["10.0.0.1", "10.0.0.2"]


def test_nodes_reach_each_other(cluster: ContainerCluster) -> None:
    serve = "import socket; s = socket.create_server(('', 7000)); print(s.accept()[1][0])"
    call = (
        "import socket, time\n"
        "for attempt in range(500):\n"
        "    try:\n"
        "        socket.create_connection(('node0', 7000)); break\n"
        "    except ConnectionRefusedError:\n"
        "        time.sleep(0.02)\n"
    )
    server = subprocess.Popen(
        cluster.exec_command("node0", [sys.executable, "-c", serve]), stdout=subprocess.PIPE
    )
    run(cluster, "node1", sys.executable, "-c", call)
    assert server.communicate(timeout=GUARD_SECONDS)[0] == b"10.0.0.2\n"


def test_files_of_nodes_are_their_own_and_those_of_the_root_stay(cluster: ContainerCluster) -> None:
    own = ("/tmp", "/dev/shm", "/run")
    run(cluster, "node0", "touch", *(f"{directory}/of-node0" for directory in own))
    assert "of-node0" not in run(cluster, "node1", "ls", *own)
    assert run(cluster, "node0", "ls", *own).count("of-node0") == 3
    assert not any(Path(directory, "of-node0").exists() for directory in own)
    done = subprocess.run(
        cluster.exec_command(
            "node0", ["touch", *(f"{d}/vicinal-test" for d in ("", "/usr", "/etc"))]
        ),
        capture_output=True,
        check=False,
    )
    assert done.stderr.count(b"Read-only file system") == 3


def test_a_command_has_its_input_status_variables_and_directory(
    cluster: ContainerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREETING", "two words\nand lines")
    said = run(
        *(cluster, "node0", "sh", "-c", 'cat; echo "$GREETING"; pwd', "a b"),
        stdin="given\n",
        directory="/usr/lib",
    )
    assert said == "given\ntwo words\nand lines\n/usr/lib"
    for status, command in ((7, "exit 7"), (137, "kill -KILL $$")):
        done = subprocess.run(cluster.exec_command("node1", ["sh", "-c", command]), check=False)
        assert done.returncode in (status, 128 - status)  # nsenter ends itself by the same signal


def test_limits_hold(cluster: ContainerCluster) -> None:
    count = "import os; print(len(os.sched_getaffinity(0)))"
    usable = str(len(os.sched_getaffinity(0)))
    assert both(cluster, sys.executable, "-c", count) == [usable, "1"]
    too_much = f"x = bytearray({2 * LIMIT}); print('had it')"
    assert run(cluster, "node0", sys.executable, "-c", too_much) == "had it"
    if any("memory is not limited" in phrase for phrase in cluster.limitations):
        pytest.skip(str(cluster.limitations))
    done = subprocess.run(
        cluster.exec_command("node1", [sys.executable, "-c", too_much]),
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode in (137, -signal.SIGKILL)
    assert done.stdout == b""
    assert both(cluster, "hostname") == ["node0", "node1"]


def test_a_region_of_the_host_is_the_same_in_every_node(cluster: ContainerCluster) -> None:
    sizes = both(cluster, "sha256sum", "/run/vicinal/region")
    assert sizes[0] == sizes[1]
    region = next(iter(cluster.containers())).spec.regions[0].path
    given = subprocess.run(["sha256sum", region], capture_output=True, text=True, check=True)
    assert sizes[0].split()[0] == given.stdout.split()[0]
    assert inspect(Path(region)).header.members == 4


def test_other_processes_find_the_cluster(cluster: ContainerCluster) -> None:
    base, name = cluster.state_directory.parent, cluster.state_directory.name
    script = (
        "import sys, subprocess; from pathlib import Path\n"
        "from vicinal.cluster.nodes.container.cluster import ContainerCluster\n"
        "cluster = ContainerCluster.open(sys.argv[1], Path(sys.argv[2]))\n"
        "sys.exit(subprocess.call(cluster.exec_command('node1', ['hostname'])))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, name, base],
        env=os.environ | {"PYTHONPATH": package_path()},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert said.stdout == "node1\n"
    assert cluster_names(base) == [name]


@pytest.mark.parametrize("path", [REGION])
@pytest.mark.parametrize("mpi", ONE_MPI)
def test_jobs_go_through_a_region(
    cluster: ContainerCluster, programs: dict[str, Path], mpi: str, path: str
) -> None:
    job = Job(program=[str(programs[mpi]), "report"], ranks=3, path=path, directory=Path("/"))
    done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert done.returncode == 0, done.stderr
    check_reports(done.stdout, ["node0", "node0", "node1"])
    assert done.region is not None
    pairs = job_traffic(done.region).pairs
    assert {pair.path for pair in pairs} == {"region"}
    assert {(pair.sender, pair.receiver) for pair in pairs} >= {(0, 2), (2, 0)}
    assert cluster.processes() == []
    assert not list(cluster.exchange.glob("region-*"))


def test_clear_ends_this_cluster_object_s_jobs_and_no_others(cluster: ContainerCluster) -> None:
    other = ContainerCluster.open(cluster.state_directory.name, cluster.state_directory.parent)
    jobs = [
        subprocess.Popen(
            each.head_command(["/run/vicinal/remote-shell", "node0", "echo up; sleep 1000"]),
            stdout=subprocess.PIPE,
        )
        for each in (cluster, other)
    ]
    for job in jobs:
        assert job.stdout is not None
        assert job.stdout.readline() == b"up\n"
    assert len(cluster.processes("node0")) >= 1
    assert cluster.processes("node1") == []
    cluster.clear()
    jobs[0].communicate(timeout=GUARD_SECONDS)
    assert jobs[1].poll() is None
    other.clear()
    jobs[1].communicate(timeout=GUARD_SECONDS)


@pytest.mark.parametrize("runtime", [installed("crun"), installed("bubblewrap")])
def test_the_tree_that_vicinal_runs_from_is_seen_below_tmp_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    """A checkout below the host's /tmp is visible in nodes, read-only. The test uses a stand-in."""
    tree = tmp_path / "vicinal"
    tree.mkdir()
    program = tree / "program"
    program.write_text('#!/bin/sh\necho seen\ntouch /tmp/own\ntouch "$0" || exit 3\n')
    program.chmod(0o755)
    name = f"below{os.getpid()}"
    monkeypatch.setattr("vicinal.cluster.nodes.container.root.own_trees", lambda: [tree])
    try:
        made, _ = ContainerCluster.create(name, tmp_path / "state")
        made.create_node(ContainerSpec(cluster=name, name="node0"), runtime)
        check_seen(Job(program=[str(program)], ranks=1, directory=tree), made)
        done = subprocess.run(
            made.exec_command("node0", [str(program)]), capture_output=True, text=True, check=False
        )
        with pytest.raises(VicinalError, match="the nodes cannot see"):
            check_seen(Job(program=[str(program)], ranks=1, directory=tmp_path), made)
    finally:
        remove_cluster(name, tmp_path / "state")
    assert done.stdout == "seen\n"
    assert "Read-only file system" in done.stderr
    assert done.returncode == 3
