"""Clusters of killed commands are recognised only by a lock, which the kernel drops.

The clusters are empty journals. An empty journal is enough for a cluster to be removed.
"""

import json
import socket
from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cli import run
from vicinal.cluster.manager import find_name, take_down
from vicinal.cluster.owners import left_behind, owning, take_away_left_behind
from vicinal.cluster.ownership import Owner, Ownership, ownership_of
from vicinal.cluster.plan.state import cluster_names, clusters_directory

OWNER = Owner("study-0a1b2c3d", "the study quick", "vicinal study run quick --resume --output /r")


@pytest.fixture(autouse=True)
def _own_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def make(name: str) -> None:
    directory = clusters_directory() / name
    directory.mkdir(parents=True)
    (directory / "journal").touch()


def abandon(owner: Owner = OWNER) -> Path:
    """Leave what a killed command leaves."""
    file = clusters_directory().parent / "owners" / owner.name
    with owning(owner):
        make(f"{owner.name}-0")
    assert file.exists()
    return file


def test_what_was_left_is_told_and_taken_away() -> None:
    file = abandon()
    make(f"{OWNER.name}-1")
    others = ["study-0a1b2c3d4-0", "study-0a1b2c3d-0.node1", "study-0a1b2c3d-x", "lab"]
    for name in others:
        make(name)
    (left,) = left_behind()
    assert left.clusters == (f"{OWNER.name}-0", f"{OWNER.name}-1")
    assert str(left) == (
        "the study quick was killed and left study-0a1b2c3d-0, study-0a1b2c3d-1: continue with "
        "`vicinal study run quick --resume --output /r`, or remove the rest with `vicinal down "
        "study-0a1b2c3d-0 && vicinal down study-0a1b2c3d-1`"
    )
    said: list[str] = []
    take_away_left_behind(said.append, said.append)
    assert said == [
        "removing study-0a1b2c3d-0, study-0a1b2c3d-1, which the study quick left when it was killed"
    ]
    assert cluster_names() == sorted(others)
    assert not file.exists()
    assert left_behind() == []


def test_an_owner_that_is_at_work_keeps_its_clusters() -> None:
    said: list[str] = []
    with owning(OWNER):
        make(f"{OWNER.name}-0")
        assert left_behind() == []
        take_away_left_behind(said.append, said.append)
        assert cluster_names() == [f"{OWNER.name}-0"]
    assert len(left_behind()) == 1
    with owning(OWNER):  # as --resume does
        assert left_behind() == []
        take_down(f"{OWNER.name}-0")
    assert left_behind() == []
    assert list((clusters_directory().parent / "owners").iterdir()) == []
    assert said == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        json.dumps({"name": "study-11111111", "what": "", "again": "", "host": "HERE"}),
        json.dumps({"name": OWNER.name, "what": "", "again": "", "host": "elsewhere"}),
        json.dumps({"name": OWNER.name, "what": "", "again": "", "host": "HERE", "more": 1}),
    ],
    ids=["empty", "garbage", "list", "another-name", "another-host", "newer"],
)
def test_what_is_not_clear_is_left_alone(text: str) -> None:
    file = abandon()
    file.write_text(text.replace("HERE", socket.gethostname()))
    said: list[str] = []
    take_away_left_behind(said.append, said.append)
    assert (said, left_behind()) == ([], [])
    assert cluster_names() == [f"{OWNER.name}-0"]


def test_a_cluster_that_cannot_be_taken_away_is_said_and_stays() -> None:
    file = abandon()
    (clusters_directory() / f"{OWNER.name}-0" / "journal").write_text("no journal\n")
    said: list[str] = []
    warned: list[str] = []
    take_away_left_behind(said.append, warned.append)
    (warning,) = warned
    assert warning.startswith(f"{OWNER.name}-0, which the study quick left, could not be removed")
    assert file.exists()
    assert cluster_names() == [f"{OWNER.name}-0"]


# --- commands of users ---------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without a cluster.yaml."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


def test_a_cluster_is_its_owner_s_as_long_as_that_runs_and_then() -> None:
    make("lab")
    with owning(OWNER):
        make(f"{OWNER.name}-0")
        assert ownership_of(f"{OWNER.name}-0") == Ownership("the study quick", runs=True)
        assert ownership_of(f"{OWNER.name}-0.node1") == Ownership("the study quick", runs=True)
        assert ownership_of(f"{OWNER.name}-x") is None
        assert ownership_of("lab") is None
    assert ownership_of(f"{OWNER.name}-0") == Ownership("the study quick", runs=False)


def test_that_of_another_host_may_be_at_work() -> None:
    file = abandon()
    file.write_text(json.dumps({"name": OWNER.name, "what": "it", "again": "", "host": "far"}))
    assert ownership_of(f"{OWNER.name}-0") == Ownership("it on far", runs=True)


@pytest.mark.usefixtures("elsewhere")
def test_who_names_no_cluster_does_not_mean_a_study_s(capsys: pytest.CaptureFixture[str]) -> None:
    with owning(OWNER):
        make(f"{OWNER.name}-0")
        with pytest.raises(VicinalError, match="searches use study-0a1b2c3d-0 for themselves"):
            find_name(None)
        for command in ("down", "stop", "start", "save", "restore"):
            assert run([command]) == 1
            assert "the cluster is not clear" in capsys.readouterr().err
        assert run(["status"]) == 0
        assert capsys.readouterr().out == (
            "No cluster is up.\n"
            "Note: study-0a1b2c3d-0 belongs to the study quick, which is running.\n"
        )
        assert run(["status", "--json"]) == 0
        assert capsys.readouterr().out == "[]\n"
        make("lab")
        assert find_name(None) == "lab"
        assert run(["down", "--quiet"]) == 0
        assert cluster_names() == [f"{OWNER.name}-0"]
    assert run(["status"]) == 0
    assert "the study quick was killed and left study-0a1b2c3d-0" in capsys.readouterr().out


def test_one_that_is_named_is_not_taken_from_a_study_that_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = f"{OWNER.name}-0"
    with owning(OWNER):
        make(name)
        for command in (["down"], ["stop"], ["save"], ["migrate", "node0", "host", "-c"]):
            assert run([*command, name]) == 1
            assert capsys.readouterr().err == (
                f"vicinal: error: {name} belongs to the study quick, which runs and needs it: wait "
                "for its end, or end it by Ctrl-C, which removes the cluster; "
                f"`vicinal down {name} --owned` removes it anyway\n"
            )
        assert cluster_names() == [name]
        assert run(["down", name, "--owned"]) == 0
        assert cluster_names() == []


def test_what_a_killed_study_left_is_taken_away_by_its_name() -> None:
    abandon()
    assert run(["down", f"{OWNER.name}-0"]) == 0
    assert cluster_names() == []
