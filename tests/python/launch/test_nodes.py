"""Ephemeral clusters: isolation of nodes, messages between nodes, and removal of nodes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT
from launch_support import package_path, unprivileged_python

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE

GUARD_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as opened:
        yield opened


def both(cluster: EphemeralCluster, *command: str) -> list[str]:
    return [cluster.run_in(node.name, command).strip() for node in cluster.nodes]


def test_every_node_has_its_own_host_name(cluster: EphemeralCluster) -> None:
    assert both(cluster, "hostname") == ["node0", "node1"]


@pytest.mark.parametrize("kind", ["uts", "ipc", "pid", "mnt", "net"])
def test_every_node_has_namespaces_of_its_own(cluster: EphemeralCluster, kind: str) -> None:
    ours = str(Path(f"/proc/self/ns/{kind}").readlink())
    theirs = both(cluster, "readlink", f"/proc/self/ns/{kind}")
    assert len({ours, *theirs}) == 3


def test_a_node_sees_only_its_own_processes(cluster: EphemeralCluster) -> None:
    for listing in both(cluster, "sh", "-c", "echo /proc/[0-9]*"):
        # The node's init, a shell of the remote shell, and the process that lists.
        assert "/proc/1" in listing.split()
        assert len(listing.split()) <= 4
    assert f"/proc/{os.getpid()}" not in listing.split()


def test_files_in_dev_shm_stay_in_their_node(cluster: EphemeralCluster) -> None:
    assert both(cluster, "ls", "-A", "/dev/shm") == ["", ""]
    cluster.run_in("node0", ["touch", "/dev/shm/mine"])
    assert both(cluster, "ls", "-A", "/dev/shm") == ["mine", ""]
    assert not Path("/dev/shm/mine").exists()
    cluster.run_in("node0", ["rm", "/dev/shm/mine"])


def test_system_v_shared_memory_stays_in_its_node(cluster: EphemeralCluster) -> None:
    cluster.run_in("node1", ["ipcmk", "--shmem", "4096"])
    segments = "sed 1d /proc/sysvipc/shm | wc -l"
    assert both(cluster, "sh", "-c", segments) == ["0", "1"]


def test_nodes_reach_each_other_over_their_own_network(cluster: EphemeralCluster) -> None:
    assert cluster.network
    interfaces = both(cluster, "sh", "-c", "ls /proc/sys/net/ipv4/conf")
    assert interfaces == ["all\ndefault\neth0\nlo"] * 2
    assert [node.address for node in cluster.nodes] == ["10.0.0.1", "10.0.0.2"]
    serve = "import socket; s = socket.create_server(('', 7000)); print(s.accept()[1][0])"
    call = (
        "import socket, time\n"
        "for attempt in range(500):\n"
        "    try:\n"
        "        socket.create_connection(('node0', 7000)); break\n"
        "    except ConnectionRefusedError:\n"
        "        time.sleep(0.02)\n"
    )
    python = Path(sys.executable)
    server = subprocess.Popen(
        cluster.head_command([f"{EXCHANGE}/remote-shell", "node0", f'{python} -c "{serve}"']),
        stdout=subprocess.PIPE,
        text=True,
    )
    cluster.run_in("node1", [str(python), "-c", call])
    output, _ = server.communicate(timeout=GUARD_SECONDS)
    assert output == "10.0.0.2\n"


def test_the_exchange_is_the_same_everywhere(cluster: EphemeralCluster) -> None:
    (cluster.exchange / "note").write_text("hello")
    assert both(cluster, "cat", f"{EXCHANGE}/note") == ["hello", "hello"]
    (cluster.exchange / "note").unlink()
    assert not Path(EXCHANGE, "note").exists()


def test_clear_ends_what_runs_in_nodes_even_if_stopped(cluster: EphemeralCluster) -> None:
    command = "sleep 1000 & setsid sleep 1000 & kill -STOP $!; echo started; wait"
    started = subprocess.Popen(
        cluster.head_command([f"{EXCHANGE}/remote-shell", "node1", command]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "started\n"
    assert len(cluster.processes("node1")) >= 3
    assert cluster.processes("node0") == []
    cluster.clear()
    assert cluster.processes() == []
    started.communicate(timeout=GUARD_SECONDS)
    assert both(cluster, "hostname") == ["node0", "node1"]


def test_a_node_that_ends_is_noticed() -> None:
    with EphemeralCluster(nodes=2) as cluster:
        assert cluster.ended_nodes() == []
        node_init(cluster, 1).kill()
        wait_until(lambda: cluster.ended_nodes() == ["node1"])
        assert cluster.run_in("node0", ["hostname"]) == "node0\n"
        with pytest.raises(VicinalError, match="node1"):
            cluster.run_in("node1", ["hostname"])


def test_a_cluster_whose_head_was_killed_says_so_and_has_nothing_left() -> None:
    with EphemeralCluster(nodes=2) as cluster:
        family = psutil.Process(cluster.head_process).children(recursive=True)
        assert len(family) == 2
        os.kill(cluster.head_process, signal.SIGKILL)
        for process in family:
            wait_until_gone(process.pid)
        with pytest.raises(VicinalError, match="head was killed"):
            cluster.ended_nodes()
        cluster.clear()


def test_nodes_can_share_the_network_of_the_host() -> None:
    with EphemeralCluster(nodes=2, network=False) as cluster:
        assert not cluster.network
        assert "share the host's network" in cluster.limitations[0]
        ours = str(Path("/proc/self/ns/net").readlink())
        assert both(cluster, "readlink", "/proc/self/ns/net") == [ours, ours]
        assert both(cluster, "hostname") == ["node0", "node1"]


@pytest.mark.parametrize("nodes", [0, -1, 100_000])
def test_an_impossible_number_of_nodes_is_refused(nodes: int) -> None:
    with pytest.raises(VicinalError, match=f"{nodes} nodes"):
        EphemeralCluster(nodes=nodes)


def test_closing_ends_every_process() -> None:
    with EphemeralCluster(nodes=3) as cluster:
        family = psutil.Process(cluster.head_process).children(recursive=True)
        assert len(family) == 3
    assert not any(process.is_running() for process in family)
    with pytest.raises(VicinalError, match="not open"):
        cluster.run_in("node0", ["true"])


OPEN_AND_WAIT = """
import sys, time
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
with EphemeralCluster(nodes=2) as cluster:
    print(cluster.head_process, cluster.run_in("node1", ["id", "-u"]).strip(), flush=True)
    print(*cluster.limitations, flush=True)
    print(cluster.run_in("node1", ["hostname"]).strip(), flush=True)
    time.sleep(1000)
"""


def test_an_ordinary_user_can_have_nodes() -> None:
    python = unprivileged_python()
    with subprocess.Popen(
        [*python, "-c", OPEN_AND_WAIT],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": package_path()},
    ) as manager:
        assert manager.stdout is not None
        init, user = manager.stdout.readline().split()
        assert user == "0"  # root in the user namespace
        assert psutil.Process(int(init)).uids().real != 0
        assert manager.stdout.readline() == "\n"
        assert manager.stdout.readline() == "node1\n"
        manager.kill()
    wait_until_gone(int(init))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nodes_end_with_a_manager_that_is_killed(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": package_path()},
    ) as manager:
        assert manager.stdout is not None
        init = int(manager.stdout.readline().split()[0])
        family = [psutil.Process(init), *psutil.Process(init).children(recursive=True)]
        assert len(family) == 3
        # Stopped processes must end as well.
        family[1].suspend()
        manager.send_signal(number)
    for process in family:
        wait_until_gone(process.pid)


def node_init(cluster: EphemeralCluster, number: int) -> psutil.Process:
    wanted = cluster.nodes[number].pid_namespace
    children = psutil.Process(cluster.head_process).children()
    return next(c for c in children if str(Path(f"/proc/{c.pid}/ns/pid").readlink()) == wanted)


def wait_until_gone(process: int) -> None:
    def gone() -> bool:
        try:
            return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(gone)


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + GUARD_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


IN_CHROOT = """
mount -t tmpfs tmpfs "$1"
mkdir "$1/root"
cd "$1/root"
if [ "$2" = mounted ]; then mount --bind . . && cd "$1/root"; fi
for each in /*; do
    case $each in /tmp | /run) continue ;; esac
    if [ -L "$each" ]; then
        cp -P "$each" .
    elif [ -d "$each" ]; then
        mkdir ".$each"
        mount --rbind "$each" ".$each"
    fi
done
mkdir -m 1777 tmp run
if [ ! -d ".$3" ]; then mkdir -p ".$3" && mount --bind "$3" ".$3"; fi
shift 3
exec chroot . "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a chroot")
@pytest.mark.parametrize("root", ["plain", "mounted"])
def test_in_a_chroot_one_line_says_what_to_use(tmp_path: Path, root: str) -> None:
    """Programs enter nodes by setns(), which would leave the chroot, and end in other files."""
    command = [sys.executable, "-m", "vicinal", "run", "--mpi", "mpich", "-n", "2", "true"]
    where = (str(tmp_path), root, str(CHECKOUT))  # the checkout may lie in /tmp
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", IN_CHROOT, "sh", *where, *command],
        env=os.environ | {"PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "vicinal: error: nodes cannot be made in a chroot: a process that enters a node would "
        "leave it: use a container instead, such as `systemd-nspawn"
    )
