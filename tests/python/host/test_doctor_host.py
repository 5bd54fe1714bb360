"""What `vicinal doctor` says about memory, processors, programs and limits of fake hosts."""

import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import jsonschema
import pytest
from fake_host import GUEST, FakeHost, xeon_with_mlx5

import vicinal.region
from vicinal.host.checks import CHECKS
from vicinal.host.checks.isolation import (
    check_cgroups,
    check_containers,
    check_cross_memory,
    check_limits,
    check_namespaces,
)
from vicinal.host.checks.processor_and_memory import (
    check_huge_pages,
    check_numa,
    check_processor,
    check_shared_memory,
)
from vicinal.host.checks.vms import check_libvirt, check_qemu
from vicinal.host.doctor import document, examine
from vicinal.host.finding import Finding, Status, warned
from vicinal.host.system import Host
from vicinal.host.topology import (
    parse_cpu_list,
    read_cpus,
    read_last_cache,
    read_nodes,
    show_cpu_list,
)

QEMU_NAME = f"qemu-system-{os.uname().machine}"


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "fake")


def one(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def statuses(findings: Iterable[Finding]) -> list[str]:
    return [finding.status.value for finding in findings]


# Processors and NUMA


def test_the_kernel_s_switches_are_read_on_this_host() -> None:
    # Kernels refuse reads of 4 MiB and more from these files.
    assert Host().text("proc/sys/kernel/random/boot_id")


def test_sockets_cores_threads_and_nodes(tmp_path: Path) -> None:
    host = xeon_with_mlx5(tmp_path / "fake").host()
    finding = one(check_numa(host))
    assert finding.status is Status.PASS
    assert finding.text.startswith("2 sockets, 16 cores, 2 threads in each")
    assert "node 1: CPUs 8-15,24-31, 64 GiB" in finding.text
    assert "distance 21" in finding.text
    assert [node["distances"] for node in finding.facts["nodes"]] == [[10, 21], [21, 10]]
    cpus = read_cpus(host)
    assert cpus[17].siblings == (1, 17)
    assert (cpus[31].core, cpus[31].socket) == (7, 1)


def test_a_node_without_memory_is_a_warning(fake: FakeHost) -> None:
    fake.cpus(sockets=2, cores=1)
    fake.node(0, "0", "10 21")
    fake.node(1, "1", "21 10", memory_kib=0)
    assert statuses(check_numa(fake.host())) == ["pass", "warn"]


def test_nodes_are_in_the_order_of_their_numbers(fake: FakeHost) -> None:
    for number in range(11):
        fake.node(number, str(number), "10")
    assert [node.number for node in read_nodes(fake.host())] == list(range(11))


def test_the_last_level_cache(fake: FakeHost) -> None:
    """The largest level that has data; none if sysfs has no caches, as in some guests."""
    assert read_last_cache(fake.host(), 0) is None
    caches = (("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K"))
    for number, (kind, level, size) in enumerate((*caches, ("Unified", 3, "38400K"))):
        index = f"sys/devices/system/cpu/cpu0/cache/index{number}"
        for name, text in (("type", kind), ("level", level), ("size", size)):
            fake.file(f"{index}/{name}", text)
    assert read_last_cache(fake.host(), 0) == 38400 * 1024
    fake.file("sys/devices/system/cpu/cpu0/cache/index3/size", "what")
    assert read_last_cache(fake.host(), 0) == 2048 * 1024
    assert read_last_cache(fake.host(), 1) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", (0,)), ("0-2,5", (0, 1, 2, 5)), ("", ()), ("x", ()), ("3-", ()), ("١", ())],
)
def test_cpu_lists(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == numbers
    if numbers:
        assert show_cpu_list(numbers) == text


def test_processors_that_can_and_cannot_run_guests(fake: FakeHost) -> None:
    # The processor has VT-x, and the kernel module that uses VT-x is not loaded.
    finding = one(check_processor(fake.host()))
    assert finding.status is Status.WARN
    assert "modprobe kvm_intel" in finding.remedy
    fake.file("dev/kvm")
    assert one(check_processor(fake.host())).status is Status.PASS
    fake.file("proc/cpuinfo", GUEST)
    assert one(check_processor(fake.host())).status is Status.WARN  # a guest cannot tell
    (fake.root / "dev/kvm").unlink()
    finding = one(check_processor(fake.host()))
    assert finding.status is Status.SKIP
    assert "nested virtualization" in finding.remedy


# Memory


def test_huge_pages_on_both_nodes(tmp_path: Path) -> None:
    finding = one(check_huge_pages(xeon_with_mlx5(tmp_path / "fake").host()))
    assert finding.status is Status.PASS
    assert "2 MiB: 1536 of 2048 free (3 GiB), node 0: 512 of 1024" in finding.text


def test_huge_pages_that_are_not_reserved_taken_or_on_one_node(fake: FakeHost) -> None:
    pages = "sys/kernel/mm/hugepages"
    fake.huge_pages(pages, 0, 0)
    assert "sysctl vm.nr_hugepages" in one(check_huge_pages(fake.host())).remedy

    fake.huge_pages(pages, 64, 0)
    assert "all pages are in use" in one(check_huge_pages(fake.host())).text

    fake.huge_pages(pages, 64, 64)
    fake.node(0, "0", "10 21", reserved=64, free=64)
    fake.node(1, "1", "21 10")
    uneven, unmounted = check_huge_pages(fake.host())
    assert uneven.status is Status.WARN
    assert "none on node 1" in uneven.text
    assert "node1/hugepages/hugepages-2048kB/nr_hugepages" in uneven.remedy
    assert unmounted.status is Status.FAIL
    assert "mount -t hugetlbfs" in unmounted.remedy


def test_shared_memory(fake: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(check_shared_memory(fake.host())).status is Status.FAIL
    fake.directory("dev/shm")

    def space(size: int, free: int) -> None:
        real = os.statvfs("/")
        values = list(real)
        values[0] = values[1] = 4096
        values[2], values[3], values[4] = size // 4096, free // 4096, free // 4096
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))

    space(4 << 30, 4 << 30)
    assert one(check_shared_memory(fake.host())).status is Status.PASS
    space(64 << 20, 64 << 20)  # the size in a container
    finding = one(check_shared_memory(fake.host()))
    assert finding.status is Status.WARN
    assert "--shm-size" in finding.remedy
    space(4 << 30, 1 << 20)
    assert one(check_shared_memory(fake.host())).status is Status.FAIL
    space(4 << 30, 4 << 30)
    fake.file("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 2048 kB")
    finding = one(check_shared_memory(fake.host()))
    assert finding.status is Status.FAIL
    assert "only 2 MiB of free memory" in finding.text
    fake.mount("/dev/shm", "ext4")
    assert "ext4" in one(check_shared_memory(fake.host())).text


# QEMU and libvirt


DEVICES = ("ivshmem-plain", "ivshmem-doorbell", "nvdimm", "igb")


def fake_qemu(fake: FakeHost, version: str, devices: tuple[str, ...]) -> None:
    listed = "\n".join(f"echo 'name \"{name}\", bus PCI'" for name in devices)
    fake.program(
        QEMU_NAME,
        f'case "$1" in --version) echo "QEMU emulator version {version}";;\n'
        "-accel) echo 'Accelerators supported in QEMU binary:'; echo tcg; echo kvm;;\n"
        f"-device) {listed}\n;; esac",
    )


def test_qemu_with_all_devices(fake: FakeHost) -> None:
    fake_qemu(fake, "10.0.2 (Debian)", DEVICES)
    findings = list(check_qemu(fake.host()))
    assert statuses(findings) == ["pass"] * 5
    assert findings[0].facts["version"] == "10.0.2"
    assert findings[0].facts["accelerators"] == ["tcg", "kvm"]


@pytest.mark.parametrize(
    ("missing", "status"),
    [("ivshmem-plain", "fail"), ("ivshmem-doorbell", "warn"), ("nvdimm", "warn"), ("igb", "skip")],
)
def test_qemu_without_a_device(fake: FakeHost, missing: str, status: str) -> None:
    fake_qemu(fake, "8.2.0", tuple(each for each in DEVICES if each != missing))
    (bad,) = (each for each in check_qemu(fake.host()) if each.status is not Status.PASS)
    assert bad.status.value == status
    assert missing in bad.text


def test_qemu_that_is_old_broken_or_missing(fake: FakeHost) -> None:
    assert one(check_qemu(fake.host())).status is Status.SKIP
    fake.program(QEMU_NAME, "echo 'libfoo.so: not found' >&2; exit 127")
    finding = one(check_qemu(fake.host()))
    assert finding.status is Status.FAIL
    assert "libfoo.so" in finding.text
    fake_qemu(fake, "6.2.0", DEVICES)
    assert next(iter(check_qemu(fake.host()))).status is Status.WARN


@pytest.fixture
def short() -> Iterator[FakeHost]:
    """A fake host whose path is short enough for a socket's address."""
    with tempfile.TemporaryDirectory(prefix="vicinal-test-") as directory:
        yield FakeHost(Path(directory) / "fake")


def test_libvirt(short: FakeHost) -> None:
    assert one(check_libvirt(short.host())).status is Status.SKIP
    short.program("libvirtd", "echo 'libvirtd (libvirt) 9.0.0'")
    installed, system, *_ = check_libvirt(short.host())
    assert installed.facts["version"] == "9.0.0"
    assert system.status is Status.WARN
    assert "no socket" in system.text

    path = short.directory("run/libvirt") / "libvirt-sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        _, nobody, *_ = check_libvirt(short.host())
        assert nobody.status is Status.FAIL
        assert "no daemon answers at /run/libvirt/libvirt-sock" in nobody.text
        server.listen()
        _, answers, *_ = check_libvirt(short.host())
        assert answers.status is Status.PASS


def test_libvirt_for_root(short: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can have a libvirt daemon that Vicinal starts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short.root))
    short.program("virtqemud", "echo 'virtqemud (libvirt) 9.0.0'")
    _, system, own, *_ = check_libvirt(short.host(user=0))
    assert (system.status, own.status) == (Status.WARN, Status.WARN)
    assert "its daemon libvirtd is not installed" in own.text
    short.program("libvirtd", "echo 'libvirtd (libvirt) 9.0.0'")
    own = list(check_libvirt(short.host(user=0)))[2]
    assert own.status is Status.PASS
    assert "`vicinal up` starts the daemon" in own.text

    socket_file = short.directory("run/libvirt") / "libvirt-sock"
    here = short.directory("vicinal/libvirt") / "libvirt-sock"
    with socket.socket(socket.AF_UNIX) as theirs, socket.socket(socket.AF_UNIX) as ours:
        theirs.bind(str(socket_file))
        # A stale socket is only a warning, because clusters do not need the system's libvirt.
        assert list(check_libvirt(short.host(user=0)))[1].status is Status.WARN
        ours.bind(str(here))
        ours.listen()
        own = list(check_libvirt(short.host(user=0)))[2]
        assert f"the daemon answers at {here}" in own.text
        theirs.listen()
        texts = [finding.text for finding in check_libvirt(short.host(user=0))]
        assert not any("Vicinal's own" in text for text in texts)


# Containers, control groups, limits


def test_containers(fake: FakeHost) -> None:
    finding = one(check_containers(fake.host()))
    assert finding.status is Status.SKIP
    assert "apt-get install crun" in finding.remedy
    fake.program("crun", "echo 'crun version 1.8.1'")
    crun, missing = check_containers(fake.host())
    assert crun.facts["version"] == "1.8.1"
    assert "runc" in missing.text


def test_namespaces(fake: FakeHost) -> None:
    finding = one(check_namespaces(fake.host()))
    assert finding.status is Status.FAIL
    assert finding.remedy == "install util-linux"
    fake.program("unshare", "echo 'unshare: unshare failed: No space left' >&2; exit 1")
    fake.file("proc/sys/user/max_user_namespaces", 0)
    finding = one(check_namespaces(fake.host()))
    assert finding.remedy == "`sysctl user.max_user_namespaces=15000`"
    assert "No space left" in finding.text
    fake.program("unshare", '[ "$1" = --user ]')
    assert one(check_namespaces(fake.host())).text == "created in a user namespace"


def test_control_groups(fake: FakeHost) -> None:
    assert one(check_cgroups(fake.host())).status is Status.SKIP
    fake.mount("/sys/fs/cgroup/cpu", "cgroup")
    assert one(check_cgroups(fake.host())).facts["version"] == "1"
    fake.mount("/sys/fs/cgroup/unified", "cgroup2")
    assert one(check_cgroups(fake.host())).facts["version"] == "hybrid"

    fake.mount("/sys/fs/cgroup", "cgroup2")
    fake.file("proc/self/cgroup", "0::/user.slice/session-1.scope")
    group = "sys/fs/cgroup/user.slice/session-1.scope"
    fake.file(f"{group}/cgroup.controllers", "memory pids")
    finding = one(check_cgroups(fake.host()))
    assert finding.status is Status.WARN
    assert "echo +cpu +cpuset > cgroup.subtree_control" in finding.remedy
    fake.file(f"{group}/cgroup.controllers", "cpuset cpu io memory pids")
    assert one(check_cgroups(fake.host())).status is Status.PASS


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             4096                 unlimited            processes
Max open files            1024                 {files}              files
Max locked memory         8388608              8388608              bytes
"""


def test_limits(fake: FakeHost) -> None:
    fake.file("proc/self/limits", LIMITS.format(files=1048576))
    memory, files, processes = check_limits(fake.host())
    assert statuses([memory, files, processes]) == ["pass", "pass", "pass"]
    assert memory.facts["memlock_bytes"] == 8 << 20
    assert processes.text == "processes: no limit"

    fake.rdma("mlx5_0", None)
    memory, *_ = check_limits(fake.host())
    assert memory.status is Status.WARN
    assert "memlock unlimited" in memory.remedy
    fake.file("proc/self/status", f"CapEff:\t{1 << 14:016x}")
    assert next(iter(check_limits(fake.host()))).status is Status.PASS

    fake.file("proc/self/limits", LIMITS.format(files=1024))
    _, files, _ = check_limits(fake.host())
    assert files.status is Status.WARN


@pytest.mark.parametrize(
    ("scope", "capabilities", "status"),
    [
        (None, 0, Status.PASS),
        (0, 0, Status.PASS),
        (1, 0, Status.WARN),
        (2, 1 << 19, Status.PASS),
        (3, 1 << 19, Status.WARN),
        (9, 0, Status.WARN),
    ],
)
def test_cross_memory_attach(
    fake: FakeHost, scope: int | None, capabilities: int, status: Status
) -> None:
    if scope is not None:
        fake.file("proc/sys/kernel/yama/ptrace_scope", scope)
    fake.file("proc/self/status", f"CapEff:\t{capabilities:016x}\nSeccomp:\t2")
    finding = one(check_cross_memory(fake.host()))
    assert finding.status is status
    assert finding.facts["seccomp_filter"] is True


# All checks together


def test_a_finding_to_act_on_has_a_remedy() -> None:
    with pytest.raises(ValueError, match="no remedy"):
        warned("it is slow", "")


def test_nothing_at_all_is_no_error(tmp_path: Path) -> None:
    """On a host without any readable file, the result is still a valid document."""
    examined = list(examine(Host(root=tmp_path, search=str(tmp_path)), CHECKS))
    found = document(examined)
    assert [each["name"] for each in found["checks"]] == [check.name for check in CHECKS]


@pytest.mark.parametrize("junk", ["", "\0", "-1", "0x", "🛇 ] [", "9" * 4000, "\n".join("a b c")])
def test_junk_in_every_file_is_no_error(tmp_path: Path, region_path: Path, junk: str) -> None:
    """Future kernels and broken cards may say anything."""
    fake = xeon_with_mlx5(tmp_path / "fake")
    vicinal.region.create(region_path, members=2, for_guests=True)
    fake.ivshmem("0000:00:04.0", region_path.read_bytes())
    fake_qemu(fake, "8.2.0", DEVICES)
    for path in fake.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            if path.parent == fake.programs:
                path.write_text(f"#!/bin/sh\ncat <<'END'\n{junk}\nEND\n")
            elif path.name != "resource2":
                path.write_text(junk)
    try:
        document(list(examine(fake.host(), CHECKS)))
    except jsonschema.ValidationError as error:
        pytest.fail(error.message)


def test_what_can_be_had_of_a_node_is_in_bytes(fake: FakeHost) -> None:
    """Available memory: free and reclaimable memory; files in tmpfs do not count."""
    fake.node(0, "0", "10", memory_kib=1000)
    lines = {"MemTotal": 1000, "MemFree": 500, "FilePages": 200, "Shmem": 50, "SReclaimable": 25}
    text = "\n".join(f"Node 0 {name}:  {kib} kB" for name, kib in lines.items())
    fake.file("sys/devices/system/node/node0/meminfo", text)
    (node,) = read_nodes(fake.host())
    assert node.memory_bytes == 1000 << 10
    assert node.available_bytes == 675 << 10
