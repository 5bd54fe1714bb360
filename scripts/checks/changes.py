"""What commits changed, and which suites the changes concern."""

import ast
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp

from checks.suites import CheckError, Suite, is_below

HOURS = 6
"""A landing follows at most three hours of work and its checks. A failed landing is tried again."""


def git(tree: Path, *words: str) -> str:
    """The output of git. Raises CheckError with git's message."""
    done = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckError(f"git {words[0]}: {done.stderr.strip()}. Run this in a checkout")
    return done.stdout


def base_of(tree: Path, hours: float = HOURS) -> str | None:
    """The newest commit that is older than this many hours. None if all commits are younger."""
    return git(tree, "rev-list", "-1", f"--before={hours} hours ago", "HEAD").strip() or None


def changed_files(tree: Path, base: str | None) -> set[str]:
    """Files that differ between a commit and the working tree, untracked files included.

    Without a commit, these are all files. A renamed file counts under both names.
    """
    new = git(tree, "ls-files", "--others", "--exclude-standard")
    if base is None:
        return set((git(tree, "ls-files") + new).splitlines())
    return set((git(tree, "diff", "--no-renames", "--name-only", base) + new).splitlines())


class Imports:
    """Modules of `vicinal` that tests import, directly or through other modules."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._graph = grimp.build_graph("vicinal", cache_dir=None)

    def files_of(self, folders: Iterable[str]) -> set[str]:
        """Files of the modules that the tests in these folders import."""
        modules = {
            module
            for folder in folders
            for file in (self._tree / folder).rglob("*.py")
            for module in self._needed(file)
        }
        return {f"src/{module.replace('.', '/')}.py" for module in modules} | {
            f"src/{module.replace('.', '/')}/__init__.py" for module in modules
        }

    @cache  # noqa: B019  an object of this class lives as long as the command
    def _needed(self, file: Path) -> frozenset[str]:
        direct: set[str] = set()
        files, todo = {file}, [file]
        while todo:
            for name in _imports(todo.pop()):
                if name in self._graph.modules:
                    direct.add(name)
                support = [
                    above / f"{name}.py"
                    for above in (file.parent, *sorted(self._tree.glob("tests/*/support")))
                ]
                new = {each for each in support if each.is_file()} - files
                files |= new
                todo += new
        return frozenset(direct).union(
            *(self._graph.find_upstream_modules(each) for each in direct)
        )


@cache
def _imports(file: Path) -> tuple[str, ...]:
    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{each.name}" for each in node.names)
            elif isinstance(node, ast.Import):
                yield from (each.name for each in node.names)

    return tuple(names())


def reason_of(suite: Suite, changed: Iterable[str], imported: set[str]) -> str:
    """The most direct reason why the changed files concern a suite. Empty if they do not."""
    by_import = ""
    for path in sorted(changed):
        if any(is_below(path, above) for above in (*suite.sources, *suite.folders)):
            return f"{path} changed"
        if not by_import and path in imported:
            by_import = f"{path} changed, which its tests import"
    return by_import


def unknown(changed: Iterable[str], suites: list[Suite]) -> list[str]:
    """Changed files that no suite names, so that the concerned suites are not known."""
    known = {above for suite in suites for above in (*suite.sources, *suite.folders)}
    return sorted(path for path in changed if not any(is_below(path, each) for each in known))
