"""Plans and journals: resources that exist stay, missing ones are made, half-made ones removed."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.base.faults import CollectedError
from vicinal.cluster.plan.applying import apply, take_away
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Plan, check_plan, make_plan, removal
from vicinal.cluster.plan.resource import Condition, Held, Json, Observation
from vicinal.cluster.plan.state import cluster_names, journal_of, sole_command
from vicinal.host.vf import helper


@dataclass
class Thing:
    """A directory with a file in it. Like a real resource, it can be half made."""

    directory: Path
    content: str = "right"
    needs: tuple[str, ...] = ()
    fails: str = ""
    """The action that fails: create or remove."""
    takes: str = ""
    """What only one resource can have."""
    lacks: str = ""
    """What the host does not have."""
    dies: str = ""
    """The step during which the process is killed."""

    @property
    def key(self) -> str:
        return f"thing/{self.directory.name}"

    @property
    def settings(self) -> Mapping[str, Json]:
        return {"directory": str(self.directory), "content": self.content}

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        if not self.directory.exists():
            return Observation(Condition.ABSENT)
        if not (self.directory / "file").exists():
            return Observation(Condition.BROKEN, "its file is gone")
        return Observation(Condition.STOPPED if self.stopped() else Condition.READY)

    @property
    def held(self) -> Held:
        return Held(frozenset({self.takes}), 10, 5)

    def check(self, released: Held) -> None:
        if self.takes and self.takes not in released.things:
            raise VicinalError(f"{self.takes} is in use", "wait")
        if self.lacks:
            raise VicinalError(f"there is no {self.lacks}", "install it")

    def create(self) -> None:
        self.die("before")
        self.directory.mkdir()
        self.die("between")
        if self.fails == "create":
            raise VicinalError("it cannot be made", "do not ask for it")
        (self.directory / "file").write_text(self.content)
        self.die("after")

    def remove(self) -> None:
        if self.fails == "remove":
            raise VicinalError("it cannot be taken away", "wait")
        (self.directory / "file").unlink(missing_ok=True)
        self.die("removing")
        if self.directory.exists():
            self.directory.rmdir()

    def stopped(self) -> bool:
        return (self.directory / "file").read_text() == "stopped"

    def start(self) -> None:
        (self.directory / "file").write_text(self.content)

    def stop(self) -> None:
        (self.directory / "file").write_text("stopped")

    def die(self, at: str) -> None:
        if self.dies == at:
            os.kill(os.getpid(), signal.SIGKILL)


def things(directory: Path, names: str, **options: str) -> list[Thing]:
    made: list[Thing] = []
    for name in names:
        needs = (made[-1].key,) if made else ()
        made.append(Thing(directory / name, needs=needs, **options))
    return made


def plan_for(wanted: list[Thing], journal: Journal) -> Plan:
    recorded = journal.entries()
    there = {
        key: Thing(
            Path(str(entry.settings["directory"])), str(entry.settings["content"]), entry.needs
        )
        for key, entry in recorded.items()
    }
    return make_plan(wanted, recorded, there)


def told(plan: Plan) -> list[str]:
    return [f"{step.action} {step.resource.key[6:]}" for step in plan.steps]


def down(journal: Journal) -> None:
    entries = journal.entries()
    there = {key: Thing(Path(str(entry.settings["directory"]))) for key, entry in entries.items()}
    take_away(removal(entries, there), journal)


def test_up_again_and_down(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "abc")
    assert told(plan_for(wanted, journal)) == ["create a", "create b", "create c"]
    apply(plan_for(wanted, journal), journal)
    assert told(plan_for(wanted, journal)) == ["keep a", "keep b", "keep c"]
    assert not plan_for(wanted, journal).changes
    down(journal)
    assert journal.entries() == {}
    assert not any(thing.directory.exists() for thing in wanted)


def test_what_changed_is_made_anew_and_what_stands_on_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "abc")
    apply(plan_for(wanted, journal), journal)
    wanted[1].content = "other"
    plan = plan_for(wanted, journal)
    assert told(plan) == ["remove c", "remove b", "keep a", "create b", "create c"]
    assert plan.changes[1].why == "the file changes it"
    assert plan.changes[1].changes == ('content: "right" -> "other"',)
    assert plan.changes[0].changes == ()
    assert plan.changes[0].why == "thing/b is recreated"
    apply(plan, journal)
    assert (tmp_path / "b/file").read_text() == "other"
    # A resource that the file no longer names is removed.
    assert told(plan_for(wanted[:2], journal)) == ["remove c", "keep a", "keep b"]


def test_all_that_a_plan_lacks_is_told_before_a_step_is_done(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    apply(plan_for(things(tmp_path, "abc"), journal), journal)
    wanted = things(tmp_path, "abc", content="other")
    wanted[0].lacks, wanted[1].lacks, wanted[2].lacks = "tool", "room", "tool"
    plan = plan_for(wanted, journal)
    assert told(plan)[:3] == ["remove c", "remove b", "remove a"]
    with pytest.raises(CollectedError) as caught:
        check_plan(plan)
    assert list(map(str, caught.value.each)) == [
        "there is no tool: install it",
        "there is no room: install it",
    ]
    assert caught.value.remedy == "install it (and one more error)"


def test_what_a_plan_takes_away_is_free_for_what_it_makes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    apply(plan_for(things(tmp_path, "a"), journal), journal)
    (wanted,) = things(tmp_path, "a", content="other", takes="the card")
    plan = plan_for([wanted], journal)
    with pytest.raises(VicinalError, match="the card is in use"):
        check_plan(plan)
    plan.steps[0].resource.takes = "the card"  # type: ignore[attr-defined]
    check_plan(plan)


def test_what_is_stopped_is_started(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "ab")
    apply(plan_for(wanted, journal), journal)
    wanted[0].stop()
    plan = plan_for(wanted, journal)
    assert told(plan) == ["start a", "keep b"]
    apply(plan, journal)
    assert not plan_for(wanted, journal).changes


@pytest.mark.parametrize(("damage", "why"), [("file", "its file is gone"), ("all", "it is gone")])
def test_what_broke_is_repaired(tmp_path: Path, damage: str, why: str) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "ab")
    apply(plan_for(wanted, journal), journal)
    (tmp_path / "b/file").unlink()
    if damage == "all":
        (tmp_path / "b").rmdir()
    plan = plan_for(wanted, journal)
    assert told(plan) == ["remove b", "keep a", "create b"]
    assert plan.changes[0].why == why
    apply(plan, journal)
    assert not plan_for(wanted, journal).changes


def test_what_is_of_others_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "ab")
    (tmp_path / "b").mkdir()
    with pytest.raises(VicinalError, match="thing/b exists already"):
        plan_for(wanted, journal)
    assert not (tmp_path / "a").exists()


def test_a_failure_is_rolled_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    first = things(tmp_path, "a")
    apply(plan_for(first, journal), journal)
    wanted = things(tmp_path, "abc")
    wanted[2].fails = "create"
    with pytest.raises(VicinalError, match="cannot be made"):
        apply(plan_for(wanted, journal), journal)
    # Resources from before remain.
    assert list(journal.entries()) == ["thing/a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "journal"]


def test_what_cannot_be_rolled_back_is_kept_in_mind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "ab")
    wanted[0].fails, wanted[1].fails = "remove", "create"
    with pytest.raises(VicinalError, match="cannot be made"):
        apply(plan_for(wanted, journal), journal)
    assert [(entry.key, entry.whole) for entry in journal.entries().values()] == [
        ("thing/a", False)
    ]
    down(journal)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]


def test_one_that_cannot_be_taken_away_does_not_keep_the_rest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "abc")
    apply(plan_for(wanted, journal), journal)
    wanted[1].fails = "remove"
    there = {thing.key: thing for thing in wanted}
    with pytest.raises(VicinalError, match="cannot be taken away"):
        take_away(removal(journal.entries(), there), journal)
    assert list(journal.entries()) == ["thing/b"]
    assert not (tmp_path / "a").exists()


def killed(directory: Path, at: str) -> None:
    """Run a command that is killed while it makes or removes b."""
    journal = Journal(directory / "journal")
    wanted = things(directory, "abc")
    if at == "removing":
        apply(plan_for(wanted, journal), journal)
        wanted[1].dies = at
        take_away(removal(journal.entries(), {thing.key: thing for thing in wanted}), journal)
    else:
        wanted[1].dies = at
        apply(plan_for(wanted, journal), journal)


@pytest.mark.parametrize("next_command", ["up", "down"])
@pytest.mark.parametrize("at", ["before", "between", "after", "removing"])
def test_a_killed_command_is_repaired(tmp_path: Path, at: str, next_command: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(tmp_path, at))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    journal = Journal(tmp_path / "journal")
    assert not journal.entries()["thing/b"].whole
    wanted = things(tmp_path, "abc")
    if next_command == "up":
        apply(plan_for(wanted, journal), journal)
        assert all(thing.observe().condition is Condition.READY for thing in wanted)
        assert not plan_for(wanted, journal).changes
    down(journal)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]


def test_a_torn_line_was_not_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "ab")
    journal.write(wanted[0], Event.MADE)
    whole = (tmp_path / "journal").read_text()
    journal.write(wanted[1], Event.BEGUN)
    for length in range(len(whole), (tmp_path / "journal").stat().st_size - 1):
        torn = Journal(tmp_path / "torn")
        (tmp_path / "torn").write_bytes((tmp_path / "journal").read_bytes()[:length])
        assert list(torn.entries()) == ["thing/a"]
        torn.write(wanted[0], Event.REMOVED)
        assert torn.entries() == {}
        assert len((tmp_path / "torn").read_text().splitlines()) == 2


def test_a_journal_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text(json.dumps({"event": "made"}) + "\n")
    with pytest.raises(VicinalError, match="a line that Vicinal does not write"):
        Journal(tmp_path / "journal").entries()


def under_a_helper(directory: Path) -> None:
    """Run a command that is killed while a stand-in for the privileged helper works."""
    os.environ["XDG_STATE_HOME"] = str(directory)
    with sole_command("solar"):
        helper._run(["sh", "-c", f"cd {directory}; touch begun; sleep 2; touch ended"], "")


def test_a_killed_command_s_helper_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = multiprocessing.get_context("spawn").Process(target=under_a_helper, args=(tmp_path,))
    process.start()
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join(60)
    with sole_command("solar"):
        assert (tmp_path / "ended").exists()


def test_a_place_where_no_directory_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """For /proc, the kernel gives the same error as for a directory that a command removed."""
    monkeypatch.setattr("vicinal.cluster.plan.state._LOCK_SECONDS", 0.2)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    with pytest.raises(VicinalError, match="set XDG_STATE_HOME to"), sole_command("solar"):
        pass


def test_one_command_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("vicinal.cluster.plan.state._LOCK_SECONDS", 0.2)
    with sole_command("solar") as directory:
        assert directory.is_dir()
        with pytest.raises(VicinalError, match="another command works"), sole_command("solar"):
            pass
        with sole_command("lunar"):
            pass
        journal_of("solar").write(things(tmp_path, "a")[0], Event.MADE)
    assert cluster_names() == ["solar"]
    with sole_command("solar"):
        journal_of("solar").write(things(tmp_path, "a")[0], Event.REMOVED)
    # A cluster without resources leaves no directory.
    assert list((tmp_path / "vicinal/clusters").iterdir()) == []


@pytest.mark.parametrize("content", ["right", "stopped"])
def test_what_others_made_whole_is_not_taken_over(tmp_path: Path, content: str) -> None:
    journal = Journal(tmp_path / "journal")
    (thing,) = things(tmp_path, "a")
    thing.create()
    (tmp_path / "a/file").write_text(content)
    with pytest.raises(VicinalError, match="thing/a exists already, and this cluster did not"):
        plan_for([thing], journal)
    assert (tmp_path / "a/file").read_text() == content


def test_what_a_killed_command_was_making_is_made_anew_however_it_looks(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(tmp_path, "after"))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    journal = Journal(tmp_path / "journal")
    wanted = things(tmp_path, "abc")
    assert wanted[1].observe().condition is Condition.READY
    plan = plan_for(wanted, journal)
    assert told(plan) == ["remove b", "keep a", "create b", "create c"]
    assert "interrupted" in plan.changes[0].why
    apply(plan, journal)
    assert all(entry.whole for entry in journal.entries().values())
