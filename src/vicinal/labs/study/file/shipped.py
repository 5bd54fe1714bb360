"""The shipped studies, and finding a study by its name or file.

The YAML library takes four seconds for all of them, more than the rest of `vicinal study list`.
`make` stores their values in build/studies.json, each under the digest of its file's text (`python
-m vicinal.labs.study.file.shipped`), and wheels contain the file. A study that changed since then
is parsed as YAML. If `make` did not run, all studies are.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vicinal import papers
from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.base.native import parsed_studies
from vicinal.base.wording import nearest
from vicinal.base.yaml import Form, load, load_parts, mark_faults, read_text
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.file.reading import FORM, parse_study, read_study
from vicinal.labs.study.file.reading_environments import FORM as ENVIRONMENTS
from vicinal.labs.study.file.reading_environments import Loader, plain

STUDIES = Path(papers.__file__).parent
"""The folder of the studies: NAME.yaml, and environments/PAPER.yaml with the environments that the
studies of a paper share."""


def study_names() -> list[str]:
    """Names of the shipped studies: Vicinal's own first, then by paper and figure."""
    return sorted((path.stem for path in STUDIES.glob("*.yaml")), key=_order)


def list_studies() -> list[Study]:
    """All shipped studies, in the order of study_names()."""
    loader = _loader(parsed_values())
    return [_read(study_file(name), loader) for name in study_names()]


def study_file(name_or_path: str) -> Path:
    """The file of a study, which is shipped or the user's own.

    Raises VicinalError with the nearest name if there is no such study.
    """
    shipped = study_names()
    if name_or_path in shipped:
        return STUDIES / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or "/" in name_or_path or path.is_file():
        return path
    remedy = nearest(name_or_path, shipped)
    if not remedy.startswith("did"):
        remedy = "`vicinal study list` shows all; name your own study by its file"
    raise VicinalError(f"there is no study {name_or_path}", remedy)


def load_study(name_or_path: str) -> Study:
    """The study of this name, or in this file. Raises VicinalError with file, line and remedy."""
    path = study_file(name_or_path)
    return _read(path, _loader(parsed_values())) if path.parent == STUDIES else read_study(path)


def _read(path: Path, loader: Loader) -> Study:
    return parse_study(path, read_text(FORM, path), loader)


def _loader(parsed: Mapping[str, Any]) -> Loader:
    def kept(form: Form, file: Path, text: str, faults: Faults) -> Any:
        values = parsed.get(digest(text))
        if values is None:
            return load_parts(form, file, text, faults)
        mark_faults(form, file, values, faults)
        return values

    return Loader(kept)


def _order(name: str) -> tuple[bool, str, bool, int, str]:
    """A key that sorts quick and aa first, then p1-fig2 ... p2-fig4, p2-fig4d ... p3-table3, by
    number.
    """
    paper, _, figure = name.partition("-")
    digits = "".join(letter for letter in figure if letter.isdigit())
    return (bool(digits), paper, figure.startswith("table"), int(digits or 0), name)


def parsed_values() -> Mapping[str, Any]:
    """Parsed values of study files by digest; empty if there are none."""
    file = parsed_studies()
    if file is None:
        return {}
    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def digest(text: str) -> str:
    """The key of the values of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def keep(paths: Iterable[Path], file: Path | None = None) -> bool:
    """Parse and store studies, and the environments that shipped studies share, that are not stored
    yet. `file` is where; by default where commands look for them.

    Returns whether there were any. Raises VicinalError if a file cannot be parsed.
    """
    present = parsed_studies()
    file = file or present
    if file is None:
        return False
    files = [(FORM, path) for path in paths]
    files += [(ENVIRONMENTS, path) for path in sorted(STUDIES.glob("environments/*.yaml"))]
    texts = [(form, path, read_text(form, path)) for form, path in files]
    kept = parsed_values()
    if file == present and {digest(text) for *_, text in texts} == set(kept):
        return False
    values = {
        (key := digest(text)): kept[key] if key in kept else plain(load(form, path, text))
        for form, path, text in texts
    }
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(json.dumps(values, ensure_ascii=False))
    new.replace(file)
    return True


if __name__ == "__main__":  # by scripts/setup, and with a file by packaging/meson.build
    keep(map(study_file, study_names()), Path(sys.argv[1]) if sys.argv[1:] else None)
