"""What Sphinx gets for the documentation's site: pages by folder, their links, comments."""

import subprocess
from pathlib import Path

import pytest
from docs_site import comments, sources

HEADER = """\
/* SPDX-License-Identifier: BSD-3-Clause */
/* a.h - what `a_take` needs. */
#ifndef A_H
#define A_H

#define A_MOST 8U /* of one peer */

struct a {
	int first; /* writer: the owner,
\t * once */
	int second;
};

/* Take one. Returns 0 or -1. */
int a_take(struct a *a);

/* A heading. */

static inline int a_get(struct a *a)
{
	/* not here */
	return a->first; /* nor here */
}
#endif
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "README.md": "[start](docs/how-to/start.md)\n",
        "LICENSE": "",
        "docs/how-to/start.md": (
            "# Start\n\n[a](../reference/a.md#b), [text](../../LICENSE), "
            "[readme](../../README.md)\n"
            "\n```\n[a](../reference/a.md)\n```\n"
        ),
        "docs/reference/a.md": (
            '# A\n\n<a id="b"></a>**B** [gone](gone.md) [site](https://example.org/x.md)\n'
        ),
        "provider/README.md": "[region](region/a.h)\n",
        "provider/region/a.h": HEADER,
        "tests/unit/t.h": HEADER,
    }
    for name, text in files.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    return tmp_path / "tree"


def test_links_lead_to_where_the_site_has_a_page(tree: Path) -> None:
    site = tree.parent / "site"
    sources.stage(tree, site)
    start = (site / "how-to/start.md").read_text()
    assert (
        "[a](../reference/a.md#b), [text](../files/LICENSE), [readme](../project/README.md)"
        in start
    )
    assert "```\n[a](../reference/a.md)\n```" in start, "code is left as it is"
    assert "[start](../how-to/start.md)" in (site / "project/README.md").read_text()
    assert (site / "files/LICENSE").is_file()
    # This page among the sources links to a file next to it.
    assert (
        "[region](../../files/provider/region/a.h)"
        in (site / "source/provider/README.md").read_text()
    )
    other = (site / "reference/a.md").read_text()
    assert "(b)=\n**B** [gone](gone.md) [site](https://example.org/x.md)" in other


def test_contents_follow_the_folders(tree: Path) -> None:
    site = tree.parent / "site"
    sources.stage(tree, site)
    index = (site / "index.md").read_text()
    assert "# Vicinal\n" in index
    for folder, page in (("How to", "/how-to/start"), ("Reference", "/reference/a")):
        assert f":caption: {folder}\n\n{page}\n```" in index
    assert "\n/api/c/provider-region\n" in index
    assert not (site / "api/c/tests-unit.rst").exists()
    (tree / "docs/index.md").write_text("# My start\n")
    (tree / "docs/reference/a.md").unlink()
    (tree / "docs/decisions").mkdir()
    (tree / "docs/decisions/one.md").write_text("# One\n")
    sources.stage(tree, site)
    index = (site / "index.md").read_text()
    assert index.startswith("# My start\n")
    assert ":caption: Decisions\n:hidden:\n\n/decisions/one\n```" in index
    assert "reference" not in index
    assert not (site / "reference/a.md").exists()


def test_what_did_not_change_keeps_its_time(tree: Path) -> None:
    """If the times changed, Sphinx would read all pages again."""
    site = tree.parent / "site"
    sources.stage(tree, site)
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
    sources.stage(tree, site)
    assert before == {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
    assert before


def test_comments_of_declarations_become_documentation() -> None:
    text = comments.documented(HEADER)
    assert "/** of one peer */\n#define A_MOST 8U\n" in text
    assert "/** writer: the owner,\n\t * once */\n\tint first;\n" in text
    assert "/** */\nstruct a {" in text, "or its members would not be shown"
    assert "/** Take one. Returns 0 or -1. */\nint a_take" in text
    assert text.count("/**") == 4
    assert comments.first(HEADER) == "what \\ ``a_take``\\  needs.\n"


def test_text_is_shown_as_it_is_written() -> None:
    assert (
        comments.as_rst("Of *p and a_ | b:: `x * y`.")
        == "Of \\*p and a\\_ \\| b:\\: \\ ``x * y``\\ .\n"
    )
    assert comments.as_rst("- one\n  more\n- two") == "- one more\n- two\n"
    assert comments.as_rst("So:\n\n    a = 1\n\n    b = 2\n\nend") == (
        "So:\n\n::\n\n       a = 1\n\n       b = 2\n\nend\n"
    )


def test_options_of_commands_are_left_out_of_signatures() -> None:
    shown = comments.without_options(
        "f(a: Annotated[str | None, Option('[, \\'x', f\"{b}'\")] = None, b: dict[str, int] = {})"
    )
    assert shown == "f(a: str | None = None, b: dict[str, int] = {})"


def test_atomic_types_have_names() -> None:
    text = comments.documented(
        "#ifndef A\n#include <b.h>\n_Atomic int a; /* one */\n_Atomic(int) b;\n"
    )
    assert (
        "#include <b.h>\ntypedef _Atomic(int) atomic_int;\n/** one */\natomic_int a;\natomic_int b;"
        in text
    )
