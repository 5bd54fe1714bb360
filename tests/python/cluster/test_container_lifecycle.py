"""Clusters of containers are made, stopped and killed at any step, and leave nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from container_support import (
    GUARD_SECONDS,
    TOKEN,
    Traces,
    each_runtime,
    installed,
    one_runtime,
    run,
    spec,
    two_runtimes,
)
from launch_support import package_path, unprivileged_python

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.nodes.container.cluster import ContainerCluster, remove_cluster
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.runtime import NodeState
from vicinal.cluster.nodes.container.spec import Bind, ContainerSpec, RegionFile


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traces:
    found = Traces(tmp_path / "base", f"t{os.getpid()}")
    monkeypatch.setenv(TOKEN, found.token)
    return found


# --- making and removing -------------------------------------------------------------------


@each_runtime
def test_a_node_is_made_once_stopped_started_and_removed(traces: Traces, runtime: str) -> None:
    cluster, new = ContainerCluster.create(traces.name, traces.base)
    try:
        assert new
        assert ContainerCluster.create(traces.name, traces.base)[1] is False
        node, other = spec(traces, cpus=(0,)), spec(traces, 1)
        assert cluster.create_node(node, runtime)
        assert not cluster.create_node(node, runtime)
        with pytest.raises(VicinalError, match=f"another {node.name}"):
            cluster.create_node(spec(traces, address="10.0.7.7"), runtime)
        with pytest.raises(VicinalError, match=f"10.0.0.1 belongs to {node.name}"):
            cluster.create_node(spec(traces, 1, address="10.0.0.1"), runtime)
        assert cluster.state(other.name) is NodeState.ABSENT
        assert cluster.create_node(other, runtime)
        run(cluster, node.name, "setsid", "-f", "sh", "-c", "exec sleep 1000 > /dev/null 2>&1")
        cluster.stop_node(node.name)
        assert cluster.state(node.name) is NodeState.STOPPED
        assert cluster.ended_nodes() == [node.name]
        with pytest.raises(VicinalError, match="does not run"):
            cluster.exec_command(node.name, ["true"])
        assert cluster.start_node(node.name)
        assert not cluster.start_node(node.name)
        assert run(cluster, node.name, "hostname") == node.name
        assert cluster.remove_node(other.name)
        assert not cluster.remove_node(other.name)
        assert cluster.state(other.name) is NodeState.ABSENT
        assert other.name not in run(cluster, node.name, "cat", "/etc/hosts")
        assert [each.spec for each in cluster.containers()] == [node]
    finally:
        assert remove_cluster(traces.name, traces.base)
    assert not remove_cluster(traces.name, traces.base)
    with pytest.raises(VicinalError, match="not there"):
        ContainerCluster.open(traces.name, traces.base)
    traces.check()


@one_runtime
def test_a_node_that_was_killed_comes_back(traces: Traces, runtime: str) -> None:
    cluster, _ = ContainerCluster.create(traces.name, traces.base)
    try:
        node = spec(traces)
        cluster.create_node(node, runtime)
        inside = cluster.nodes[0].pid_namespace
        for process in psutil.process_iter():
            try:
                if str(Path(f"/proc/{process.pid}/ns/pid").readlink()) == inside:
                    process.kill()
            except (OSError, psutil.Error):
                continue
        deadline = time.monotonic() + GUARD_SECONDS
        while cluster.state(node.name) is NodeState.RUNNING:
            assert time.monotonic() < deadline
        assert cluster.create_node(node, runtime)
        assert run(cluster, node.name, "hostname") == node.name
    finally:
        remove_cluster(traces.name, traces.base)
    traces.check()


def test_a_cluster_whose_head_was_killed_is_told_and_made_anew(traces: Traces) -> None:
    cluster, _ = ContainerCluster.create(traces.name, traces.base)
    try:
        cluster.create_node(spec(traces))
        head = Head.find(cluster.state_directory)
        assert head is not None
        os.kill(head.process, signal.SIGKILL)
        deadline = time.monotonic() + GUARD_SECONDS
        while Head.find(cluster.state_directory) is not None:
            assert time.monotonic() < deadline
        with pytest.raises(VicinalError, match="does not run any more"):
            ContainerCluster.open(traces.name, traces.base)
        again, new = ContainerCluster.create(traces.name, traces.base)
        assert new
        assert again.containers() == []
    finally:
        remove_cluster(traces.name, traces.base)
    traces.check()


STEPS = ("subprocess.Popen", "os.mkdir", "os.rename", "os.rmdir", "os.remove")
MOST_STEPS = 200


def make_until(traces: Traces, runtime: str, last: int) -> bool:
    """Make a cluster with a node in a process that is killed before its step `last`.

    Returns True if the process was killed, and False if it had finished before.
    """
    child = start_to_make(traces, runtime, last)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def start_to_make(traces: Traces, runtime: str, last: int) -> int:
    child = os.fork()
    if child == 0:
        left = last

        def count(event: str, _arguments: object) -> None:
            nonlocal left
            if event in STEPS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            sys.addaudithook(count)
            cluster, _ = ContainerCluster.create(traces.name, traces.base)
            cluster.create_node(spec(traces, cpus=(0,)), runtime)
            status = 0
        finally:
            os._exit(status)
    return child


@pytest.mark.parametrize(
    # The steps before the node are the same with every runtime.
    ("runtime", "steps"),
    [
        pytest.param("crun", 9, marks=installed("crun").marks),
        pytest.param("bubblewrap", 1, marks=installed("bubblewrap").marks),
    ],
)
def test_what_a_killed_command_left_at_any_step_is_removed(
    traces: Traces, runtime: str, steps: int
) -> None:
    while make_until(traces, runtime, steps):
        remove_cluster(traces.name, traces.base)
        traces.check()
        steps += 1
        assert steps < MOST_STEPS
    assert steps > 10
    remove_cluster(traces.name, traces.base)
    traces.check()


@one_runtime
def test_what_a_command_killed_over_another_left_is_removed(traces: Traces, runtime: str) -> None:
    """The kill comes at arbitrary times, so the head process, `ip` or the runtime may survive."""
    for hundredths in (4, 8, 12, 16):
        child = start_to_make(traces, runtime, MOST_STEPS)
        time.sleep(hundredths / 100)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        remove_cluster(traces.name, traces.base)
        traces.check()


@one_runtime
def test_what_a_killed_command_left_is_taken_up(traces: Traces, runtime: str) -> None:
    """After a kill at some of the same steps, the next command makes a node that works."""
    for last in (6, 14):
        assert make_until(traces, runtime, last)
        try:
            cluster, _ = ContainerCluster.create(traces.name, traces.base)
            node = spec(traces, cpus=(0,))
            cluster.create_node(node, runtime)
            assert run(cluster, node.name, "hostname") == node.name
        finally:
            remove_cluster(traces.name, traces.base)
        traces.check()


@two_runtimes
def test_a_root_of_another_system_stays_as_it_is(
    traces: Traces, tmp_path: Path, runtime: str
) -> None:
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    root = tmp_path / "root"
    for directory in ("bin", "etc", "opt/thing"):
        (root / directory).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "sleep", "hostname", "cat", "ls"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/own").write_text("of the image\n")
    before = sorted(map(str, root.rglob("*")))
    (tmp_path / "shown").write_text("of the host\n")
    cluster, _ = ContainerCluster.create(traces.name, traces.base)
    try:
        node = spec(
            traces,
            root=str(root),
            binds=(Bind(str(tmp_path / "shown"), "/opt/vicinal/deep/shown"),),
        )
        cluster.create_node(node, runtime)
        assert run(cluster, node.name, "cat", "/etc/own") == "of the image"
        assert run(cluster, node.name, "cat", "/opt/vicinal/deep/shown") == "of the host"
        assert node.name in run(cluster, node.name, "cat", "/etc/hosts")
        assert run(cluster, node.name, "ls", "/opt").split() == ["thing", "vicinal"]
        assert "usr" not in run(cluster, node.name, "ls", "/").split()
    finally:
        remove_cluster(traces.name, traces.base)
    assert sorted(map(str, root.rglob("*"))) == before
    traces.check()


# --- without privileges, and errors --------------------------------------------------------

AS_USER = """
import os, subprocess, sys
from vicinal.cluster.nodes.container.cluster import ContainerCluster, remove_cluster
from vicinal.cluster.nodes.container.spec import ContainerSpec
name, runtime = sys.argv[1:]
assert os.getuid() != 0
try:
    cluster, _ = ContainerCluster.create(name)
    assert cluster.unprivileged
    for number in range(2):
        cluster.create_node(ContainerSpec(name, f"node{number}", memory=64 << 20), runtime)
        subprocess.run(cluster.exec_command(f"node{number}", ["hostname"]), check=True)
    command = ["sh", "-c", "id -u; cat /proc/self/uid_map; getent hosts node0"]
    subprocess.run(cluster.exec_command("node1", command), check=True)
    print(*cluster.limitations, flush=True)
finally:
    assert remove_cluster(name)
"""


@each_runtime
def test_an_ordinary_user_can_have_containers(runtime: str) -> None:
    name = f"user{os.getpid()}"
    done = subprocess.run(
        [*unprivileged_python(), "-c", AS_USER, name, runtime],
        capture_output=True,
        text=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": package_path()},
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["node0", "node1", "0"]
    assert lines[3].split()[0] == "0"
    assert lines[3].split()[1:] != ["0", "4294967295"]
    assert lines[4].split() == ["10.0.0.1", "node0"]
    # If this user has no control groups, a warning says so.
    assert len(lines) == 6
    assert lines[5] == "" or "memory is not limited" in lines[5]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "Node"}, "cannot be the name of a node"),
        ({"name": "head"}, "cannot be the name of a node"),
        ({"name": "a/../b"}, "cannot be the name of a node"),
        ({"cluster": ""}, "cannot be the name of a cluster"),
        ({"cpus": (100_000,)}, "has no such processor"),
        ({"memory": 1}, "too little"),
        ({"address": "10.0.0"}, "not an IPv4 address"),
        ({"root": "image"}, "not absolute"),
    ],
)
def test_what_no_node_can_be_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(VicinalError, match=said):
        ContainerSpec(**({"cluster": "lab", "name": "node0"} | values))  # type: ignore[arg-type]


def test_binds_and_regions_are_checked() -> None:
    with pytest.raises(VicinalError, match="not absolute"):
        Bind("/etc", "/mnt/../etc")
    with pytest.raises(VicinalError, match="nothing can be mounted on /"):
        Bind("/etc", "/")
    with pytest.raises(VicinalError, match="'remote-shell'"):
        RegionFile("/dev/shm/region", "remote-shell")


def test_what_cannot_be_made_leaves_nothing(traces: Traces, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cluster, _ = ContainerCluster.create(traces.name, traces.base)
    try:
        for wanted, said in (
            (spec(traces, binds=(Bind("/nowhere/at/all", "/mnt"),)), "/nowhere/at/all cannot be"),
            (
                spec(traces, regions=(RegionFile("/dev/shm/vicinal-none"),)),
                "vicinal-none cannot be",
            ),
            (spec(traces, root="/nowhere"), "/nowhere cannot be mounted"),
            (spec(traces, root=str(tmp_path / "empty")), "could not start"),
            (spec(traces, address="192.168.1.1"), "not in the cluster's network"),
            (spec(traces, address="10.0.255.254"), "belongs to head"),
        ):
            with pytest.raises(VicinalError, match=said):
                cluster.create_node(wanted)
            assert cluster.containers() == []
            assert list((cluster.state_directory / "nodes").iterdir()) == []
        with pytest.raises(VicinalError, match="is for the cluster another"):
            cluster.create_node(ContainerSpec(cluster="another", name="x"))
    finally:
        remove_cluster(traces.name, traces.base)
    traces.check()


def test_a_runtime_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VicinalError, match="'docker' is no container runtime"):
        choose_runtime("docker")
    monkeypatch.setattr("vicinal.cluster.nodes.container.choice.find_tool", lambda _name: None)
    with pytest.raises(VicinalError, match="runtime crun was not found: install crun"):
        choose_runtime("crun")
    with pytest.raises(VicinalError, match="no container runtime was found"):
        choose_runtime()
