"""Finds functions by name in Python and C sources, and an expression in a function's body."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# C's comments, strings, character constants, and preprocessor lines with their continuations.
_NOT_CODE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_HEAD = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class Function:
    """A function's location in a text. Its body is text[start:end]."""

    name: str  # in Python with its classes and functions: Class.method
    start: int
    end: int


def _declared_name(head: str) -> str | None:
    """The name of the function in the text before a brace. None if the text is no function."""
    if not head.rstrip().endswith(")"):
        return None  # a struct, or the values of a variable
    for found in _HEAD.finditer(head):
        before = head[: found.start()]
        if found[1] != "__attribute__" and before.count("(") == before.count(")"):
            return found[1]
    return None


def c_functions(text: str) -> Iterator[Function]:
    """Functions that a C source defines: NAME(...) and a brace, outside of all braces."""
    code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    depth, declared, body = 0, 0, 0
    for brace in re.finditer(r"[{};]", code):
        index = brace.start()
        if brace[0] == "{":
            body = index if depth == 0 else body
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                name = _declared_name(code[declared:body])
                if name:
                    yield Function(name, body, index + 1)
                declared = index + 1
        elif depth == 0:
            declared = index + 1


def python_functions(text: str) -> Iterator[Function]:
    """Functions and methods of a Python source, from their decorators to their end."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    first = min([child, *child.decorator_list], key=lambda part: part.lineno)
                    yield Function(name, starts[first.lineno - 1], starts[child.end_lineno or 0])
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(ast.parse(text), "")


def occurrences(text: str, function: Function, expression: str) -> Iterator[tuple[int, int]]:
    """The locations of an expression in a function, without regard to white space."""
    indices = [i for i in range(function.start, function.end) if not text[i].isspace()]
    squeezed = "".join(text[i] for i in indices)
    wanted = "".join(expression.split())
    found = squeezed.find(wanted)
    while found >= 0:
        yield indices[found], indices[found + len(wanted) - 1] + 1
        found = squeezed.find(wanted, found + 1)


@dataclass(frozen=True)
class Location:
    """The location of an expression: text[start:end] of a file."""

    file: Path
    start: int
    end: int


class Texts:
    """Source files, each read once."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.of = {file: file.read_text() for file in files}
        self._squeezed = {file: "".join(text.split()) for file, text in self.of.items()}

    def find(self, suffixes: Collection[str], name: str, expression: str) -> list[Location]:
        """All locations of an expression in functions with a name.

        The name may leave out the classes and functions around the function.
        """
        wanted = "".join(expression.split())
        found = []
        for file, text in self.of.items():
            if file.suffix not in suffixes or wanted not in self._squeezed[file]:
                continue
            functions = python_functions(text) if file.suffix == ".py" else c_functions(text)
            for function in functions:
                if f".{function.name}".endswith(f".{name}"):
                    ranges = occurrences(text, function, expression)
                    found += [Location(file, *where) for where in ranges]
        return found
