"""Clusters whose VMs' libvirt does not answer: messages about them, and how they end.

No VM starts: a process with a VM's command line stands for a running VM.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest
from cluster_file_support import host, read
from command_support import Vicinal, error_line

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts import managing
from vicinal.cluster.hosts.connection import Listener, Request
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.manager import take_down
from vicinal.cluster.nodes.vm import hypervisor
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.planning import Shown
from vicinal.cluster.plan.resource import Condition
from vicinal.cluster.plan.state import cluster_directory, cluster_names, journal_of
from vicinal.cluster.resources import all_vms
from vicinal.cluster.resources import vms as vms_module
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.lifecycle import define, start
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.cluster.vm.libvirt.uri import own_uri

FILE = (
    "name: lab\nnodes: [{{name: vm, backend: vm, count: 2}}]\nregion: none\nhypervisor: '{uri}'\n"
)


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A libvirt URI at which no daemon listens, for a user who has no other cluster."""
    with tempfile.TemporaryDirectory(prefix="vicinal-test-") as name:
        monkeypatch.setenv("XDG_STATE_HOME", name)
        yield f"qemu+unix:///session?socket={name}/nobody"


@pytest.fixture
def made(uri: str, tmp_path: Path) -> list[Vm]:
    """The VMs of a cluster that was created with this libvirt."""
    return make(tmp_path, uri)


def make(directory: Path, uri: str) -> list[Vm]:
    cpus, numa = host(1, 4, 1)
    cluster_directory("lab").mkdir(parents=True)
    vms = []
    for resource in desired_resources(read(directory, FILE.format(uri=uri)), cpus, numa):
        journal_of("lab").write(resource, Event.MADE)
        if isinstance(resource, VmResource):
            vms.append(resource.vm)
    vms[0].files.directory.mkdir()
    return vms


@contextmanager
def running(vm: Vm) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the VM's QEMU, as libvirt starts it."""
    words = ["-name", f"guest={vm.domain},debug-threads=on", f"path={vm.console},x=y"]
    command = [sys.executable, "-c", "import time; time.sleep(600)", *words]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


def test_status_says_what_is_not_reached(vicinal: Vicinal, made: list[Vm]) -> None:
    done = vicinal("status", "lab")
    assert done.returncode == 1
    assert "cannot be reached" in done.stdout
    assert f"libvirt: {made[0].uri}" in done.stdout


def test_down_says_how_to_go_on_without_it(vicinal: Vicinal, made: list[Vm]) -> None:
    line = error_line(vicinal("down", "--quiet", "lab"))
    assert f"libvirt at {made[0].uri} cannot be reached" in line
    assert line.endswith("never comes back, `vicinal down lab --forget-vms`")
    # Resources that do not need libvirt are removed; the VMs stay in the journal.
    assert not made[0].files.directory.exists()
    assert list(journal_of("lab").entries()) == ["vm/vm0", "vm/vm1"]


def test_vms_are_forgotten_and_what_runs_of_them_ends(vicinal: Vicinal, made: list[Vm]) -> None:
    others = replace(made[0], directory="/somebody/elses")
    with running(made[0]) as ours, running(others) as theirs:
        done = vicinal("down", "--forget-vms", "lab")
        assert done.returncode == 0, done.stderr
        assert ours.wait(60) != 0
        assert theirs.poll() is None
    for vm in made:
        left = f"left behind: the domain {vm.domain}, possibly still defined in {vm.uri}"
        assert left in done.stderr
    assert "lab is down" in done.stderr
    assert cluster_names() == []
    assert not cluster_directory("lab").exists()


def test_a_half_taken_down_cluster_is_forgotten_too(vicinal: Vicinal, made: list[Vm]) -> None:
    assert vicinal("down", "lab").returncode == 1
    assert vicinal("down", "--forget-vms", "lab").returncode == 0
    assert cluster_names() == []
    assert not made[0].files.directory.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has it")
def test_vms_of_our_own_libvirt_end_where_its_state_was_removed(
    uri: str, vicinal: Vicinal, tmp_path: Path
) -> None:
    assert uri
    vm, _ = make(tmp_path, own_uri())
    assert VmResource(vm).observe().condition is Condition.ABSENT
    with running(vm) as process:
        done = vicinal("down", "lab")
        assert done.returncode == 0, done.stderr
        assert process.wait(60) != 0
    assert cluster_names() == []


def test_those_that_a_libvirt_has_are_not_forgotten(
    made: list[Vm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt (here its test driver) answers after all, so the VMs are removed as usual."""
    found = Hypervisor("test:///default", libvirt.open("test:///default"))
    for module in (all_vms, vms_module):
        monkeypatch.setattr(module, "hypervisor_at", lambda _: found)
    for vm in made:
        boot = DirectBoot(Path("/boot/kernel"), Path("/boot/initrd"))
        console = vm.files.directory / "console"
        spec = DomainSpec(
            name=vm.domain,
            cluster=vm.owner,
            node=vm.name,
            boot=boot,
            console=console,
        )
        define(found, spec)
        start(found, vm.domain)
    said: list[str] = []
    assert take_down("lab", forget_vms=True, say=said.append)
    assert said == []
    assert [each.name() for each in found.connection.listAllDomains()] == ["test"]
    assert cluster_names() == []
    found.connection.close()


def test_a_process_that_does_not_end_is_told(
    made: list[Vm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypervisor, "_END_SECONDS", 0.2)
    monkeypatch.setattr("psutil.Process.kill", lambda _: None)
    with running(made[0]) as process, pytest.raises(VicinalError, match="vm0 still") as raised:
        hypervisor.end_orphan(made[0])
    assert raised.value.remedy.endswith(f"`kill -9 {process.pid}`")


def test_hosts_are_told_to_forget_theirs(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents are fakes; a real agent calls take_down() for this request."""
    assert uri
    asked: list[tuple[Request, Mapping[str, object]]] = []

    class FakeConnection:
        def __init__(self, name: str) -> None:
            self.name = name

        def hello(self) -> None:
            pass

        def ask(
            self, request: Request, values: Mapping[str, object], listener: Listener
        ) -> dict[str, object]:
            listener.say(f"{self.name}: left behind")
            asked.append((request, values))
            return {"was_there": True}

    @contextmanager
    def connected(hosts: list[str]) -> Iterator[list[FakeConnection]]:
        yield [FakeConnection(each) for each in hosts]

    monkeypatch.setattr(managing, "connected", connected)
    cluster_directory("lab").mkdir(parents=True)
    journal_of("lab").write(
        HostRecord("lab", "there", ("vm0",), ("vm0",), (), "10.0.0.1", "qemu:///system"),
        Event.MADE,
    )
    said: list[str] = []
    assert take_down("lab", forget_vms=True, say=said.append)
    assert asked == [(Request.DOWN, {"host_part": "lab.there", "forget_vms": True})]
    assert said == ["there: left behind"]
    assert cluster_names() == []


def test_each_vm_is_shown_as_it_is_given_up(made: list[Vm]) -> None:
    shown: list[tuple[str, str]] = []

    def show(step: Shown) -> None:
        shown.append((step.key, step.why))

    def down(**options: Any) -> Callable[[], bool]:
        return lambda: take_down("lab", show, **options)

    with pytest.raises(UnreachableError):
        down()()
    assert ("vm/vm0", "the cluster is removed") in shown
    shown.clear()
    down(forget_vms=True)()
    assert shown == [(f"vm/{each.name}", "its libvirt is lost") for each in reversed(made)]
