"""All mistakes of a cluster file are reported at once: each with its line, and no consequences."""

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_file_support import read
from ruamel.yaml import YAML

from vicinal.base.errors import VicinalError
from vicinal.base.faults import CollectedError
from vicinal.cluster.file.reading import FORM as CLUSTER
from vicinal.cluster.file.reading import parse_cluster
from vicinal.labs.study.file.reading import FORM as STUDY
from vicinal.labs.study.file.reading import parse_study
from vicinal.labs.tune.search.spec import FORM as TUNING

FORMS = [form.file for form in (CLUSTER, STUDY, TUNING)]

ODD: tuple[Any, ...] = (3, "x", [], {}, None, True, -1, 1.5, ["a"], {"a": 1}, [None], "none")
FULL = """\
name: a
hosts: [{name: x, bridge: b, address: 10.0.0.1}, {name: y, hypervisor: "qemu:///session"}]
nodes:
- {name: n, backend: vm, count: 2, memory: 64M, host: [x, y], image: {files: {a: /b}},
   network: {vf: {card: e, mac: "52:54:00:00:00:01", vlan: 3, pkey: 4}}}
- {name: c, pin: ["0"], mounts: ["/a:/b:ro"], first_boot: ["x"], runtime: crun,
   network: {bridge: br0, mac: "52:54:00:00:00:03", address: 10.1.0.1/24}}
placement: {policy: explicit, reserve: 0}
region: {members: 4, section: 1M, heap: 4K, device: nvdimm}
port: 2000
hypervisor: "qemu:///session"
"""
STUDY_OF_IT = """\
name: s
title: t
question: q
source: us
environments: [{name: e, cluster: {nodes: [{name: n}]}, path: network}, {name: f, cluster: %s}]
workloads: [{name: w, driver: record, operation: latency, quantity: latency, sizes: 1..4}]
design: {comparisons: [{base: e, test: f}], trials: 12, most_trials: 40, control: e}
published: [{workload: w, environment: e, values: {1: 5}}]
"""


def positions(values: Any, position: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts: Iterable[Any] = ()
    if isinstance(values, dict):
        parts = values
    elif isinstance(values, list):
        parts = range(len(values))
    for part in parts:
        yield (*position, part)
        yield from positions(values[part], (*position, part))


def with_odd_parts(values: Any, draw: random.Random) -> str:
    """The same values with some parts replaced by values that may or may not be valid."""
    changed = copy.deepcopy(values)
    for position in draw.sample(list(positions(values)), draw.choice([1, 1, 2, 3])):
        container = changed
        with suppress(KeyError, IndexError, TypeError):  # an earlier replacement may remove it
            for step in position[:-1]:
                container = container[step]
            container[position[-1]] = draw.choice(ODD)
    return json.dumps(changed)


def test_whatever_is_wrong_is_told_in_words() -> None:
    """Invalid parts raise no other exception, whichever reader parses them."""
    cluster = YAML(typ="safe", pure=True).load(FULL)
    nodes = {key: cluster[key] for key in ("nodes", "region", "placement")}
    study = YAML(typ="safe", pure=True).load(STUDY_OF_IT % json.dumps(nodes))
    readers: list[tuple[Callable[[Path, str], object], Any]] = [
        (parse_cluster, cluster),
        (parse_study, study),
    ]
    told: set[bool] = set()
    for seed in range(300):
        draw = random.Random(seed)
        parse, whole = readers[seed % 2]
        try:
            parse(Path("file.yaml"), with_odd_parts(whole, draw))
        except VicinalError as error:
            said = [each.message and each.remedy for each in error.each]
            told.add(all(said) and len(said) > 1)
    assert told == {False, True}


MANY = """\
name: Many
nodez: 3
nodes:
  - name: node
    count: two
    backend: contaner
    memroy: 4G
  - name: big
    backend: vm
    memory: 1 pound
    mounts: [/data]
    network: {bridge: br0, mac: nonsense, address: 10.0.0.1}
  - {name: other, pin: ["0"], hugepages: true, cpus: "4"}
placement: {policy: core, reserve: -1}
region: {members: 1}
first_boot: [""]
"""


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """Each message has its line, the value, the valid values and a suggestion."""
    with pytest.raises(CollectedError) as caught:
        read(tmp_path, MANY)
    told = [str(each).removeprefix(f"{tmp_path}/cluster.yaml:") for each in caught.value.each]
    assert told == [
        '1: name cannot be "Many": give lowercase letters, digits and hyphens, at most 24 '
        "characters, a letter first, such as lab",
        "2: unknown key nodez: did you mean nodes?",
        '5: nodes[0].count cannot be "two": give a whole number from 1 to 1024',
        '6: nodes[0].backend cannot be "contaner": choose host, container or vm; did you mean '
        "container?",
        "7: unknown key memroy in nodes[0]: did you mean memory?",
        '10: nodes[1].memory cannot be "1 pound": give a size in bytes, or with K, M or G, such '
        "as 512M",
        '13: nodes[2].cpus cannot be "4": give a whole number not below 1; write it without '
        "quotation marks: 4",
        "14: placement.reserve cannot be -1: give a whole number not below 0",
        "15: region.members cannot be 1: give a whole number from 2 to 512",
        '16: first_boot[0] cannot be "": give text that is not empty',
        "11: nodes[1] has the backend vm, and mounts is only for container: remove mounts, or "
        "choose the backend container",
        "12: nodes[1].network.address cannot be '10.0.0.1' (the prefix length is missing): write "
        "an address such as 10.1.0.1/24",
        "12: nodes[1].network.mac: nonsense is no hardware address of an interface: give six "
        "bytes, such as 52:54:00:12:34:56, the first of them even",
        "13: nodes[2] has the backend container, and hugepages is only for vm: remove hugepages, "
        "or choose the backend vm",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nnodes: {name: n}\n",
        "name: a\nnodes: [3]\nhosts: [{name: x}]\n",
        "name: a\nnodes: [{name: n, count: two, host: x}]\nhosts: [{name: x}, {name: y}]\n",
        "name: a\nnodes: [{name: n, host: 3}]\nhosts: [{name: x}]\n",
        "name: a\nnodes: [{name: n, backend: vm, network: {tap: 7}}]\n",
        "name: a\nnodes: [{name: n}]\nregion: [x]\nplacement: core\n",
        "name: 3\nnodes: [{count: 1}]\nhypervisor: 3\n",
        "name: a\nnodes: [{name: n, backend: cloud}]\nhypervisor: qemu:///session\n",
    ],
)
def test_what_depends_on_a_mistake_is_not_judged(tmp_path: Path, text: str) -> None:
    """For example, no message says that a host "has no nodes" if its nodes could not be read."""
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, text)
    for each in caught.value.each:
        assert "cannot be" in each.message or " has no name" in each.message, each


def test_mistakes_of_several_nodes_are_told_with_their_lines(tmp_path: Path) -> None:
    text = "name: a\nnodes:\n- {name: n}\n- {name: n}\n- {name: m, backend: host}\n"
    with pytest.raises(CollectedError) as caught:
        read(tmp_path, f"{text}hosts:\n- {{name: x}}\n- {{name: x}}\n")
    first, *_ = caught.value.each
    assert "cluster.yaml:8: the host x is listed twice" in first.message
    with pytest.raises(CollectedError) as caught:
        read(tmp_path, text)
    twice, own = caught.value.each
    assert "cluster.yaml:4: two nodes would have the name n" in twice.message
    assert "cluster.yaml:5: the host node m is" in own.message


@pytest.mark.parametrize("file", FORMS)
def test_what_a_pattern_asks_for_is_said_in_words(file: Path) -> None:
    """Without a title, the message could only quote the description, which is for editors."""
    texts = json.loads(file.read_text())
    parts = [texts]
    while parts:
        part = parts.pop()
        if isinstance(part.get("pattern"), str) and part["pattern"] != r"\S":
            assert "title" in part, part
        parts += [each for each in part.values() if isinstance(each, dict)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes:\n- count: 2026-02-30\n", '2: "2026-02-30" is not a valid date'),
        ("nodes:\n- count: !!int two\n", '2: "two" is not a whole number'),
        ("nodes:\n- cpus: 0x_\n", '2: "0x_" is not a whole number'),
        ("nodes:\n- hugepages: !!bool maybe\n", '2: "maybe" is not true or false'),
        (f"nodes:\n- count: {'9' * 5000}\n", f'2: "{"9" * 56}... is not a whole number'),
        ("&file\nname: a\nregion: *file\n", "3: a part of the file contains itself"),
        (f"nodes: {'{a: ' * 1500}", " the parts are nested too deeply"),
        ('nodes:\n- mounts: ["/a\\0b"]\n', '2: "/a\\u0000b" has a character that no name can have'),
        ('name: a\n"\\udcff": b\n', '2: "\udcff" has a character that no name can have'),
        ("? {a: b}\n: c\nname: a\nnodes: [{name: n}]\n", '1: unknown key "ordereddict'),
        ("name: a\ntrue: c\nnodes: [{name: n}]\n", "2: unknown key true"),
    ],
)
@pytest.mark.parametrize("parse", [parse_cluster, parse_study])
def test_values_that_yaml_cannot_make_or_that_nothing_takes(
    parse: Callable[[Path, str], object], text: str, message: str
) -> None:
    """The YAML library raises Python's own errors for these, or makes values that loop for ever."""
    with pytest.raises(VicinalError) as caught:
        parse(Path("file.yaml"), text)
    assert any(f"file.yaml:{message}" in str(each) for each in caught.value.each), caught.value.each
