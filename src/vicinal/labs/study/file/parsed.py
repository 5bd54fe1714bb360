"""Values of the study files that come with Vicinal, parsed once by `make`.

The YAML library takes four seconds for all of them, more than anything else that `vicinal study
list` does. `make` keeps their values in build/studies.json, each under the digest of its file's
text (`python -m vicinal.labs.study.file.shipped`). A file that was changed since is
parsed as YAML, and so are all if `make` did not run.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vicinal.base.checkout import checkout


def parsed_values() -> Mapping[str, Any]:
    """Values by digest; none where nothing was built."""
    file = _file()
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


def keep(paths: Iterable[Path]) -> bool:
    """Parse what is not kept yet; returns whether there was any. Raises VicinalError."""
    from vicinal.base.yaml import load, read_text
    from vicinal.labs.study.file.reading import FORM, plain

    file = _file()
    if file is None:
        return False
    texts = {path: read_text(FORM, path) for path in paths}
    kept = parsed_values()
    if {digest(text) for text in texts.values()} == set(kept):
        return False
    values = {
        (key := digest(text)): kept[key] if key in kept else plain(load(FORM, path, text))
        for path, text in texts.items()
    }
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(json.dumps(values, ensure_ascii=False))
    new.replace(file)
    return True


def _file() -> Path | None:
    tree = checkout()
    return None if tree is None else tree / "build" / "studies.json"
