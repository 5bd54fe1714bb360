"""Sphinx's configuration of the documentation's site. sources.py lists the pages."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from hawkmoth.util import compiler

TREE = Path(os.environ["VICINAL_TREE"])
SITE = Path(os.environ["VICINAL_SITE"])
sys.path.insert(0, str(TREE / "scripts"))

from docs_site import comments  # noqa: E402  after the line that finds it

PACKAGE = next(path for path in (TREE / "src/vicinal", TREE / "vicinal") if path.is_dir())
TOCTREE = re.compile(r"^\.\. toctree::\n(?: +:.*\n)*\n((?: +/.*\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ +(/\S+)", re.MULTILINE)

project = "Vicinal"
author = "Vicinal contributors"
version = release = re.findall(r'__version__ = "(.*)"', (PACKAGE / "__init__.py").read_text())[0]

extensions = ["myst_parser", "autoapi.extension", "hawkmoth", "sphinx.ext.autodoc"]
exclude_patterns = ["headers", "files"]
# Every page's navigation is made anew from all entries, so objects are left out of it.
toc_object_entries = False
html_theme = "furo"
html_title = f"Vicinal {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

# Pages: headings get the anchors that GitHub gives them.
myst_heading_anchors = 6

# Python: the sources are read, not imported.
autoapi_dirs = [str(PACKAGE)]
autoapi_root = "api/python"
autoapi_options = ["members", "show-module-summary"]
autoapi_ignore = ["*/appliance/root/*"]
autoapi_add_toctree_entry = False
autoapi_keep_files = True
suppress_warnings = [
    "autoapi.python_import_resolution",  # libraries that are not installed here
    "ref.python",  # annotations of signatures: two classes may share a short name
    "duplicate_declaration.c",  # Sphinx does not distinguish C's tags from its functions
]

# C: copies of the headers, in which comments are marked as documentation.
hawkmoth_root = str(SITE / "headers")
hawkmoth_clang = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-Wno-unknown-warning-option",
    f"-I{SITE / 'headers'}",  # guest/ includes its headers from the root
    *(f"-I{path}" for path in sorted((SITE / "headers").iterdir()) if path.is_dir()),
    *compiler.get_include_args(shutil.which("clang") or "gcc"),
]


def _python(*given: Any) -> None:
    given[-1][:] = _shown(given[-1])


def _c(_app: Any, lines: list[str], *_options: Any) -> None:
    lines[:] = _shown(lines)


def _shown(lines: list[str]) -> list[str]:
    return comments.as_rst("\n".join(lines)).split("\n")


def _modules(_app: Any, page: str, source: list[str]) -> None:
    """List modules on the page of their package, and not beside every page of the site."""
    if not page.startswith("api/python/"):
        return
    text = TOCTREE.sub(lambda tree: ENTRY.sub(r"- :doc:`\1`", tree[1]), source[0])
    lines = [
        comments.without_options(line) if line.lstrip().startswith(".. py:") else line
        for line in text.split("\n")
    ]
    top = page == "api/python/vicinal/index"
    source[0] = ("" if top else ":orphan:\n\n") + "\n".join(lines)


def setup(app: Any) -> None:
    """Convert comments and docstrings, and list modules on the pages of their packages."""
    app.connect("source-read", _modules)
    app.connect("autodoc-process-docstring", _python)
    app.connect("hawkmoth-process-docstring", _c)
