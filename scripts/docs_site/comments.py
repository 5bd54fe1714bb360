"""Comments of C and docstrings of Python as reStructuredText.

Both are plain text: code in single backquotes, lists with hyphens, indented examples and drawings.
"""

import re
from collections.abc import Iterator

_CODE = re.compile(r"(`[^`\n]+`)")
_SPECIAL = re.compile(r"([\\*|_`])")
_DRAWING = re.compile(r"[\u2500-\u257f\u25b2-\u25c7]|\S {3,}\S")
_TRAILING = re.compile(
    r"^([ \t]*)(\S[^\n]*?)[ \t]*/\*(?!\*)((?:[^*]|\*(?!/))*)\*/[ \t]*$", re.MULTILINE
)
_ATOMIC = re.compile(r"\b_Atomic(?: (?=\w)|\((?=\w+\)))(\w+)\)?")
_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_BARE_TYPE = re.compile(r"(?<!\*/\n)^(?=(?:typedef )?(?:struct|enum|union) \w* ?\{$)", re.MULTILINE)
_DECLARATION = re.compile(r"^(?![ \t]*(?:/\*|#\s*(?!define)|_Static_assert|\}|\{|$))")


def as_rst(text: str) -> str:
    """reStructuredText that shows `text` as it is written."""
    blocks = re.split(r"\n[ \t]*\n", text.expandtabs(8).strip("\n"))
    shown: list[str] = []
    for block in blocks:
        new = _block(block)
        if shown and shown[-1].startswith("::") and new.startswith("::"):
            shown[-1] += "\n\n" + new.removeprefix("::").lstrip("\n")
        elif block.strip():
            shown.append(new)
    return "\n\n".join(shown) + "\n"


def _block(block: str) -> str:
    lines = block.split("\n")
    if lines[0].startswith("- ") and all(line.startswith(("- ", "  ")) for line in lines):
        items = re.split(r"^- ", block, flags=re.MULTILINE)[1:]
        return "\n".join(f"- {_inline(item)}" for item in items)
    if any(line.startswith(" ") or _DRAWING.search(line) for line in lines):
        return "::\n\n" + "\n".join(f"   {line}".rstrip() for line in lines)
    return _inline(block)


def _inline(text: str) -> str:
    parts = _CODE.split(" ".join(text.split()))
    parts[::2] = [_SPECIAL.sub(r"\\\1", part).replace("::", r":\:") for part in parts[::2]]
    parts[1::2] = [f"\\ ``{part[1:-1].strip()}``\\ " for part in parts[1::2]]
    joined = "".join(parts)
    # Escape text that would begin a list, a field or a comment at the start of a paragraph.
    return re.sub(r"^([-+:.>]|\(?\w{1,4}[.)])(?=\s|:|\.)", r"\\\1", joined)


def first(header: str) -> str:
    """What the comment at the top of a C header says about the file, without the file's name."""
    for text in _comments(header):
        if "SPDX-License-Identifier" not in text:
            return as_rst(re.sub(r"^\S+\.h - ", "", text))
    return ""


def _comments(source: str) -> Iterator[str]:
    for match in re.finditer(r"/\*(.*?)\*/", source, re.DOTALL):
        lines = [re.sub(r"^[ \t]*\*[ ]?", "", line) for line in match[1].strip().split("\n")]
        yield "\n".join(lines).strip("\n ")


def documented(header: str) -> str:
    """A C header in which comments of declarations begin with two asterisks, as documentation does.

    A comment beside a declaration moves before it. Comments in the bodies of functions, and the
    comment at the top of the file, stay as they are.
    """
    guard = header.find("#ifndef")
    top, rest = header[: max(guard, 0)], header[max(guard, 0) :]
    # In this project's style, only a function's body has its braces in the first column.
    parts = re.split(r"(^\{\n.*?^\}\n)", rest, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_marked(_TRAILING.sub(_before, part)) for part in parts[::2]]
    return top + _named_atomics("".join(parts))


def _named_atomics(source: str) -> str:
    """Replace atomic types by names, which are defined after the last #include.

    Sphinx does not read `_Atomic(T)`, which is how Clang prints other atomic types.
    """
    kinds = sorted(set(_ATOMIC.findall(source)))
    named = "".join(f"typedef _Atomic({kind}) atomic_{kind};\n" for kind in kinds)
    begin = max((match.end() for match in _INCLUDE.finditer(source)), default=0)
    return source[:begin] + named + _ATOMIC.sub(r"atomic_\1", source[begin:])


def _before(match: re.Match[str]) -> str:
    indent, code, comment = match.groups()
    if code.startswith(("/*", "*", "#if", "#else", "#endif")) or "*/" in code:
        return match[0]
    return f"{indent}/*{comment}*/\n{indent}{code}"


def _marked(part: str) -> str:
    def mark(match: re.Match[str]) -> str:
        return "/**" + match[1] if _DECLARATION.match(match[2]) else match[0]

    marked = re.sub(r"(?<!\S)/\*(?!\*)((?:[^*]|\*(?!/))*\*/\n(?=([^\n]*)))", mark, part)
    # Members are shown only if their type has a comment.
    return _BARE_TYPE.sub("/** */\n", marked)


def without_options(signature: str) -> str:
    """A signature in which a command's parameters have the type `T` for `Annotated[T, ...]`."""
    begin = signature.find("Annotated[")
    if begin < 0:
        return signature
    kind = ""
    depth, quote, at = 1, "", begin + len("Annotated[")
    first = True
    while at < len(signature) and depth:
        sign = signature[at]
        if quote:
            at += sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "[({") - (sign in "])}")
            first = first and not (sign == "," and depth == 1)
        kind += sign if first and depth else ""
        at += 1
    return signature[:begin] + kind + without_options(signature[at:])
