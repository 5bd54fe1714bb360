"""Saving and restoring VMs of two hosts: the order of steps, and failures at each step.

No VM runs here (saving_support.py): tests/guests/hosts has real ones.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import libvirt
import pytest
from cluster_file_support import read
from saving_support import FILE, NAME, Killed, Lab, ask_in_order

from vicinal.base.errors import VicinalError
from vicinal.cli import run
from vicinal.cluster.hosts import saving as over_hosts
from vicinal.cluster.hosts.record import SaveRecord, is_half_saved, on_this_host
from vicinal.cluster.hosts.saving import SaveStep, SaveSteps, repair_save
from vicinal.cluster.manager import cluster_state
from vicinal.cluster.nodes.vm import saving
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.state import cluster_directory
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.vm.libvirt import lifecycle
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.lifecycle import DomainState

NODES = ("vm0", "vm1", "vm2", "vm3")
RUNNING = dict.fromkeys(NODES, DomainState.RUNNING)
SAVED = dict.fromkeys(NODES, DomainState.SAVED)
PAUSED = dict.fromkeys(NODES, DomainState.PAUSED)

SAVING = [
    *(f"{node} stands still" for node in NODES),
    *(f"{node} is saved" for node in NODES),
]
RESTORING = [
    *(f"{node} comes back" for node in NODES),
    *(f"{node} goes on" for node in NODES),
]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    connection = libvirt.open("test:///default")
    hypervisor = Hypervisor("test:///default", connection)
    for module in ("nodes.vm.saving", "resources.vms", "resources.guests"):
        monkeypatch.setattr(f"vicinal.cluster.{module}.hypervisor_at", lambda _: hypervisor)
    monkeypatch.setattr(saving, "QUIET_SECONDS", 0.0)
    for name in ("check_unused", "end_guest_ssh"):
        monkeypatch.setattr(saving, name, lambda _: None)
    for directory in (NAME, f"{NAME}.a", f"{NAME}.b"):
        cluster_directory(directory).mkdir(parents=True)
    found = Lab(read(tmp_path, FILE), hypervisor)
    monkeypatch.setattr(over_hosts, "connected", found.connected)
    monkeypatch.setattr(over_hosts, "ask_all", ask_in_order)
    real = {name: getattr(lifecycle, name) for name in ("suspend", "save", "restore", "resume")}

    def suspend(at: Hypervisor, name: str) -> None:
        found.before(name, "stands still")
        real["suspend"](at, name)

    def save(at: Hypervisor, name: str, *, with_region: bool) -> None:
        found.before(name, "is saved")
        real["save"](at, name, with_region=with_region)

    def restore(at: Hypervisor, name: str, *, paused: bool) -> None:
        found.before(name, "comes back")
        assert paused
        real["restore"](at, name)
        real["suspend"](at, name)  # the test driver cannot start a domain paused

    def resume(at: Hypervisor, name: str) -> None:
        if lifecycle.observe(at, name) is DomainState.PAUSED:
            found.before(name, "goes on")
            real["resume"](at, name)

    for each in (suspend, save, restore, resume):
        monkeypatch.setattr(lifecycle, each.__name__, each)
    # These VMs have no guest to wait for.
    monkeypatch.setattr(GuestsResource, "create", lambda _: found.log.append("they are entered"))
    yield found
    found.kill_agents()
    for domain in connection.listAllDomains():  # the driver keeps domains until the process ends
        if domain.name() != "test":
            if domain.isActive():
                domain.destroy()
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
    connection.close()


def test_all_stand_still_before_one_is_saved_and_all_are_back_before_one_goes_on(lab: Lab) -> None:
    lab.save()
    assert lab.log == SAVING
    lab.check(SAVED, saved=True)
    with pytest.raises(VicinalError, match="no virtual machine of lab runs"):
        lab.save()
    lab.check(SAVED, saved=True)
    lab.log.clear()
    lab.restore()
    assert lab.log == [*RESTORING, "they are entered", "they are entered"]
    lab.check(RUNNING)
    lab.log.clear()
    lab.restore()
    assert lab.log == []  # nothing is saved
    lab.save()
    lab.check(SAVED, saved=True)


def failing(lab: Lab, at: str, error: BaseException) -> None:
    """Let one action fail, once."""
    failed: list[str] = []

    def fail(what: str) -> None:
        if what == at and not failed:
            failed.append(what)
            raise error

    lab.stop_at = fail


@pytest.mark.parametrize("error", [VicinalError("no room", "make some"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", SAVING)
def test_what_fails_on_one_host_has_all_run_on(lab: Lab, step: str, error: BaseException) -> None:
    failing(lab, step, error)
    with pytest.raises(type(error)) as raised:
        lab.save()
    if isinstance(raised.value, VicinalError):
        host = "a" if step[:3] in ("vm0", "vm1") else "b"
        assert raised.value.message == f"host {host}: no room"
    lab.check(RUNNING)
    # If QEMU started anew, the VM's console no longer shows that the VM has booted.
    again = {each.split()[0] for each in lab.log if each.endswith("comes back")}
    assert again == {each.split()[0] for each in lab.log if each.endswith("is saved")}
    assert {name for name, each in lab.vms.items() if each.saved.exists()} == again
    lab.save()
    lab.check(SAVED, saved=True)


def test_nothing_is_begun_where_one_host_cannot_save(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unused(vm: Vm) -> None:
        if vm.name == "vm3":
            raise VicinalError("a command of this host runs in vm3", "wait for its end")

    monkeypatch.setattr(saving, "check_unused", unused)
    with pytest.raises(VicinalError, match="runs in vm3"):
        lab.save()
    assert lab.log == []
    lab.check(RUNNING)


def killing(lab: Lab, at: int) -> None:
    """Kill the command after `at` actions. The command does nothing more after that."""

    def die(_: str) -> None:
        if len(lab.log) >= at:
            raise Killed

    lab.stop_at = die


@pytest.mark.parametrize("at", range(len(SAVING)))
def test_hosts_let_their_vms_go_on_when_the_command_is_killed(lab: Lab, at: int) -> None:
    killing(lab, at)
    with pytest.raises(Killed):
        lab.save()
    assert len(lab.log) == at
    lab.is_killed()
    assert lab.states() == RUNNING, lab.log
    assert is_half_saved(lab.journal.entries())
    repair_save(lab.journal)
    lab.check(RUNNING)
    lab.save()
    lab.check(SAVED, saved=True)


@pytest.mark.parametrize("at", range(len(SAVING)))
@pytest.mark.parametrize("repair", [Lab.restore, Lab.save])
def test_what_hosts_cannot_undo_the_next_command_does(
    lab: Lab, at: int, repair: Callable[[Lab], None]
) -> None:
    """The agents are killed too."""
    killing(lab, at)
    with pytest.raises(Killed):
        lab.save()
    lab.kill_agents()
    assert lab.states() != RUNNING or at == 0
    repair(lab)
    if repair is Lab.save:
        lab.check(SAVED, saved=True)
    else:
        lab.check(RUNNING)


def test_a_command_killed_when_only_some_know_that_all_are_saved(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = SaveSteps.do

    def told(steps: SaveSteps, step: SaveStep) -> dict[str, Any]:
        if step is SaveStep.KEEP:
            lab.log.append("kept")
            if lab.log.count("kept") == 2:
                raise Killed
        return do(steps, step)

    monkeypatch.setattr(SaveSteps, "do", told)
    with pytest.raises(Killed):
        lab.save()
    lab.is_killed()
    saved, running = DomainState.SAVED, DomainState.RUNNING
    assert lab.states() == {"vm0": saved, "vm1": saved, "vm2": running, "vm3": running}
    lab.checked = False  # the VMs of b run, so the check of the order does not hold
    lab.restore()
    lab.check(RUNNING)


@pytest.mark.parametrize("step", RESTORING)
def test_what_does_not_come_back_is_waited_for(lab: Lab, step: str) -> None:
    lab.save()
    failing(lab, step, VicinalError("no memory", "make some"))
    with pytest.raises(
        VicinalError, match="no virtual machine of lab resumes before all can"
    ) as raised:
        lab.restore()
    assert "no memory; no virtual machine" in raised.value.message
    assert "call `vicinal restore lab` again" in raised.value.remedy
    if step.endswith("comes back"):
        late = step.split()[0]
        assert lab.states() == {**PAUSED, late: DomainState.SAVED}
    else:
        assert lab.states() == PAUSED  # and VMs that had resumed are paused again
    assert is_half_saved(lab.journal.entries())
    lab.restore()
    lab.check(RUNNING)


@pytest.mark.parametrize("at", range(len(RESTORING)))
def test_a_restore_that_is_killed_is_gone_on_with(lab: Lab, at: int) -> None:
    lab.save()
    lab.log.clear()
    killing(lab, at)
    with pytest.raises(Killed):
        lab.restore()
    lab.is_killed()
    assert DomainState.OFF not in lab.states().values()
    assert ("vm0 goes on" in lab.log) == (DomainState.RUNNING in lab.states().values())
    lab.restore()
    lab.check(RUNNING)


def test_a_host_that_is_lost_meanwhile_is_named_and_the_others_go_on(lab: Lab) -> None:
    def lose(what: str) -> None:
        if what == "vm2 is saved":
            lab.lost.add("b")
            raise VicinalError("no", "nobody hears it")

    lab.stop_at = lose
    # Host b does not receive the request to resume, and its VMs stay paused.
    lab.checked = False
    with pytest.raises(VicinalError, match="the virtual machines of b may still be paused") as got:
        lab.save()
    assert "host b: ssh does not reach it" in got.value.message
    assert "then `vicinal start lab`" in got.value.remedy
    lab.stop_at = lambda _: None
    running = {name: state for name, state in lab.states().items() if name in ("vm0", "vm1")}
    assert set(running.values()) == {DomainState.RUNNING}
    assert is_half_saved(lab.journal.entries())
    with pytest.raises(VicinalError, match="ssh does not reach it"):
        lab.restore()
    lab.lost.clear()
    lab.restore()
    lab.check(RUNNING)


@pytest.mark.parametrize("node", ["vm0", "vm2"])
def test_none_goes_on_without_one_that_does_not_come_back(lab: Lab, node: str) -> None:
    """Other VMs have written to the region since, and a restore would overwrite that."""

    def fail(what: str) -> None:
        if what in ("vm3 is saved", f"{node} comes back"):
            raise VicinalError(f"not so: {what}", "mend it")

    lab.stop_at = fail
    with pytest.raises(
        VicinalError, match=r"vm3 is saved.*no virtual machine resumes before all can"
    ) as got:
        lab.save()
    assert f"{node} comes back" in got.value.message
    assert lab.states() == {**PAUSED, node: DomainState.SAVED}
    lab.stop_at = lambda _: None
    lab.restore()
    lab.check(RUNNING)


def test_a_host_by_itself_lets_none_go_on_without_one_that_does_not_come_back(lab: Lab) -> None:
    killing(lab, 7)
    with pytest.raises(Killed):
        lab.save()

    def fail(what: str) -> None:
        if what == "vm0 comes back":
            raise VicinalError("no memory", "make some")

    lab.stop_at = fail
    lab.hang_up()
    assert (lab.states()["vm0"], lab.states()["vm1"]) == (DomainState.SAVED, DomainState.PAUSED)
    assert (lab.states()["vm2"], lab.states()["vm3"]) == (DomainState.RUNNING, DomainState.RUNNING)
    lab.is_killed()
    lab.restore()
    lab.check(RUNNING)


def test_there_must_be_memory_for_all_before_one_comes_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.save()
    lab.log.clear()

    def room(vms: Sequence[Vm]) -> None:
        assert len(vms) == 2
        if vms[0].name == "vm2":
            raise VicinalError("the virtual machines need more memory", "end something else")

    monkeypatch.setattr(saving, "check_room", room)
    with pytest.raises(VicinalError, match="need more memory"):
        lab.restore()
    assert lab.log == []
    lab.check(SAVED, saved=True)


def test_what_some_host_let_go_on_by_itself_is_saved_again_with_the_others(lab: Lab) -> None:
    lab.save()
    for name in ("vm0", "vm1"):
        lifecycle.restore(lab.hypervisor, lab.vms[name].domain, paused=True)
        lab.hypervisor.connection.lookupByName(lab.vms[name].domain).resume()
    lab.save()
    lab.check(SAVED, saved=True)
    assert lab.log.count("vm3 is saved") == 2


def test_a_record_says_nothing_of_this_host(lab: Lab) -> None:
    lab.journal.write(SaveRecord(), Event.MADE)
    assert on_this_host(lab.journal.entries()) == {}


def test_a_saved_vm_is_shown_as_saved(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A stopped VM would boot anew when it is started. A saved one would not."""
    host_part = f"{NAME}.a"
    assert {node.state for node in cluster_state(host_part).nodes} == {"running"}
    lab.save()
    assert {node.state for node in cluster_state(host_part).nodes} == {"saved"}
    assert run(["status", host_part]) == 1
    assert (
        f"the cluster is saved: restore it with `vicinal restore {NAME}`" in capsys.readouterr().out
    )
    lab.restore()
    assert {node.state for node in cluster_state(host_part).nodes} == {"running"}
