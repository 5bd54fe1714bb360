"""The studies that come with Vicinal, and finding one by its name or file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal import papers
from vicinal.base.errors import VicinalError
from vicinal.base.wording import nearest
from vicinal.base.yaml import read_text
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.file.parsed import digest, keep, parsed_values
from vicinal.labs.study.file.reading import FORM, parse_study, read_study, study_from_values

STUDIES = Path(papers.__file__).parent
"""Where they are: NAME.yaml."""


def study_names() -> list[str]:
    """Names of the studies that come with Vicinal, its own first, then by paper and figure."""
    return sorted((path.stem for path in STUDIES.glob("*.yaml")), key=_order)


def list_studies() -> list[Study]:
    """All of them, in that order."""
    parsed = parsed_values()
    return [_read(study_file(name), parsed) for name in study_names()]


def study_file(name_or_path: str) -> Path:
    """The file of a study, which is one that comes with Vicinal, or a user's own.

    Raises VicinalError where there is none, with the nearest name.
    """
    shipped = study_names()
    if name_or_path in shipped:
        return STUDIES / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or "/" in name_or_path or path.is_file():
        return path
    remedy = nearest(name_or_path, shipped)
    if not remedy.startswith("did"):
        remedy = "`vicinal study list` shows all; a study of your own is named by its file"
    raise VicinalError(f"there is no study {name_or_path}", remedy)


def load_study(name_or_path: str) -> Study:
    """The study of that name, or in that file. Raises VicinalError with file, line and remedy."""
    path = study_file(name_or_path)
    return _read(path, parsed_values()) if path.parent == STUDIES else read_study(path)


def _read(path: Path, parsed: Mapping[str, Any]) -> Study:
    text = read_text(FORM, path)
    values = parsed.get(digest(text))
    return parse_study(path, text) if values is None else study_from_values(path, values)


def _order(name: str) -> tuple[bool, str, bool, int, str]:
    """quick and aa, then p1-fig2 ... p2-fig4, p2-fig4d ... p3-table3, by number."""
    paper, _, figure = name.partition("-")
    digits = "".join(letter for letter in figure if letter.isdigit())
    return (bool(digits), paper, figure.startswith("table"), int(digits or 0), name)


if __name__ == "__main__":
    keep(study_file(name) for name in study_names())
