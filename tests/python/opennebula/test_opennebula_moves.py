"""OpenNebula's driver saves, restores and migrates a VM: every step, and the end of each failure.

These tests use fakes (opennebula_lab.py); tests/guests/opennebula uses real VMs.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM

import libvirt
import pytest
from fake_libvirt import FakeDomain
from opennebula_lab import NAME, REQUEST, VFS, VM, Lab, Rank, wait_for

from vicinal.base.errors import VicinalError
from vicinal.base.signals import Ended
from vicinal.integrations.opennebula import vm
from vicinal.integrations.opennebula.destination import reached
from vicinal.integrations.opennebula.held_resources import (
    HeldResources,
    HeldVf,
    Placement,
    read_placement,
    saved_mark,
)
from vicinal.integrations.opennebula.moves import migrate, repair, restore, save
from vicinal.region.format import RequestedRoute

ANYWHERE = Placement().to_json()
MINE, THEIRS = VFS["a"], VFS["b"]
GIVES_VF, GIVES_REGION = f"its guest gives up {MINE}", f"its guest gives up {REQUEST.name}"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(vm, "_SETTLE_SECONDS", 0.1)
    found = Lab(tmp_path)
    yield found
    found.end()


def do_save(lab: Lab) -> int | None:
    return save(lab.a.call("save", NAME, "/checkpoint", "a"), lab.a.site)


def do_restore(lab: Lab, host: str = "a") -> int:
    """Restore the VM on a host whose network driver has set up a VF of that host."""
    where = lab.hosts[host]
    what = lab.saved()
    assert what is not None
    placed = read_placement(lab.checkpoint.domains[NAME].XMLDesc())
    call = where.call("restore", "/checkpoint", host, NAME)
    return restore(call, where.site, what, placed)


def do_migrate(lab: Lab) -> int | None:
    lab.b.prepare()
    call = lab.a.call("migrate", NAME, "b", "a")
    with lab.reach(call, "b") as there:
        return migrate(call, lab.a.site, there)


def saved(lab: Lab) -> None:
    """Save the VM, and clean its VFs as OpenNebula does."""
    assert do_save(lab) == 0
    lab.a.clean()
    lab.log.clear()


# --- save and restore ----------------------------------------------------------------------


def test_a_vm_gives_up_what_it_has_and_gets_it_again(lab: Lab) -> None:
    rank = lab.run_rank(0)
    assert do_save(lab) == 0
    assert lab.log == [f"a: {GIVES_VF}", f"a: {GIVES_REGION}", "a: stock save"]
    assert not rank.is_in
    assert not lab.a.region.exists()
    assert lab.a.records.lacking() == []
    lab.a.clean()
    lab.a.prepare()
    lab.log.clear()
    assert do_restore(lab) == 0
    assert lab.log == [
        "a: stock restore",
        f"a: its guest gets {REQUEST.name}",
        f"a: its guest gets {MINE}",
    ]
    assert lab.is_whole("a")


def test_it_is_restored_on_another_host(lab: Lab) -> None:
    saved(lab)
    lab.b.prepare()
    assert do_restore(lab, "b") == 0
    assert lab.is_whole("b")


def test_a_region_that_others_have_is_kept_and_ranks_may_come_back(lab: Lab) -> None:
    """The VM's ranks leave the region, because their heartbeats stand still; other ranks stay."""
    lab.a.fake.run("one-8", "<domain><name>one-8</name><devices/></domain>")
    with lab.a.records.held(8, REQUEST, lab.a.limits):
        pass
    ours, others = lab.run_rank(0), lab.run_rank(1)
    assert do_save(lab) == 0
    assert lab.log[:2] == ["a: it stands still", "a: it goes on"]
    assert (ours.is_in, ours.requested) == (False, RequestedRoute.LEAVE)
    assert (others.is_in, others.requested) == (True, RequestedRoute.REGION)
    assert lab.a.region.exists()
    assert do_restore(lab) == 0
    assert (ours.requested, others.requested) == (RequestedRoute.RETURN, RequestedRoute.REGION)


def test_a_rank_that_is_dead_or_stopped_is_not_waited_for(lab: Lab) -> None:
    rank = lab.run_rank(0)
    rank.still = True
    assert do_save(lab) == 0
    assert rank.requested == RequestedRoute.REGION


def test_a_rank_that_does_not_leave_keeps_the_vm_running(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm, "LEAVE_SECONDS", 0.3)
    rank = lab.run_rank(0, obeys=False)
    with pytest.raises(VicinalError, match="not all ranks in one-7 leave the region"):
        do_save(lab)
    assert rank.requested == RequestedRoute.RETURN
    assert lab.is_whole("a")


def test_a_vm_that_stands_still_is_left_alone(lab: Lab) -> None:
    lab.domain("a").suspend()
    with pytest.raises(VicinalError, match="is paused"):
        do_save(lab)
    lab.domain("a").resume()
    assert lab.is_whole("a")


@pytest.mark.parametrize("step", [GIVES_VF, GIVES_REGION, "stock save"])
@pytest.mark.parametrize("error", [None, Ended(SIGTERM)])
def test_where_saving_fails_the_vm_runs_on_with_all(
    lab: Lab, step: str, error: BaseException | None
) -> None:
    rank = lab.run_rank(0)
    lab.fail_at(f"a: {step}", error=error)
    if error is None and step == "stock save":
        assert do_save(lab) == 1
    else:
        with pytest.raises(VicinalError if error is None else Ended):
            do_save(lab)
    wait_for(lambda: lab.domain("a").regions == [REQUEST.name])
    assert lab.is_whole("a")
    assert rank.requested == RequestedRoute.RETURN


@pytest.mark.parametrize("prepared", [True, False])
def test_a_host_that_does_not_have_it_does_not_restore(lab: Lab, prepared: bool) -> None:
    saved(lab)
    if prepared:
        lab.b.prepare()
        lab.b.region.write_text("somebody else's")
        with pytest.raises(VicinalError, match="exists already"):
            do_restore(lab, "b")
    else:
        with pytest.raises(VicinalError, match="1 SR-IOV VFs, and this host has prepared 0"):
            do_restore(lab, "b")
    assert lab.log == []
    assert lab.checkpoint.domains.keys() == {NAME}
    assert lab.b.records.all() == []


@pytest.mark.parametrize("step", [REQUEST.name, MINE])
def test_what_cannot_be_given_to_a_restored_vm_has_it_saved_again(lab: Lab, step: str) -> None:
    """OpenNebula's script has already removed the checkpoint."""
    saved(lab)
    lab.a.prepare()
    lab.fail_at(f"a: its guest gets {step}")
    with pytest.raises(VicinalError, match="does not work"):
        do_restore(lab)
    assert lab.log[-1] == "a: stock save"
    assert lab.checkpoint.domains.keys() == {NAME}
    assert not lab.a.region.exists()
    assert do_restore(lab) == 0
    assert lab.is_whole("a")


def test_a_restored_vm_that_cannot_be_saved_again_runs(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(lab)
    lab.a.prepare()
    lab.fail_at(f"a: its guest gets {MINE}", "a: stock save")
    assert do_restore(lab) == 0
    assert (
        "ERROR: restore: Vicinal: the VM runs without some of its resources"
        in capsys.readouterr().err
    )
    assert lab.a.records.lacking() == [VM]
    repair(lab.a.site, "deploy", without=0)
    assert lab.is_whole("a")


# --- migrate -------------------------------------------------------------------------------


def test_a_vm_moves_and_has_that_of_the_other_host(lab: Lab) -> None:
    rank = lab.run_rank(0)
    assert do_migrate(lab) == 0
    assert lab.log == [
        "b: expect",
        f"a: {GIVES_VF}",
        f"a: {GIVES_REGION}",
        "a: stock migrate",
        "b: give",
        f"b: its guest gets {REQUEST.name}",
        f"b: its guest gets {THEIRS}",
    ]
    assert not rank.is_in
    assert lab.is_whole("b")
    lab.a.clean()


STEPS = [
    "b: expect",
    f"a: {GIVES_VF}",
    f"a: {GIVES_REGION}",
    "a: stock migrate",
    "b: give",
    f"b: its guest gets {REQUEST.name}",
    f"b: its guest gets {THEIRS}",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [None, Ended(SIGTERM)])
def test_where_moving_fails_the_vm_runs_where_it_was(
    lab: Lab, step: str, error: BaseException | None
) -> None:
    lab.run_rank(0)
    lab.fail_at(step, error=error)
    if error is None and step == "a: stock migrate":
        assert do_migrate(lab) == 1
    else:
        with pytest.raises(VicinalError if error is None else Ended):
            do_migrate(lab)
    wait_for(lambda: lab.domain("a").regions == [REQUEST.name])
    assert lab.is_whole("a")
    lab.fail_at()
    assert do_migrate(lab) == 0  # no leftover prevents the move
    assert lab.is_whole("b")


def test_one_that_cannot_come_back_is_where_it_was_to_be(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """OpenNebula gets a warning, and the VM later gets the missing resources on the other host."""
    lab.fail_at(f"b: its guest gets {THEIRS}", "b: send back")
    assert do_migrate(lab) == 0
    said = capsys.readouterr().err
    assert "the VM cannot move back" in said
    assert "the VM runs on b without some of its resources" in said
    assert lab.is_whole("b")  # the other host tried again when it heard no more


def test_a_host_that_has_the_domain_already_takes_none(lab: Lab) -> None:
    lab.b.fake.run(NAME, "<domain><devices/></domain>")
    with pytest.raises(VicinalError, match="a domain one-7 exists there already"):
        do_migrate(lab)
    assert lab.domain("a").regions == [REQUEST.name]


def test_a_move_whose_driver_is_killed_is_ended_by_the_other_host(lab: Lab) -> None:
    lab.b.prepare()
    what = lab.a.vm.held_resources()
    with lab.reach(lab.a.call("migrate", NAME, "b", "a"), "b", killed=True) as there:
        there.ask("expect", what=json.loads(json.dumps(what.to_json())), placed=ANYWHERE)
        lab.a.vm.take(what)
        assert lab.a.stock(lab.a.call("migrate", NAME, "b", "a"), 1, b"x") == 0
    repair(lab.a.site, "deploy", without=0)  # the next action on a
    lab.a.records.sweep()
    assert lab.is_whole("b")


def test_so_is_one_whose_vm_comes_only_then(lab: Lab) -> None:
    """OpenNebula's script goes on without its driver."""
    lab.b.prepare()
    what = lab.a.vm.held_resources()
    call = lab.a.call("migrate", NAME, "b", "a")
    script = threading.Timer(1.0, lab.a.stock, (call, 1, b"x"))
    with lab.reach(call, "b", killed=True) as there:
        there.ask("expect", what=what.to_json(), placed=ANYWHERE)
        lab.a.vm.take(what)
        lab.a.records.lacks(VM, something=False)  # simulates an action on a after the VM left
        script.start()
        assert NAME not in lab.b.fake.domains
    lab.a.records.sweep()
    assert lab.is_whole("b")


def test_who_is_asked_again_takes_over_from_who_waits(lab: Lab) -> None:
    lab.b.prepare()
    what = lab.a.vm.held_resources()
    call = lab.a.call("migrate", NAME, "b", "a")
    with lab.reach(call, "b", killed=True) as there:
        there.ask("expect", what=what.to_json(), placed=ANYWHERE)
        lab.b.records.expect(VM)
        began = time.monotonic()
    assert time.monotonic() - began < 60.0  # without the new request, it would wait for longer
    assert lab.b.records.lacking() == [VM]


def test_one_that_never_comes_is_not_waited_for_for_ever(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.integrations.opennebula.moves._LOST_SECONDS", 0.5)
    lab.b.prepare()
    with lab.reach(lab.a.call("migrate", NAME, "b", "a"), "b", killed=True) as there:
        there.ask("expect", what=lab.a.vm.held_resources().to_json(), placed=ANYWHERE)
    assert lab.is_whole("a")


def test_one_that_does_not_come_leaves_nothing(lab: Lab) -> None:
    lab.b.prepare()
    what = lab.a.vm.held_resources()
    with lab.reach(lab.a.call("migrate", NAME, "b", "a"), "b") as there:
        there.ask("expect", what=what.to_json(), placed=ANYWHERE)
        assert lab.b.region.exists()
        lab.b.records.sweep()  # simulates another action on b
        assert lab.b.region.exists()
    assert lab.is_whole("a")


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "", "node1;id"])
def test_a_name_that_is_no_hosts_is_not_given_to_ssh(lab: Lab, host: str) -> None:
    with (
        pytest.raises(VicinalError, match="is not a host's name"),
        reached(lab.a.call("migrate", NAME, host, "a"), host),
    ):
        pass


# --- what a killed driver leaves -----------------------------------------------------------


@pytest.mark.parametrize("how_far", [0, 1, 2])
def test_the_next_action_gives_a_vm_what_it_lacks(lab: Lab, how_far: int) -> None:
    """The driver was killed after `how_far` steps, so it undid nothing."""
    rank = lab.run_rank(0)
    steps = [f"a: {GIVES_VF}", f"a: {GIVES_REGION}"]
    if how_far < len(steps):
        lab.fail_at(steps[how_far])
        with pytest.raises(VicinalError):
            lab.a.vm.take(lab.a.vm.held_resources())
    else:
        lab.a.vm.take(lab.a.vm.held_resources())
    assert lab.a.records.lacking() == [VM]
    with lab.a.records.released(VM):  # another action works on the VM
        repair(lab.a.site, "deploy", without=0)
        assert lab.a.records.lacking() == [VM]
    repair(lab.a.site, "deploy", without=VM)
    assert lab.a.records.lacking() == [VM]
    repair(lab.a.site, "deploy", without=0)
    assert lab.is_whole("a")
    assert rank.requested == RequestedRoute.RETURN


@pytest.mark.parametrize("error", [VicinalError("no", "none"), OSError(28, "No space left")])
def test_one_that_cannot_get_it_does_not_end_the_action_of_another(
    lab: Lab, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.a.vm.take(lab.a.vm.held_resources())
    lab.fail_at(f"a: its guest gets {REQUEST.name}", error=error)
    repair(lab.a.site, "deploy", without=0)
    assert "deploy: Vicinal: VM 7 still lacks some of its resources: " in capsys.readouterr().err
    assert lab.a.records.lacking() == [VM]
    repair(lab.a.site, "deploy", without=0)
    assert lab.is_whole("a")


def test_one_that_was_left_standing_still_goes_on(lab: Lab) -> None:
    lab.a.vm.take(lab.a.vm.held_resources())
    lab.domain("a").suspend()
    repair(lab.a.site, "deploy", without=0)
    assert lab.is_whole("a")


def test_one_that_ended_lacks_nothing(lab: Lab) -> None:
    lab.a.vm.take(lab.a.vm.held_resources())
    del lab.a.fake.domains[NAME]
    repair(lab.a.site, "deploy", without=0)
    assert lab.a.records.lacking() == []


def test_a_vm_that_lacks_something_can_be_saved_all_the_same(lab: Lab) -> None:
    lab.fail_at(f"a: {GIVES_REGION}")
    with pytest.raises(VicinalError):
        lab.a.vm.take(lab.a.vm.held_resources())
    saved(lab)
    lab.a.prepare()
    assert do_restore(lab) == 0
    assert lab.is_whole("a")


def test_one_that_ends_while_it_is_looked_at_is_an_error_in_words(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise repair() would end the action of another VM."""

    def gone(_: FakeDomain, __: int = 0) -> str:
        raise libvirt.libvirtError("it has ended")

    monkeypatch.setattr(FakeDomain, "XMLDesc", gone)
    for look in (lab.a.vm.placement, lab.a.vm.held_resources):
        with pytest.raises(VicinalError, match="one-7 cannot be read"):
            look()


# --- what a VM has to get again ------------------------------------------------------------


def test_vfs_come_back_by_their_addresses() -> None:
    first, second = (
        HeldVf(f"<hostdev><alias name='{each}'/></hostdev>", each) for each in ("x", "y")
    )
    found = dict(vm._paired([first, second], {"0": "y", "1": "other"}))
    assert found == {second: "0", first: "1"}


VALUES = HeldResources(REQUEST, "<shmem/>").to_json()


@pytest.mark.parametrize(
    "values",
    [
        {},
        [],
        {**VALUES, "region": {**VALUES["region"], "job": "../../x"}},
        {**VALUES, "region": {**VALUES["region"], "owner": "5"}},
        {**VALUES, "region": {**VALUES["region"], "size_bytes": 5 << 20}},
        {**VALUES, "region": {**VALUES["region"], "more": 1}},
        {**VALUES, "region_device": "<disk/>"},
        {**VALUES, "vfs": [{"device": "<disk/>", "identity": ""}]},
        {**VALUES, "vfs": 1},
    ],
)
def test_a_note_that_is_none_of_ours_is_refused(values: object) -> None:
    text = json.dumps(values).replace("<", "&lt;")
    note = f'<a:away xmlns:a="urn:vicinal:away"><a:values>{text}</a:values></a:away>'
    with pytest.raises(VicinalError):
        saved_mark(f"<domain><metadata>{note}</metadata></domain>")
    good = json.dumps(VALUES).replace("<", "&lt;")
    assert saved_mark(f"<domain><metadata>{note.replace(text, good)}</metadata></domain>")
    assert saved_mark("<domain><metadata/></domain>") is None


def test_the_fake_rank_is_taken_for_one_in_a_vm(lab: Lab) -> None:
    assert vm._slots_in(lab.a.region, None) == []
    assert isinstance(lab.run_rank(3), Rank)
    assert vm._slots_in(lab.a.region, None) == [3]
