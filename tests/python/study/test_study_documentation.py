"""docs/reference/study-file.md lists all shipped studies and all keys of the file."""

import re

from command_support import CHECKOUT

from vicinal.labs.study.file.reading import FORM
from vicinal.labs.study.file.shipped import list_studies, load_study

RX = ("native-rx88", "vm-rx1")
PAGE = (CHECKOUT / "docs/reference/study-file.md").read_text()
KEYS = PAGE.partition("\n## Workloads\n")[0]
STUDIES = PAGE.partition("\n## The studies\n")[2]


def test_every_study_is_listed() -> None:
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \| (.*?) \|$", STUDIES, re.MULTILINE)
    shipped = [(each.name, each.source, each.title) for each in list_studies()]
    assert listed == shipped


def test_every_key_is_explained() -> None:
    parts = {name: FORM.schema["$defs"][name] for name in ("environment", "workload", "design")}
    for part in (*parts.values(), FORM.schema["$defs"]["published"]):
        for key in part["properties"]:
            if key not in ("name", "title", "base", "test", "source", "note", "statistic"):
                assert re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`", KEYS), key


def test_every_figure_and_table_of_the_papers_is_there() -> None:
    names = {each.name for each in list_studies()}
    figures = {
        "p1": [f"fig{number}" for number in range(2, 7)],
        "p2": ["fig1", "fig4", "fig4d", *(f"fig{number}" for number in range(5, 12))],
        "p3": [*(f"fig{n}" for n in range(4, 14)), *(f"table{n}" for n in range(3, 7))],
        "p4": [*(f"fig{number}" for number in range(1, 10)), "table1"],
        "p5": [f"fig{number}" for number in range(4, 10)],
    }
    wanted = {f"{paper}-{each}" for paper, those in figures.items() for each in those}
    assert names == wanted | {"quick", "aa"}


def test_tables_are_whole() -> None:
    """The tables have as many figures as the paper's, and sampled figures match the print."""
    tables = {
        "p3-table3": (36, ("latency", "vm-rx1", None, 16384, "mean", 14.2, "")),
        "p3-table4": (30, ("allgather", "native-rx88", None, 512, "mean", 4.128, "")),
        "p3-table5": (24, ("allgather-8", None, RX, 8192, "mean", 0.49, "")),
        "p3-table6": (92, ("bcast", "vm", None, 524288, "max", 3915.07, "")),
        "p4-table1": (4, ("send", "vm", None, 128, "mean", 2.235, "")),
    }
    for name, (count, one) in tables.items():
        figures = [
            (p.workload, p.environment, p.comparison, p.size, p.statistic.value, p.value, p.note)
            for p in load_study(name).published
        ]
        assert len(figures) == len(set(figures)) == count, name
        assert one in figures, name
    below = [p for p in load_study("p3-table5").published if p.note == "less than"]
    assert len(below) == 14
    assert {(p.value, p.unit) for p in below} == {(0.001, "p")}
