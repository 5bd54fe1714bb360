"""Virtual machines as nodes of a cluster file. None is started here: tests/guests has real ones."""

import json
import os
import secrets
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import libvirt
import psutil
import pytest
from cluster_file_support import host, read
from command_support import Vicinal, error_line

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.cluster.nodes.network import find_tool
from vicinal.cluster.nodes.placement import place_nodes
from vicinal.cluster.nodes.vm import memory, saving
from vicinal.cluster.nodes.vm.from_file import vms_of
from vicinal.cluster.nodes.vm.hypervisor import user_of_vms
from vicinal.cluster.nodes.vm.layout import Files
from vicinal.cluster.nodes.vm.parallel import run_parallel
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.journal import Entry, Event
from vicinal.cluster.plan.planning import Action, Plan, Step
from vicinal.cluster.plan.resource import Condition, Observation
from vicinal.cluster.plan.state import cluster_directory, journal_of
from vicinal.cluster.resources.all_vms import check_memory
from vicinal.cluster.resources.bridge import BridgeResource
from vicinal.cluster.resources.desired import desired_resources, recorded_resources
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.vm.guest.identity import make_keys
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.libvirt import lifecycle
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, define, observe, save
from vicinal.host.topology import HugePages
from vicinal.region import inspect

IP = find_tool("ip") or "ip"

WHOLE = """\
name: lab
nodes:
  - name: vm
    backend: vm
    count: 3
    cpus: 2
    hugepages: true
placement:
  policy: core
  reserve: 1
hypervisor: qemu:///session
region: none
"""


def vms(cluster: Cluster, region: str | None = "r") -> tuple[Vm, ...]:
    """The VMs of a cluster on a host with two sockets of four cores with two threads each."""
    cpus, numa = host(2, 4, 2)
    return vms_of(cluster, place_nodes(cluster, cpus, numa), region, cpus, numa)


def test_what_a_file_says_of_vms(tmp_path: Path) -> None:
    cluster = read(tmp_path, WHOLE)
    assert cluster.hypervisor == "qemu:///session"
    assert cluster.region is None
    assert {node.backend for node in cluster.nodes} == {BackEnd.VM}
    assert {node.memory_bytes for node in cluster.nodes} == {1 << 30}
    assert all(node.hugepages for node in cluster.nodes)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "hugepages: true",
            "runtime: crun",
            "cluster.yaml:7: nodes[0] has the backend vm, and runtime is only for container: "
            "remove runtime, or choose the backend container",
        ),
        ("hugepages: true", "mounts: [/data]", "cluster.yaml:7: nodes[0] has the backend vm"),
        (
            "backend: vm",
            "backend: container",
            "cluster.yaml:7: nodes[0] has the backend container, and hugepages is only for vm",
        ),
        (
            "    backend: vm\n    count: 3\n    cpus: 2\n    hugepages: true\n",
            "",
            "cluster.yaml:7: hypervisor is set, and no node is a virtual machine",
        ),
        ("backend: vm", "backend: cloud", "choose host, container or vm"),
        ("qemu:///session", "xen:///", "cluster.yaml:11: hypervisor cannot be"),
        ("region: none", "region: some", "cluster.yaml:12: region cannot be"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert WHOLE.count(old) == 1
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, WHOLE.replace(old, new))
    assert said in str(caught.value)


def test_a_region_can_be_a_memory_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WHOLE.replace("region: none", "region: {members: 4}")
    assert {each.region_device for each in vms(read(tmp_path, plain))} == {"ivshmem-plain"}
    cluster = read(tmp_path, WHOLE.replace("region: none", "region: {members: 4, device: nvdimm}"))
    (vm, *_) = made = vms(cluster)
    assert {each.region_device for each in made} == {"nvdimm"}
    assert decode(Vm, json.loads(json.dumps(encode(vm)))) == vm

    assert cluster.region is not None
    monkeypatch.setattr("vicinal.cluster.resources.region._DIRECTORY", tmp_path)
    resource = RegionResource.of(cluster, cluster.region)
    resource = RegionResource.from_settings(json.loads(json.dumps(dict(resource.settings))))
    resource.create()
    assert inspect(resource.path).offset > 0
    assert resource.observe().condition is Condition.READY
    settings = dict(resource.settings) | {"device": "ivshmem-plain"}
    other = RegionResource.from_settings(settings).observe()
    assert other.condition is Condition.BROKEN
    assert "of another device" in other.why
    resource.remove()
    with pytest.raises(VicinalError, match=r"region\.device cannot be"):
        read(tmp_path, WHOLE.replace("region: none", "region: {device: cxl}"))


def test_a_region_can_interrupt_by_a_server_of_the_clusters(tmp_path: Path) -> None:
    text = WHOLE.replace("region: none", "region: {members: 4, device: ivshmem-doorbell}")
    cluster = read(tmp_path, text)
    cpus, numa = host(2, 4, 2)
    resources = {each.key: each for each in desired_resources(cluster, cpus, numa)}
    keys = list(resources)
    assert keys.index("region/main") < keys.index("doorbell/main") < keys.index("vm/vm0")
    # If a server serves another region or another number of VMs, the VMs are made anew. A
    # dead server has no such effect.
    assert "region/main" in resources["doorbell/main"].needs
    vm = resources["vm/vm0"]
    assert isinstance(vm, VmResource)
    assert "doorbell/main" in vm.needs
    assert vm.vm.doorbell == f"{resources['doorbell/main'].settings['directory']}/socket"
    for other in ("{members: 4}", "{members: 4, device: nvdimm}", "none"):
        cluster = read(tmp_path, WHOLE.replace("region: none", f"region: {other}"))
        plain = desired_resources(cluster, cpus, numa)
        assert "doorbell/main" not in {each.key for each in plain}
        assert all("doorbell/main" not in each.needs for each in plain)


def test_vms_are_pinned_and_qemu_besides(tmp_path: Path) -> None:
    made = vms(read(tmp_path, WHOLE))
    assert [each.processors for each in made] == [(1, 2), (3, 4), (5, 6)]
    # Both threads of the core that is reserved for the host.
    assert {each.emulator for each in made} == {(0, 8)}
    assert {each.memory_nodes for each in made} == {()}
    without = WHOLE.replace("  reserve: 1\n", "")
    assert [each.emulator for each in vms(read(tmp_path, without))] == [(0, 1), (2, 3), (4, 5)]
    free = WHOLE.replace("policy: core\n  reserve: 1", "policy: none")
    assert {(each.processors, each.emulator) for each in vms(read(tmp_path, free))} == {((), ())}


def test_memory_comes_from_the_numa_node_where_that_is_the_policy(tmp_path: Path) -> None:
    text = WHOLE.replace("count: 3", "count: 2").replace(
        "policy: core\n  reserve: 1", "policy: numa"
    )
    made = vms(read(tmp_path, text))
    assert [each.memory_nodes for each in made] == [(0,), (1,)]
    assert [each.processors for each in made] == [(0, 1), (4, 5)]


def test_three_vms_are_joined_by_a_bridge_or_by_wires(tmp_path: Path) -> None:
    system = WHOLE.replace("/session", "/system")
    bridges = {each.bridge for each in vms(read(tmp_path, system))}
    assert len(bridges) == 1
    assert len(str(bridges.pop())) <= 15
    two = vms(read(tmp_path, system.replace("count: 3", "count: 2")))
    assert {each.bridge for each in two} == {None}
    assert {each.bridge for each in vms(read(tmp_path, WHOLE))} == {None}
    # The host has room for two VMs with this placement, and wires connect at most 64.
    many = WHOLE.replace("count: 3", "count: 65").replace(
        "policy: core\n  reserve: 1", "policy: none"
    )
    with pytest.raises(VicinalError, match="need a bridge: wires join at most 64"):
        vms(read(tmp_path, many))


def test_each_wire_has_two_ends_and_leads_to_one_neighbour(tmp_path: Path) -> None:
    four = WHOLE.replace("count: 3", "count: 4").replace(
        "policy: core\n  reserve: 1", "policy: none"
    )
    identities = [each.identity for each in vms(read(tmp_path, four))]
    cards = {each.address: each.cards for each in identities}
    assert {len(each) for each in cards.values()} == {3}
    assert len({card.mac for each in cards.values() for card in each}) == 12
    for address, own in cards.items():
        assert {card.peer for card in own} == set(cards) - {address}
    files = Files(tmp_path)
    ends = {files.wire(one, other) for one in range(4) for other in range(4) if one != other}
    assert len(ends) == 12


def test_every_guest_gets_its_own_identity(tmp_path: Path) -> None:
    import tarfile

    guests = [each.identity for each in vms(read(tmp_path, WHOLE))]
    keys = make_keys(tmp_path, guests)
    for guest in guests:
        with tarfile.open(keys.archive(guest.name)) as tar:

            def text(name: str, tar: tarfile.TarFile = tar) -> str:
                member = tar.extractfile(name)
                assert member is not None
                return member.read().decode()

            assert text("etc/hostname") == f"{guest.name}\n"
            hosts = ["10.0.0.1 vm0", "10.0.0.2 vm1", "10.0.0.3 vm2"]
            assert text("etc/hosts").splitlines()[1:] == hosts
            assert f"address={guest.address}/16\n" in text("etc/vicinal/guest")
            assert all(card.mac in text("etc/vicinal/guest") for card in guest.cards)
            known = ",".join(reversed(" ".join(reversed(hosts)).split()))
            assert text("etc/ssh/known_hosts").startswith(f"{known} ssh-")


def test_vms_are_known_by_their_settings_alone(tmp_path: Path) -> None:
    region = "{members: 4, device: ivshmem-doorbell}\n"
    cluster = read(tmp_path, WHOLE.replace("count: 3", "count: 2").replace("none\n", region))
    cpus, numa = host(2, 4, 2)
    for resource in desired_resources(cluster, cpus, numa):
        settings = json.loads(json.dumps(dict(resource.settings)))
        entry = Entry(resource.key, settings, resource.needs, Event.MADE)
        again = recorded_resources({resource.key: entry})[resource.key]
        assert type(again) is type(resource)
        assert (again.key, dict(again.settings)) == (resource.key, dict(resource.settings))
        assert again.needs == resource.needs


def test_a_host_out_of_memory_is_known_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [replace(each, hugepages=False) for each in vms(read(tmp_path, WHOLE))]

    def plan(*made: Vm) -> Plan:
        return Plan(tuple(Step(Action.CREATE, VmResource(each), "") for each in made))

    room = psutil.virtual_memory()._replace(available=3 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: room)
    check_memory(plan(*small))
    larger = [*small[:2], replace(small[2], memory_mib=1025)]
    with pytest.raises(VicinalError, match=r"need 3.0 GiB of memory, and 3.0 GiB is free"):
        check_memory(plan(*larger))
    with pytest.raises(VicinalError, match=r"of huge pages, and .* is free: .*nr_hugepages"):
        check_memory(plan(replace(small[0], hugepages=True, memory_mib=1 << 30)))
    _, nodes = host(2, 4, 2)
    nodes = [replace(each, available_bytes=2 << 30) for each in nodes]
    monkeypatch.setattr(memory, "read_nodes", lambda _host: nodes)
    tied = replace(small[0], memory_nodes=(1,), memory_mib=2048)
    check_memory(plan(tied, replace(small[1], memory_nodes=(0,))))
    with pytest.raises(VicinalError, match=r"2.0 GiB of memory of NUMA node 1, and 2.0 GiB is"):
        check_memory(plan(replace(tied, memory_mib=2049)))
    tied = replace(small[0], memory_nodes=(1,), hugepages=True)
    monkeypatch.setattr(memory, "read_huge_pages", lambda _host: [HugePages(2 << 20, 4096, 4096)])
    with pytest.raises(VicinalError, match=r"of huge pages of NUMA node 1, .*system/node"):
        check_memory(plan(tied))


def test_a_path_without_room_for_sockets_is_an_error(tmp_path: Path) -> None:
    Files(Path("/run/short")).check_lengths(3)
    with pytest.raises(VicinalError, match="too long for sockets in it: set XDG_STATE_HOME"):
        Files(tmp_path / ("long" * 30)).check_lengths(3)


def test_a_libvirt_that_cannot_make_them(vicinal: Vicinal, tmp_path: Path) -> None:
    """The plan asks libvirt which VMs exist."""
    file = tmp_path / "cluster.yaml"
    socket = tmp_path / "none"
    file.write_text(
        "name: lab\nnodes: [{name: vm, backend: vm}]\n"
        f"hypervisor: 'qemu+unix:///system?socket={socket}'\n"
    )
    line = error_line(vicinal("plan", str(file), XDG_STATE_HOME=str(tmp_path)))
    if os.geteuid() == 0:
        assert "cannot be reached" in line
    else:
        assert "set `hypervisor` to qemu:///session, or run as root" in line
    assert not list(tmp_path.glob("vicinal/**/journal"))


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a network interface that this host does not have."""
    name = f"vicinal-t{secrets.token_hex(3)}"
    yield name
    subprocess.run([IP, "link", "delete", name], capture_output=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes bridges")
def test_a_bridge_is_made_and_taken_away(name: str) -> None:
    bridge = BridgeResource(name, "0-lab")
    assert bridge.observe().condition is Condition.ABSENT
    bridge.create()
    interface = Path("/sys/class/net") / name
    assert (interface / "bridge").is_dir()
    assert bridge.observe().condition is Condition.READY
    subprocess.run([IP, "link", "set", name, "down"], check=True)
    assert bridge.observe().condition is Condition.BROKEN
    bridge.remove()
    assert not interface.exists()
    bridge.remove()  # a second time, there is nothing to do


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes bridges")
def test_a_bridge_of_somebody_elses_is_left_alone(name: str) -> None:
    subprocess.run([IP, "link", "add", name, "type", "bridge"], check=True)
    subprocess.run([IP, "link", "set", name, "alias", "theirs"], check=True)
    bridge = BridgeResource(name, "0-lab")
    assert bridge.observe().condition is Condition.BROKEN
    with pytest.raises(VicinalError, match="could not be created or removed"):
        bridge.create()
    bridge.remove()
    assert (Path("/sys/class/net") / name).exists()


def test_what_fails_first_is_said_at_once() -> None:
    goes_on = threading.Event()

    def fails() -> None:
        raise VicinalError("no", "never")

    try:
        with pytest.raises(VicinalError, match="no"):
            run_parallel([partial(goes_on.wait, 60.0), fails])
    finally:
        goes_on.set()
    done: list[int] = []
    run_parallel([partial(done.append, number) for number in range(3)])
    assert sorted(done) == [0, 1, 2]


def test_no_job_over_both_kinds(
    vicinal: Vicinal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers and VMs share a region but no network."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = read(
        tmp_path, "name: lab\nnodes: [{name: box}, {name: vm, backend: vm}]\nregion: none\n"
    )
    cpus, numa = host(2, 4, 2)
    cluster_directory("lab").mkdir(parents=True)
    for resource in desired_resources(cluster, cpus, numa):
        journal_of("lab").write(resource, Event.MADE)
    line = error_line(vicinal("run", "--cluster", "lab", "-n", "2", "true"))
    assert "its containers and virtual machines have no network between them" in line


@pytest.fixture
def hypervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hypervisor]:
    """libvirt's test driver, which runs nothing, instead of the VMs' libvirt."""
    connection = libvirt.open("test:///default")
    found = Hypervisor("test:///default", connection)
    for module in ("resources.vms", "nodes.vm.saving"):
        monkeypatch.setattr(f"vicinal.cluster.{module}.hypervisor_at", lambda _: found)
    yield found
    for domain in connection.listAllDomains():  # the driver keeps domains until the process ends
        if domain.name() != "test":
            if domain.isActive():
                domain.destroy()
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
    connection.close()


def test_a_vm_is_what_its_domain_says(hypervisor: Hypervisor, tmp_path: Path) -> None:
    vm = vms(read(tmp_path, WHOLE))[0]
    resource = VmResource(vm)
    spec = DomainSpec(
        name=vm.domain,
        cluster=vm.owner,
        node=vm.name,
        boot=DirectBoot(Path("/boot/kernel"), Path("/boot/initrd")),
        console=tmp_path / "console",
    )
    assert resource.observe().condition is Condition.ABSENT
    resource.remove()  # nothing to do
    define(hypervisor, spec)
    assert resource.observe() == Observation(Condition.STOPPED, "it is off")
    resource.start()
    assert resource.observe().condition is Condition.READY
    hypervisor.connection.lookupByName(spec.name).suspend()
    assert resource.observe() == Observation(Condition.STOPPED, "it is paused")
    resource.start()
    assert resource.observe().condition is Condition.READY
    resource.remove()
    assert resource.observe().condition is Condition.ABSENT
    # A domain of the same name that another user's cluster owns: clusters of two users may have the
    # same name.
    define(hypervisor, replace(spec, cluster="1000-lab"))
    assert resource.observe().condition is Condition.BROKEN
    resource.remove()
    assert hypervisor.connection.lookupByName(spec.name).isPersistent()


def test_qemu_is_this_user_where_it_could_be_another(
    hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/guests/cluster/test_cluster_saving.py has a real QEMU."""
    monkeypatch.setattr(Hypervisor, "qemu_user", lambda _: None)
    assert user_of_vms(hypervisor) is None
    monkeypatch.setattr(Hypervisor, "qemu_user", lambda _: (64055, 64055))
    assert user_of_vms(hypervisor) == (os.geteuid(), os.getegid())


@pytest.fixture
def two(hypervisor: Hypervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Vm]:
    """Two VMs that run, in the test driver."""
    monkeypatch.setattr(saving, "QUIET_SECONDS", 0.0)
    restore = lifecycle.restore

    def restore_paused(hypervisor: Hypervisor, name: str, *, paused: bool = False) -> None:
        """Restore and then suspend, because the test driver cannot start a domain paused."""
        restore(hypervisor, name)
        if paused:
            lifecycle.suspend(hypervisor, name)

    monkeypatch.setattr(lifecycle, "restore", restore_paused)
    found = []
    for each in vms(read(tmp_path, WHOLE), None)[:2]:
        vm = replace(each, directory=str(tmp_path))
        boot = DirectBoot(Path("/boot/kernel"), Path("/boot/initrd"))
        console = tmp_path / "console"
        spec = DomainSpec(
            name=vm.domain,
            cluster=vm.owner,
            node=vm.name,
            boot=boot,
            console=console,
        )
        define(hypervisor, spec)
        VmResource(vm).start()
        found.append(vm)
    return found


def test_saved_vms_come_back_and_stand_still(two: list[Vm], hypervisor: Hypervisor) -> None:
    saving.save_vms(two)
    for vm in two:
        assert observe(hypervisor, vm.domain) is DomainState.SAVED
        assert VmResource(vm).observe() == Observation(Condition.STOPPED, "it is saved")
    for vm in two:
        VmResource(vm).start()
        VmResource(vm).start()  # stays paused until the other is restored
        assert observe(hypervisor, vm.domain) is DomainState.PAUSED
        assert vm.saved.exists()


def test_if_one_cannot_be_saved_all_run_on(
    two: list[Vm], hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_one(_: Hypervisor, name: str, *, with_region: bool) -> None:
        if name == two[1].domain:
            raise VicinalError("no room", "make some")
        save(hypervisor, name, with_region=with_region)

    monkeypatch.setattr(lifecycle, "save", save_one)
    with pytest.raises(VicinalError, match="no room"):
        saving.save_vms(two)
    for vm in two:
        assert observe(hypervisor, vm.domain) is DomainState.RUNNING
    # If QEMU started anew, the VM's console no longer shows that the VM has booted.
    assert [vm.saved.exists() for vm in two] == [True, False]


def test_none_goes_on_without_one_that_does_not_come_back(
    two: list[Vm], hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other VM has written to the region since, and a restore would overwrite that."""

    def save_one(_: Hypervisor, name: str, *, with_region: bool) -> None:
        if name == two[1].domain:
            raise VicinalError("no room", "make some")
        save(hypervisor, name, with_region=with_region)

    def fail(*_: object, **__: object) -> None:
        raise VicinalError("no memory", "end something")

    monkeypatch.setattr(lifecycle, "save", save_one)
    restore = lifecycle.restore
    monkeypatch.setattr(lifecycle, "restore", fail)
    with pytest.raises(VicinalError, match="no room; no memory; no VM resumes"):
        saving.save_vms(two)
    states = [observe(hypervisor, vm.domain) for vm in two]
    assert states == [DomainState.SAVED, DomainState.PAUSED]
    monkeypatch.setattr(lifecycle, "restore", restore)
    for vm in two:
        VmResource(vm).start()


def test_keys_in_a_guest_are_their_users_alone(tmp_path: Path) -> None:
    """ssh refuses a private key that others can read; sshd refuses directories of other users."""
    import tarfile

    guests = [each.identity for each in vms(read(tmp_path, WHOLE))]
    keys = make_keys(tmp_path, guests)
    with tarfile.open(keys.archive(guests[0].name)) as tar:
        modes = {each.name: (each.mode, each.uid) for each in tar}
    (directory,) = (name for name in modes if name.endswith("/.ssh"))
    user = modes[directory][1]
    assert user != 0
    assert modes[directory] == (0o700, user)
    assert modes[f"{directory}/authorized_keys"] == (0o600, user)
    assert modes["etc/ssh/user_key"] == (0o600, user)
    assert modes["etc/ssh/host_key"] == (0o600, 0)
    assert keys.archive(guests[0].name).stat().st_mode & 0o077 == 0
