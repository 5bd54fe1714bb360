"""srun --gres=vf:1 --vicinal=FILE with a real Slurm: VFs of fake cards for virtual machines.

What root does for the VFs and undoes is real. The kernel that answers (fake_kernel.py) and
the VMs (fake_vms.py) are fakes. tests/guests/vf has real VMs.
"""

import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fake_vms
import psutil
import pytest
from fake_kernel import SLOW
from launch_support import package_path, unprivileged_python
from process_support import signal_all, words_of
from slurm_node_vfs_support import USER, NodeVfHosts
from slurm_option_support import become, wait_until
from slurm_vfs_support import FIRST, SECOND

from vicinal.base.errors import VicinalError

pytestmark = pytest.mark.long

OTHER = 2
VM = "name: lab\nregion: none\nnodes:\n  - {{name: vm, backend: vm, count: {count}{more}}}\n"
NAMED = ", network: {vf: {card: eth1}, address: 10.9.0.1/24}"


class VmVfHosts(NodeVfHosts):
    """Hosts whose supervisors are real, except for the VMs."""

    def installed(self) -> tuple[object, ...]:
        script = self.directory / "fake-python"
        path = os.pathsep.join([str(Path(fake_vms.__file__).parent), package_path()])
        program = f"{unprivileged_python()[-1]} {fake_vms.__file__}"
        script.write_text(
            '#!/bin/sh\n[ "$1" = -I ] || exit\nshift\n'
            f'export {fake_vms.DRIVERS}="$(cat {self.directory}/drivers)"\n'
            f'PYTHONPATH={path} exec {program} "$@"\n'
        )
        script.chmod(0o755)
        self.set_drivers("igbvf mlx5_core")
        *options, _ = super().installed()
        return (*options, script)

    def set_drivers(self, names: str) -> None:
        """Set which drivers the VMs' kernel has."""
        file = self.directory / "drivers"
        file.write_text(names)
        file.chmod(0o644)

    def allocate(self, *, user: int = USER) -> str:
        """Start a job whose node is a VM. The job's user may open the VF's group."""
        number = super().allocate(user=user)
        assert self.state("node0", FIRST) == ("vfio-pci", f"{user} 600")
        return number

    def at_work(self, words: str) -> list[psutil.Process]:
        """Processes of the first host whose command lines contain these words."""
        processes = self.processes("node0")
        return [each for each in processes if words in " ".join(words_of(each))]

    def state(self, name: str, vf: str) -> tuple[str, str]:
        """A VF's driver on a host, and owner and mode of its group's file, if any."""
        device = f"/sys/bus/pci/devices/{vf}"
        script = f"basename $(readlink {device}/driver); stat -c '%u %a' "
        script += f"/dev/vfio/$(basename $(readlink {device}/iommu_group)) 2>/dev/null || true"
        driver, *node = self.cluster.run_in(name, ["sh", "-c", script]).splitlines()
        return driver, " ".join(node)


@pytest.fixture(scope="module")
def hosts() -> Iterator[VmVfHosts]:
    with VmVfHosts.opened() as opened:
        for count in (2, 4):
            opened.cluster_file(f"named{count}.yaml", VM.format(count=count, more=NAMED))
        for count in (1, 2):
            opened.cluster_file(f"{count}.yaml", VM.format(count=count, more=""))
        yield opened


@pytest.fixture
def clean(hosts: VmVfHosts) -> Iterator[VmVfHosts]:
    """Hosts that have all VFs before and after the test, and keep accepting jobs."""
    with hosts.clean():
        yield hosts
    assert "drain" not in hosts.at_head("sinfo", "-h").stdout
    for name in hosts.names:
        for vf in (FIRST, SECOND):
            assert hosts.state(name, vf) == ("igbvf", "")


def vms(hosts: VmVfHosts, name: str) -> list[int]:
    [supervisor] = hosts.supervisors(name)
    return [each.pid for each in supervisor.children() if each.name() == fake_vms.NAME]


def lockable() -> str:
    """How much memory a process may lock after root has raised the limit as far as possible."""
    script = "import resource as r; r.setrlimit(r.RLIMIT_MEMLOCK, (r.RLIM_INFINITY,) * 2)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True)
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return "unlimited" if done.returncode == 0 else str(most)


# --- what VMs have --------------------------------------------------------------------


@pytest.mark.parametrize(("user", "names"), [(0, ["node0", "node1"]), (USER, ["node0"])])
def test_each_vm_has_the_vf_that_the_file_names(
    clean: VmVfHosts, user: int, names: list[str]
) -> None:
    """Only the job's user may open the VF. All memory of the VM may be locked."""
    show = "echo $VICINAL_VFS $VICINAL_VF_INTERFACES $FI_TCP_IFACE "
    show += "$VICINAL_NET_INTERFACE; sleep 2"
    options = (f"-w{','.join(names)}", "--ntasks-per-node=2", "--label")
    line = clean.step(f"named{2 * len(names)}", "vf:eth1:2", *options, user=user)
    with subprocess.Popen(
        clean.entered([*line, "sh", "-c", show]),
        env=clean.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        said = sorted(running.stdout.readline() for _ in range(2 * len(names)))
        try:
            for name in names:
                for vf in (FIRST, SECOND):
                    assert clean.state(name, vf) == ("vfio-pci", f"{user} 600")
                for process in vms(clean, name):
                    limits = Path(f"/proc/{process}/limits").read_text().splitlines()
                    [locked] = (each for each in limits if each.startswith("Max locked memory"))
                    assert locked.split()[3:5] == [lockable()] * 2
        finally:
            assert running.wait() == 0
    words = " eth1 eth1 eth1\n"
    assert said == [f"{n}: {(FIRST, SECOND)[n % 2]}{words}" for n in range(2 * len(names))]


def test_without_names_vfs_are_spread_evenly(clean: VmVfHosts) -> None:
    show = "echo $VICINAL_VF_INTERFACES ${FI_TCP_IFACE-none}"
    done = clean.at_head(*clean.step("1", "vf:eth1:2", "-wnode0", "-n1"), "sh", "-c", show)
    assert done.stdout == "eth1,eth2 none\n", done.stderr


# --- errors --------------------------------------------------------------------------------


def refused(hosts: VmVfHosts, file: str, gres: str, fault: str) -> None:
    done = hosts.at_head(*hosts.step(file, gres, "-wnode0", "-n1"), "echo", "ran")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count(fault) == 1, done.stderr


def test_an_infiniband_vf(clean: VmVfHosts) -> None:
    refused(clean, "1", "vf:ib0:1", "machines can have only Ethernet VFs")


def test_vfs_that_do_not_come_out_even(clean: VmVfHosts) -> None:
    refused(clean, "2", "vf:eth1:1", "cannot be spread evenly over its 2 nodes there")


def test_more_settings_than_the_card(clean: VmVfHosts) -> None:
    more = NAMED.replace("eth1}", "eth1, vlan: 9}")
    clean.cluster_file("more.yaml", VM.format(count=1, more=more))
    refused(clean, "more", "vf:eth1:1", "sets more than the card for the VF of 'vm'")


def test_a_driver_that_the_guests_lack(clean: VmVfHosts) -> None:
    clean.set_drivers("mlx5_core")
    try:
        refused(clean, "1", "vf:eth1:1", "the guests' kernel 6.1 does not have it")
    finally:
        clean.set_drivers("igbvf mlx5_core")


def test_a_card_that_keeps_its_vfs_to_no_vlan(clean: VmVfHosts) -> None:
    clean.set_vlan("node0", "0")
    try:
        refused(clean, "1", "vf:eth1:1", "let the card tag the VF's frames (`ip link set dev eth1")
    finally:
        clean.set_vlan("node0", "7")


def test_a_host_whose_iommu_is_off(clean: VmVfHosts) -> None:
    link = clean.directory / f"cards-node0/sys/bus/pci/devices/{FIRST}/iommu_group"
    group = link.readlink()
    link.unlink()
    try:
        refused(clean, "1", "vf:eth1:1", f"{FIRST} is in no IOMMU group: the IOMMU is off")
    finally:
        link.symlink_to(group)


@pytest.mark.parametrize("first", ["vms", "none"])
def test_all_steps_of_a_job_have_them_in_the_same_way(clean: VmVfHosts, first: str) -> None:
    value = f"--vicinal={clean.directory}/1.yaml"
    steps = [f"srun {value} true", "srun true"]
    steps = steps if first == "vms" else steps[::-1]
    job = ("salloc", "-Q", "-wnode0", "-n1", "--gres=vf:eth1:1", "--chdir=/", "sh", "-c")
    done = clean.at_head(*become(USER), *job, " && ".join(steps))
    assert done.returncode != 0
    assert "start all steps of the job with the cluster file (--vicinal), or none" in done.stderr


# --- ends ----------------------------------------------------------------------------------


def opens(user: int, then: str) -> tuple[str, ...]:
    """A command line by which a user opens the group of the first VF."""
    group = "/dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$0/iommu_group))"
    return (*become(user), "sh", "-c", f"exec 3<>{group}; {then}", FIRST)


def test_a_process_outside_of_the_job_that_has_one_open(clean: VmVfHosts) -> None:
    """The process is ended with the job. Other processes of the same user are not."""
    number = clean.allocate()
    script = f"{shlex.join(opens(USER, 'exec sleep 611'))} & "
    script += f"{shlex.join([*become(USER), 'sleep', '612'])} &"
    clean.cluster.run_in("node0", ["sh", "-c", f"({script}) >/dev/null 2>&1"])
    try:
        wait_until(lambda: clean.at_work("sleep 611") and clean.at_work("sleep 612"))
        assert clean.at_head("scancel", number).returncode == 0
        wait_until(lambda: not clean.owners("node0"))
        assert clean.at_work("sleep 611") == []
        assert len(clean.at_work("sleep 612")) == 1
    finally:
        signal_all(clean.at_work("sleep 61"), signal.SIGKILL)


def test_another_user_opens_none(clean: VmVfHosts) -> None:
    number = clean.allocate()
    with pytest.raises(VicinalError, match="ermission denied"):
        clean.cluster.run_in("node0", opens(OTHER, "true"))
    clean.cluster.run_in("node0", opens(USER, "true"))
    assert clean.at_head("scancel", number).returncode == 0


def test_a_host_that_lost_all_of_a_job_gives_its_vfs_back(
    clean: VmVfHosts,
) -> None:
    line = clean.step("1", "vf:eth1:1", "-wnode0", "-n1")
    with clean.start(*line, "sleep", "601") as running:
        try:
            wait_until(lambda: clean.supervisors("node0") and vms(clean, "node0"))
            for program in ("slurmd", "slurmstepd"):
                signal_all(clean.running("node0", program), signal.SIGKILL)
            signal_all(clean.supervisors("node0"), signal.SIGKILL)
            wait_until(lambda: not clean.running("node0", "slurmd"))
            clean.start_slurmd("node0")
            assert clean.at_head("scancel", "--name=granted").returncode == 0
            wait_until(lambda: not clean.owners("node0"))
            # What would run in the VM runs on the host here, where nothing else ends it.
            signal_all(clean.at_work("sleep 601"), signal.SIGKILL)
            wait_until(clean.nothing_left)
        finally:
            running.kill()


def test_vms_that_ended_are_made_anew_with_the_same_vfs(
    clean: VmVfHosts,
) -> None:
    number = clean.allocate()
    signal_all(clean.supervisors("node0"), signal.SIGKILL)
    wait_until(lambda: not clean.supervisors("node0"))
    show = ("printenv", "VICINAL_VF_INTERFACES")
    done = clean.at_head(*become(USER), *clean.later(number), *show)
    assert done.stdout == "eth1\n", done.stderr
    assert clean.state("node0", FIRST) == ("vfio-pci", f"{USER} 600")
    assert clean.at_head("scancel", number).returncode == 0


def test_a_command_that_was_killed_while_it_grants_one(clean: VmVfHosts) -> None:
    """The request to the helper runs on. The epilog waits for it, and releases the VF."""
    slow = clean.directory / SLOW
    line = clean.step("1", "vf:eth1:1", "-wnode0", "-n1")
    with clean.start(*line, "true") as running:
        try:
            # By then the card is set up. One change of driver remains, to vfio-pci.
            wait_until(lambda: clean.at_work("slurm grant "))
            slow.touch()
            wait_until(lambda: clean.at_work(" helper "))
            signal_all(clean.at_work("slurm grant "), signal.SIGKILL)
            assert running.wait(60) != 0
        finally:
            slow.unlink(missing_ok=True)
            running.kill()
    wait_until(clean.nothing_left)
