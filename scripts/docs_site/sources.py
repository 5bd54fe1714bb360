"""The folder that Sphinx reads: pages, with links as the site needs them, and C headers."""

import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from docs_site import comments

LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
ANCHOR = re.compile(r'^<a id="([^"]+)"></a>', re.MULTILINE)
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
NO_API = ("programs/", "tests/")
"""Folders whose headers serve only their own programs."""
LAST = ("api", "source", "project")
FIRST = """\
# Vicinal

MPI between the containers and virtual machines of one host, at memory speed.
"""


def site_path(path: str) -> str:
    """The path of a repository's file on the site.

    docs/ is the root of the site. project/ has the pages beside docs/, source/ has the README.md of
    other folders, and files/ has all that is not a page.
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if not _is_page(path):
        return f"files/{path}"
    return f"source/{path}" if "/" in path else f"project/{path}"


def stage(tree: Path, site: Path) -> None:
    """Fill `site` from the repository `tree`. Unchanged files keep their times.

    Files that were deleted in the working tree are left out, whether or not git knows that.
    """
    files = _files(tree)
    pages = [path for path in files if _is_page(path)]
    wanted: dict[str, str] = {}
    linked: set[str] = set()
    for page in pages:
        wanted[site_path(page)] = _page((tree / page).read_text(), page, tree, linked.add)
    headers = [path for path in files if path.endswith(".h") and not path.startswith(NO_API)]
    wanted |= _header_pages(tree, headers)
    wanted["index.md"] = _index(wanted.get("index.md"), [*wanted, "api/python/vicinal/index.rst"])
    copies = {f"headers/{path}": comments.documented((tree / path).read_text()) for path in headers}
    for name, text in (wanted | copies).items():
        _write(site / name, text)
    for path in linked:
        (site / site_path(path)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / path, site / site_path(path))
    keep = {*wanted, *copies, *map(site_path, linked)}
    for old in site.rglob("*"):
        name = old.relative_to(site).as_posix()
        if old.is_file() and name not in keep and not name.startswith("api/python/"):
            old.unlink()


def _files(tree: Path) -> list[str]:
    """All files that git tracks or would add, sorted."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    return sorted(path for path in set(done.stdout.splitlines()) if (tree / path).exists())


def _is_page(path: str) -> bool:
    """Whether it is Markdown for readers. Elsewhere, Markdown is a template or input of a test."""
    if path.startswith(".") or not path.endswith(".md"):
        return False
    return path.startswith("docs/") or "/" not in path or path.endswith("/README.md")


def _page(text: str, page: str, tree: Path, add: Callable[[str], None]) -> str:
    """A page with the site's links. `add` is called with linked files that are not pages.

    A link to a folder leads to the folder's README.md. A link to nothing, or to a folder without a
    README.md, stays, and Sphinx reports it. Code is left as it is.
    """

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))
        if (tree / target).is_dir():
            target = posixpath.join(target, "README.md")
        if not (tree / target).is_file():
            return link[0]
        if not _is_page(target):
            add(target)
        return (
            os.path.relpath(site_path(target), posixpath.dirname(site_path(page)) or ".") + link[2]
        )

    parts = FENCE.split(text)
    parts[::2] = [ANCHOR.sub(r"(\1)=\n", LINK.sub(moved, part)) for part in parts[::2]]
    return "".join(parts)


def _header_pages(tree: Path, headers: Iterable[str]) -> dict[str, str]:
    """A page for each folder of headers, with a section for each header."""
    pages: dict[str, str] = {}
    for header in sorted(headers):
        folder, name = posixpath.split(header)
        page = f"api/c/{folder.replace('/', '-')}.rst"
        pages.setdefault(page, _title(folder, "="))
        pages[page] += _title(name, "-") + comments.first((tree / header).read_text())
        if "/**" in comments.documented((tree / header).read_text()):
            pages[page] += f"\n.. c:autodoc:: {header}\n\n"
    return pages


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n\n"


def _index(own: str | None, pages: Iterable[str]) -> str:
    """The first page, docs/index.md if it exists, with a table of contents for each folder."""
    folders: dict[str, list[str]] = {}
    for page in pages:
        path = PurePosixPath(page)
        if page == "index.md" or page.startswith("headers/"):
            continue
        folders.setdefault(path.parts[0] if len(path.parts) > 1 else "", []).append(
            str(path.with_suffix(""))
        )
    text = own or FIRST
    # In the order in which readers need them: first docs/, then the sources, then the project
    # itself.
    for folder in sorted(
        folders, key=lambda name: (LAST.index(name) if name in LAST else -1, name)
    ):
        caption = {"": "Pages", "api": "Interfaces"}.get(
            folder, folder.replace("-", " ").capitalize()
        )
        entries = sorted(folders[folder], key=lambda name: (not name.endswith("/index"), name))
        text += f"\n```{{toctree}}\n:caption: {caption}\n" + (":hidden:\n" if own else "")
        text += "\n" + "\n".join(f"/{entry}" for entry in entries) + "\n```\n"
    return text


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
