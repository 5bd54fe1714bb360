"""Studies whose parsed values `make` keeps: they equal the values of their files."""

import shutil
from pathlib import Path

import pytest

from vicinal.labs.study.file import shipped
from vicinal.labs.study.file.reading import read_study

NAMES = ("aa", "quick", "p1-fig2", "p3-fig4")


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few studies, and a file beside it for their values."""
    folder = tmp_path / "studies"
    folder.mkdir()
    for name in NAMES:
        shutil.copy(shipped.study_file(name), folder)
    shutil.copytree(shipped.STUDIES / "environments", folder / "environments")
    monkeypatch.setattr(shipped, "STUDIES", folder)
    monkeypatch.setattr(shipped, "parsed_studies", lambda: tmp_path / "studies.json")
    return folder


def keep() -> bool:
    return shipped.keep(shipped.study_file(name) for name in shipped.study_names())


def read() -> list[object]:
    return [read_study(shipped.study_file(name)) for name in shipped.study_names()]


@pytest.mark.usefixtures("studies")
def test_kept_values_make_the_same_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read()
    assert [each.name for each in shipped.list_studies()] == [*NAMES]
    assert keep()
    monkeypatch.setattr("vicinal.base.yaml._load", lambda *_: pytest.fail("a file was parsed"))
    assert shipped.list_studies() == expected
    assert [shipped.load_study(name) for name in NAMES] == expected
    assert not keep()


def test_a_study_that_was_changed_is_read_anew(studies: Path) -> None:
    assert keep()
    file = studies / "quick.yaml"
    file.write_text(file.read_text().replace("title: The", "title: All the", 1))
    titles = {each.name: each.title for each in shipped.list_studies()}
    assert titles["quick"].startswith("All the")
    assert shipped.list_studies() == read()
    kept = set(shipped.parsed_values())
    assert keep()
    shared = list((studies / "environments").iterdir())
    assert len(kept & set(shipped.parsed_values())) == len(NAMES) + len(shared) - 1


def test_environments_that_were_changed_are_read_anew(studies: Path) -> None:
    assert keep()
    file = studies / "environments" / "p1.yaml"
    file.write_text(file.read_text().replace("title: hosts", "title: all hosts", 1))
    found = {each.name: each for each in shipped.list_studies()}
    assert found["p1-fig2"].environment("native").title.startswith("all hosts")
    assert shipped.list_studies() == read()
    assert keep()
    assert not keep()


@pytest.mark.usefixtures("studies")
@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_kept_values_that_make_no_sense_are_made_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "studies.json").write_text(text)
    assert shipped.list_studies() == read()
    assert keep()
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["studies.json"]


@pytest.mark.usefixtures("studies")
def test_without_a_checkout_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "parsed_studies", lambda: None)
    assert not keep()
    assert shipped.list_studies() == read()
