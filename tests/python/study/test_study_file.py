"""Study files: their meaning, the message for each mistake, and studies as JSON."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.base.errors import VicinalError
from vicinal.base.faults import CollectedError
from vicinal.labs.study.file.json_form import study_from_json, study_to_json
from vicinal.labs.study.file.model import (
    Adaptation,
    Comparison,
    Correction,
    Design,
    Environment,
    Published,
    Quantity,
    Statistic,
    Study,
    Workload,
)
from vicinal.labs.study.file.reading import FORM, parse_study, read_study
from vicinal.labs.study.file.shipped import list_studies, load_study, study_file
from vicinal.labs.study.file.trials import count_tests, trials_needed, warnings_of
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Mpi

WHOLE = """\
name: mine
title: Containers
question: >
  What does a region
  save?
source: us
environments:
  - name: network
    cluster: {nodes: [{name: n, count: 2}], region: none}
    path: network
    mpi: openmpi
    variables: {OMPI_MCA_a: "1"}
  - name: region
    title: with a region
    cluster:
      nodes:
        - name: n
          count: 2
          mounts: [., "data:/data:ro"]
    progress: block
workloads:
  - name: latency
    driver: record
    operation: latency
    quantity: latency
    sizes: 1..4K
  - name: hpl
    driver: hpcc
    operation: HPL
    quantity: performance
    ranks: 4
    options: {N: 1000, verify: true}
design:
  comparisons: [{base: network, test: region}]
  trials: 12
  most_trials: 40
  correction: benjamini-hochberg
  control: region
published:
  - workload: latency
    environment: network
    values: {8: 5.05, 4K: "~8.9"}
  - workload: latency
    comparison: [network, region]
    unit: p
    size: 8
    value: "<0.001"
    source: P3 Table V
  - workload: hpl
    environment: region
    unit: GFLOPS
    value: 100
    note: read off a plot
notes: [mind the gap]
"""


def read(text: str, tmp_path: Path) -> Study:
    file = tmp_path / "study.yaml"
    file.write_text(text)
    return read_study(file)


def test_all_that_a_file_can_say(tmp_path: Path) -> None:
    study = read(WHOLE, tmp_path)
    assert study.question == "What does a region save?"
    network, region = study.environments
    assert (network.mpi, network.path) == (Mpi.OPENMPI, MessagePath.NETWORK)
    assert network.variables == {"OMPI_MCA_a": "1"}
    assert network.title == "network"
    assert region.progress is Progress.BLOCK
    assert region.cluster["nodes"][0]["mounts"] == [str(tmp_path), f"{tmp_path}/data:/data:ro"]
    latency, hpl = study.workloads
    assert latency.sizes == tuple(1 << bit for bit in range(13))
    assert (latency.ranks, latency.statistics) == (2, (Statistic.MEDIAN, Statistic.P99))
    assert hpl.options == {"N": 1000, "verify": True}
    assert type(hpl.options["N"]) is int
    assert study.design.comparisons == (Comparison("network", "region"),)
    assert (study.design.trials, study.design.most_trials) == (12, 40)
    assert study.design.correction is Correction.BENJAMINI_HOCHBERG
    small, large, p_value, speed = study.published
    assert (small.size, small.value, small.unit, small.note) == (8, 5.05, "µs", "")
    assert (large.size, large.value, large.note, large.source) == (4096, 8.9, "about", "us")
    assert (p_value.unit, p_value.value, p_value.note) == ("p", 0.001, "less than")
    assert (p_value.comparison, p_value.environment) == (("network", "region"), None)
    assert (speed.unit, speed.note, speed.size) == ("GFLOPS", "read off a plot", None)
    assert study.notes == ("mind the gap",)


# The old text, the new text, and the message: the line, the cause and the remedy.
MISTAKES = [
    ("title: Cont", "titel: Cont", ":2: unknown key titel: did you mean title?"),
    ("source: us\n", "", ":1: the file has no source: add it"),
    ("correction: b", "correction: x-b", ":37: design.correction cannot be"),
    ("test: region}", "test: regoin}", ":34: there is no environment regoin: did you mean region?"),
    ("test: region}", "test: network}", ":34: network is compared with itself"),
    (
        "control: region",
        "control: other",
        ":38: there is no environment other: use network, region",
    ),
    ("most_trials: 40", "most_trials: 4", ":36: most_trials is 4, less than trials (12)"),
    ("- workload: hpl", "- workload: hlp", ":49: there is no workload hlp: did you mean hpl?"),
    ("    unit: GFLOPS\n", "", ":49: figures of performance have no default unit"),
    (
        'values: {8: 5.05, 4K: "~8.9"}',
        "value: 5",
        ":42: latency has sizes, but this figure has none: give its size",
    ),
    (
        "size: 8",
        "size: 3",
        ":47: latency has no size 3: add it to the workload's sizes, which are 1..4K",
    ),
    ("values: {8:", "values: {x:", ":42: 'x' is not a size"),
    ("unit: p", "unit: µs", ":45: a comparison's figure cannot be in µs: choose ratio or p"),
    ("1..4K", "4K..1", ":26: 4K..1 is not a range of sizes"),
    ("1..4K", "[8, 8]", ":26: the size 8 is given twice"),
    ("count: 2}]", "cuont: 2}]", ":9: unknown key cuont in nodes[0]: did you mean count?"),
    (" region: none}", " regoin: none}", ":9: unknown key regoin: did you mean region?"),
    (
        "cluster: {nodes",
        "cluster: {name: x, nodes",
        ":9: a cluster in another file cannot have a name: remove `name`",
    ),
    ("path: network", "path: shared", ':10: environments[0].path cannot be "shared"'),
    ("mpi: openmpi", "cma: false", ":11: network has cma, but its path is not shared-memory"),
    ("mpi: openmpi", "progress: poll", ":11: network has progress, a setting of the provider"),
    ("mpi: openmpi", "stands_for: regn", ":11: there is no environment regn: did you mean region?"),
    (
        '"1"}',
        "1}",
        ":12: environments[0].variables.OMPI_MCA_a cannot be 1: give text; write it",
    ),
    (
        "- name: hpl",
        "- name: latency",
        ":27: the name latency is given twice: give each its own name",
    ),
    ("quantity: latency", "quantity: latency\n    seconds: .nan", ":26: seconds is not finite"),
    ("value: 100", "value: .inf", ":52: inf is not a finite number"),
    (
        "value: 100",
        "value: 100\n    values: {8: 1}",
        ":49: a published figure needs either a value or",
    ),
    ("    environment: region\n", "", ":49: a published figure needs either an environment"),
    ("trials: 12", "trials: [", ":37: "),
    (
        WHOLE,
        "- x",
        ":1: the file is not a study file, which has keys and values: start from the output",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES, ids=[each[2] for each in MISTAKES])
def test_what_is_said_of_mistakes(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert WHOLE.count(old) >= 1
    with pytest.raises(VicinalError) as caught:
        read(WHOLE.replace(old, new, 1), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/study.yaml{said}")
    assert caught.value.remedy


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(VicinalError, match=r"the study file .* could not be read .*: name another"):
        load_study(str(tmp_path / "none.yaml"))
    with pytest.raises(VicinalError, match="there is no study quik: did you mean quick"):
        load_study("quik")
    with pytest.raises(VicinalError, match="there is no study zzzzz: `vicinal study list` shows"):
        study_file("zzzzz")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """The mistakes are in inner clusters, in keys of the study, and in names without a target."""
    text = WHOLE
    for old, new in (
        ("title: Cont", "titel: Cont"),
        ("count: 2}]", "cuont: 2}]"),
        ("path: network", "path: shared"),
        ("quantity: latency", "quantity: latency\n    seconds: .nan"),
        ("correction: b", "correction: x-b"),
        ("unit: p", "unit: µs"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "study.yaml"
    file.write_text(text)
    with pytest.raises(CollectedError) as caught:
        read_study(file)
    told = [str(each).removeprefix(str(file)) for each in caught.value.each]
    assert [each.split(":")[2].split(",")[0].strip() for each in told] == [
        "unknown key titel",
        'environments[0].path cannot be "shared"',
        'design.correction cannot be "x-benjamini-hochberg"',
        "unknown key cuont in nodes[0]",
        "seconds is not finite",
        "a comparison's figure cannot be in µs",
    ]


def test_a_stand_in_of_a_stand_in_is_none(tmp_path: Path) -> None:
    text = WHOLE.replace("    mpi: openmpi\n", "    stands_for: region\n")
    text = text.replace("    progress: block\n", "    stands_for: network\n")
    with pytest.raises(
        VicinalError, match="network stands for region, which itself stands for another"
    ):
        read(text, tmp_path)


def test_the_schema_knows_the_words_of_the_model() -> None:
    parts = FORM.schema["$defs"]
    environment = parts["environment"]["properties"]
    assert environment["mpi"]["enum"] == [each.value for each in Mpi]
    assert set(environment["path"]["enum"]) == set(MessagePath)
    assert environment["progress"]["enum"] == [each.value for each in Progress]
    for part in ("workload", "published"):
        assert parts[part]["properties"]["quantity"]["enum"] == [each.value for each in Quantity]
    statistics = parts["workload"]["properties"]["statistics"]["items"]["enum"]
    assert statistics == [each.value for each in Statistic]
    assert set(parts["design"]["properties"]["correction"]["enum"]) == set(Correction)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PARTS = st.floats(1e-6, 0.999)
WORDS = st.text(string.ascii_letters, min_size=1, max_size=6)


@st.composite
def environments(draw: st.DrawFn, name: str) -> Environment:
    path = draw(st.sampled_from(MessagePath))
    nodes = [{"name": "n", "count": draw(st.integers(1, 9)), "backend": "container"}]
    return Environment(
        name,
        draw(TEXTS),
        {"nodes": nodes, "region": draw(st.just("none") | st.just({"members": 8}))},
        draw(st.sampled_from(Mpi)),
        path,
        draw(st.sampled_from([None, *Progress])) if path is MessagePath.REGION else None,
        cma=path is not MessagePath.SHARED_MEMORY or draw(st.booleans()),
        variables=draw(st.dictionaries(WORDS, st.text(max_size=4), max_size=2)),
    )


@st.composite
def workloads(draw: st.DrawFn, name: str) -> Workload:
    sizes = st.lists(st.integers(0, 1 << 40), max_size=4, unique=True).map(tuple)
    return Workload(
        name,
        draw(TEXTS),
        draw(TEXTS),
        draw(TEXTS),
        draw(st.sampled_from(Quantity)),
        draw(sizes),
        draw(st.integers(1, 4096)),
        draw(st.integers(1, 10**8)),
        draw(st.floats(1e-6, 86400)),
        tuple(draw(st.lists(st.sampled_from(Statistic), min_size=1, unique=True))),
        draw(st.dictionaries(WORDS, NUMBERS | st.integers() | st.booleans() | TEXTS, max_size=2)),
    )


@st.composite
def figures(draw: st.DrawFn, names: list[str], workload: Workload) -> Published:
    compared = draw(st.booleans())
    return Published(
        draw(TEXTS),
        workload.name,
        draw(st.sampled_from(Quantity)),
        draw(NUMBERS),
        draw(st.sampled_from(["ratio", "p"])) if compared else draw(TEXTS),
        None if compared else draw(st.sampled_from(names)),
        (draw(st.sampled_from(names)), draw(st.sampled_from(names))) if compared else None,
        draw(st.sampled_from(workload.sizes)) if workload.sizes else None,
        draw(st.sampled_from(Statistic)),
        draw(TEXTS | st.just("")),
    )


@st.composite
def studies(draw: st.DrawFn) -> Study:
    names = draw(st.lists(NAMES, min_size=2, max_size=3, unique=True))
    operations = [draw(workloads(name)) for name in draw(st.lists(NAMES, min_size=1, unique=True))]
    trials = draw(st.integers(1, 100))
    design = Design(
        (Comparison(names[0], names[1], draw(TEXTS | st.just(""))),),
        trials,
        draw(st.none() | st.integers(trials, 1000)),
        draw(PARTS),
        draw(PARTS),
        draw(PARTS),
        draw(st.sampled_from(Correction)),
        draw(st.none() | st.sampled_from(names)),
    )
    published = [draw(figures(names, draw(st.sampled_from(operations)))) for _ in range(2)]
    return Study(
        draw(NAMES),
        draw(TEXTS),
        draw(TEXTS),
        draw(TEXTS),
        tuple(draw(environments(name)) for name in names),
        tuple(operations),
        design,
        tuple(published),
        tuple(draw(st.lists(TEXTS, max_size=2))),
        tuple(draw(st.lists(st.builds(Adaptation, TEXTS, TEXTS), max_size=2))),
        draw(st.dictionaries(st.sampled_from(names), TEXTS)),
    )


@settings(max_examples=25, deadline=None)
@given(studies())
def test_studies_come_back_from_json(study: Study) -> None:
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_json_that_is_no_study_is_refused_in_words(data: st.DataObject) -> None:
    """One value, anywhere, changes: the result is still a study, or a VicinalError comes."""
    values = study_to_json(parse_study(Path("x"), WHOLE))
    container: Any = values
    while True:
        if isinstance(container, dict) and container:
            key: Any = data.draw(st.sampled_from(sorted(container)))
        elif isinstance(container, list) and container:
            key = data.draw(st.integers(0, len(container) - 1))
        else:
            return
        inner = container[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            container[key] = data.draw(JSON)
            break
        container = inner
    try:
        study = study_from_json(values)
    except VicinalError:
        return
    assert study_from_json(study_to_json(study)) == study


# Two workloads with 13 sizes and one, two statistics each: 28 tests for one comparison.
@pytest.mark.parametrize(
    ("correction", "trials", "said"),
    [
        (
            "holm",
            10,
            "10 trials are too few: each of 28 tests, with holm's correction, needs at least 11",
        ),
        ("holm", 11, None),
        ("benjamini-hochberg", 5, "5 trials are too few: each of 28 tests, with benjamini-hoch"),
        ("benjamini-hochberg", 6, None),
    ],
)
def test_too_few_trials_are_said(
    correction: str, trials: int, said: str | None, tmp_path: Path
) -> None:
    text = WHOLE.replace("trials: 12\n  most_trials: 40", f"trials: {trials}")
    study = read(text.replace("benjamini-hochberg", correction), tmp_path)
    assert count_tests(study) == 28
    assert trials_needed(study) == (11 if correction == "holm" else 6)
    warnings = warnings_of(study)
    assert len(warnings) == (said is not None)
    assert said is None or warnings[0].startswith(said)


def test_what_ships_has_trials_enough() -> None:
    assert [study.name for study in list_studies() if warnings_of(study)] == []
