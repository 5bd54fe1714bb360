"""Clusters and Vicinal's own libvirt: who starts and ends it, and which libvirt a cluster has.

The daemon is real; no VM starts.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest
from cluster_file_support import host, read
from command_support import Vicinal, error_line

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.manager import plan_cluster
from vicinal.cluster.nodes.vm.hypervisor import check_usable, has_vms, hypervisor_at
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.resource import Condition, Resource
from vicinal.cluster.plan.state import cluster_directory, cluster_names, journal_of
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.libvirt import LibvirtResource
from vicinal.cluster.vm.libvirt import uri as uri_module
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon
from vicinal.cluster.vm.libvirt.uri import default_uri, is_own, own_uri
from vicinal.host.libvirt_daemons import OWN_DAEMON
from vicinal.host.system import Host

FILE = "name: lab\nnodes: [{name: vm, backend: vm}]\nregion: none\n"
VM = (
    "<domain type='qemu'><name>theirs</name><memory>65536</memory>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a system libvirt"),
    pytest.mark.skipif(Host().program(OWN_DAEMON) is None, reason="libvirtd is not installed"),
    pytest.mark.timeout(120.0),
]


@pytest.fixture(autouse=True)
def daemon(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    """The daemon of a user who has nothing yet, on a host whose system libvirt does not answer."""
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)
    monkeypatch.setattr(uri_module, "system_answers", lambda _: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    # Not pytest's own directory, because paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="vicinal-test-") as name:
        monkeypatch.setenv("XDG_STATE_HOME", name)
        found = Daemon.of_this_user()
        yield found
        found.end()


def begun(name: str) -> LibvirtResource:
    """A cluster's use of the daemon, which is in the journal before its creation."""
    resource = LibvirtResource(name)
    cluster_directory(name).mkdir(parents=True)
    journal_of(name).write(resource, Event.BEGUN)
    return resource


def kill(daemon: Daemon) -> None:
    process = daemon.process
    assert process is not None
    os.kill(process, signal.SIGKILL)
    while daemon.process is not None or daemon.answers():
        time.sleep(0.01)


def test_it_runs_from_the_first_cluster_to_the_last(daemon: Daemon) -> None:
    first = LibvirtResource("first")
    assert first.observe().condition is Condition.ABSENT
    first = begun("first")
    first.create()
    process = daemon.process
    assert first.observe().condition is Condition.READY
    # Another cluster does not use the daemon yet.
    assert LibvirtResource("second").observe().condition is Condition.ABSENT
    second = begun("second")
    second.create()
    assert daemon.process == process

    journal_of("first").write(first, Event.REMOVING)
    first.remove()
    assert daemon.process == process
    journal_of("first").write(first, Event.REMOVED)
    assert first.observe().condition is Condition.ABSENT
    second.remove()
    assert daemon.process is None
    assert not daemon.directory.exists()
    second.remove()  # again: nothing to do


def test_what_somebody_made_there_by_hand_is_not_lost(daemon: Daemon) -> None:
    resource = begun("lab")
    resource.create()
    connection = libvirt.open(daemon.uri)
    theirs = connection.defineXML(VM)
    with pytest.raises(VicinalError, match="still has domains of no cluster: theirs: remove"):
        resource.remove()
    assert daemon.answers()
    theirs.undefine()
    connection.close()
    resource.remove()
    assert not daemon.answers()


def test_one_that_died_is_started_by_who_needs_it(daemon: Daemon) -> None:
    resource = begun("lab")
    resource.create()
    kill(daemon)
    assert resource.observe().condition is Condition.STOPPED
    resource.start()
    assert resource.observe().condition is Condition.READY
    kill(daemon)
    first = hypervisor_at(daemon.uri)
    assert daemon.answers()
    assert hypervisor_at(daemon.uri) is first
    kill(daemon)
    deadline = time.monotonic() + 60
    while first.alive and time.monotonic() < deadline:  # this process learns it a moment later
        time.sleep(0.01)
    again = hypervisor_at(daemon.uri)
    assert again.connection.listAllDomains() == []
    kill(daemon)
    resource.remove()
    assert not daemon.directory.exists()


def test_a_cluster_whose_journal_is_unreadable_keeps_it(daemon: Daemon) -> None:
    resource = begun("lab")
    resource.create()
    cluster_directory("broken").mkdir()
    (cluster_directory("broken") / "journal").write_text("no line of ours\n")
    resource.remove()
    assert daemon.answers()


def test_which_libvirt_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_uri() == own_uri()
    assert is_own(own_uri())
    assert not is_own("qemu:///system")
    assert not is_own("qemu+unix:///system?socket=/run/other")
    assert not is_own(own_uri().replace("qemu+unix://", "qemu+ssh://host"))
    monkeypatch.setattr(uri_module, "system_answers", lambda _: True)
    assert default_uri() == "qemu:///system"
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu:///session")
    assert default_uri() == "qemu:///session"


def test_to_look_starts_nothing(vicinal: Vicinal, daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    done = vicinal("plan", str(file))
    assert done.returncode == 2, done.stderr
    # The VMs depend on it.
    lines = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("+")]
    assert lines == ["libvirt/main", "vms/main", "vm/vm", "guests/main"]
    check_usable(own_uri())
    assert not has_vms(own_uri())
    assert not daemon.directory.exists()
    assert "`vicinal up` starts the daemon" in vicinal("doctor", "libvirt").stdout
    daemon.start()
    said = vicinal("doctor", "libvirt").stdout
    assert f"Vicinal's own libvirt: the daemon answers at {daemon.directory}/libvirt-sock" in said


def test_without_the_program_it_is_said_before_anything_is_made(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Host, "program", lambda *_: None)
    cluster = read(tmp_path, FILE)
    with pytest.raises(VicinalError, match="to start one, is not there"):
        resources(cluster)
    with pytest.raises(VicinalError, match="to start one, is not there"):
        check_usable(own_uri())
    assert not daemon.directory.exists()


def test_a_cluster_stays_with_the_libvirt_that_has_its_vms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = read(tmp_path, FILE)
    cluster_directory("lab").mkdir(parents=True)
    for resource in resources(cluster):
        journal_of("lab").write(resource, Event.MADE)
    monkeypatch.setattr(uri_module, "system_answers", lambda _: True)
    reasons = {step.key: step.why for step in plan_cluster(cluster) if step.action == "remove"}
    assert reasons == dict.fromkeys(("vms/main", "vm/vm", "guests/main"), "it is gone")
    # A named libvirt is the one to use. If it does not answer, nothing is removed because of it.
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu:///system")
    with pytest.raises(VicinalError, match="libvirt at qemu:///system cannot be reached"):
        plan_cluster(cluster)
    monkeypatch.setattr("vicinal.cluster.manager.check_plan", lambda _: None)
    reasons = {step.key: step.why for step in plan_cluster(cluster) if step.action == "remove"}
    assert reasons["libvirt/main"] == "the file no longer has it"
    assert reasons["vm/vm"] == "the file changes it"


def test_an_up_that_cannot_start_it_leaves_nothing(
    vicinal: Vicinal, daemon: Daemon, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / OWN_DAEMON
    program.write_text("#!/bin/sh\necho no such luck >&2; exit 1\n")
    program.chmod(0o755)
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    line = error_line(vicinal("up", "--quiet", str(file), PATH=f"{programs}:{os.environ['PATH']}"))
    assert "libvirtd, started because no libvirt of the system answers, ended" in line
    assert "no such luck" in line
    assert cluster_names() == []
    assert not daemon.directory.exists()


def resources(cluster: Cluster) -> list[Resource]:
    cpus, numa = host(1, 2, 1)
    return desired_resources(cluster, cpus, numa)


def test_down_after_a_kill_in_the_middle_ends_it(vicinal: Vicinal, daemon: Daemon) -> None:
    begun("lab").create()
    done = vicinal("down", "lab")
    assert done.returncode == 0, done.stderr
    assert "removing libvirt/main" in done.stderr
    assert not daemon.directory.exists()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(daemon.directory) not in listed.stdout
