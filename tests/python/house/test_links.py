"""Relative links in all Markdown files lead to files, and their anchors to headings."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

TREE = Path(__file__).parents[3]
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
OTHER_SITES = re.compile(r"^[a-z][a-z0-9+.-]*:")


def documents() -> list[Path]:
    """All Markdown files of the tree except other projects', in build/ and hidden folders."""
    folders = [path for path in TREE.iterdir() if path.is_dir() and path.name != "build"]
    own = [path for path in folders if not path.name.startswith(".")]
    return sorted([*TREE.glob("*.md"), *(path for each in own for path in each.glob("**/*.md"))])


def anchors(markdown: str) -> set[str]:
    """The anchors of the headings in GitHub's form: a repeated name ends in -1, -2 and so on."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", markdown)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def links(markdown: str) -> Iterator[str]:
    """Links to files of the tree or to headings, in order, without links in code."""
    for target in LINK.findall(CODE.sub("", FENCE.sub("", markdown))):
        if not OTHER_SITES.match(target):
            yield unquote(target)


def broken(document: Path) -> Iterator[str]:
    """The links of a document that lead nowhere."""
    text = document.read_text()
    for link in links(text):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield f"{link}: the file has no such heading"


def test_links_and_anchors_are_told_from_examples() -> None:
    text = '# A `b`: c\n\n## A b c\n\n[x](y.md#z "title") `[no](no.md)` [w](https://w)\n'
    text += "```\n# not a heading\n[no](no.md)\n```\n"
    assert anchors(text) == {"a-b-c", "a-b-c-1"}
    assert list(links(text)) == ["y.md#z"]


@pytest.mark.parametrize(
    "document", [pytest.param(path, id=str(path.relative_to(TREE))) for path in documents()]
)
def test_every_link_leads_somewhere(document: Path) -> None:
    assert not list(broken(document))
