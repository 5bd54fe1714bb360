"""What journals record for each kind of resource. This format stays when the code changes.

An earlier version wrote recorded_resources.jsonl, and its clusters must still be found.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from vicinal.cluster.plan.journal import Entry, Event, Journal
from vicinal.cluster.resources import desired
from vicinal.cluster.resources.desired import recorded_resources

LINES = Path(__file__).with_name("recorded_resources.jsonl").read_text().splitlines()


def entry(recorded: dict[str, Any]) -> Entry:
    return Entry(recorded["key"], recorded["settings"], tuple(recorded["needs"]), Event.MADE)


def written_again(key: str, settings: dict[str, Any]) -> dict[str, Any]:
    (resource,) = recorded_resources({key: Entry(key, settings, (), Event.MADE)}).values()
    return dict(resource.settings)


def test_each_kind_is_among_them() -> None:
    kinds = {json.loads(line)["key"].partition("/")[0] for line in LINES}
    assert kinds == set(desired._KINDS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(json.loads(line)["key"]))
def test_a_journal_s_lines_are_written_again_byte_for_byte(line: str, tmp_path: Path) -> None:
    recorded = entry(json.loads(line))
    (resource,) = recorded_resources({recorded.key: recorded}).values()
    again = {
        "key": resource.key,
        "settings": dict(resource.settings),
        "needs": list(resource.needs),
    }
    assert json.dumps(again) == line
    journal = Journal(tmp_path / "journal")
    journal.write(resource, Event.MADE)
    assert journal.entries() == {recorded.key: recorded}
    assert json.loads(line)["settings"] == recorded.settings, "reading changed what was recorded"


@pytest.mark.parametrize(
    ("key", "settings", "added"),
    [
        (
            "region/main",
            {"path": "/r", "members": 2, "section_bytes": 3, "heap_bytes": 4, "label": "l"},
            {"device": None},
        ),
        (
            "node/c0",
            {
                "spec": {"cluster": "lab", "name": "c0", "cpus": [], "regions": [], "binds": []},
                "runtime": None,
                "base": "/b",
            },
            {"commands": {"first_boot": [], "each_boot": []}},
        ),
        (
            "vms/main",
            {"directory": "/d", "uri": "qemu:///system", "guests": [], "image": "0f"},
            {"additions": {}, "keys": None},
        ),
        (
            "vm/vm0",
            {
                "owner": "0-lab",
                "name": "vm0",
                "number": 0,
                "peers": [1],
                "uri": "qemu:///system",
                "directory": "/d",
                "cpus": 1,
                "memory_mib": 512,
            },
            {"link": None, "far": [], "bridge_is_ours": True, "additions_key": ""},
        ),
    ],
)
def test_what_earlier_versions_did_not_write_has_its_default(
    key: str, settings: dict[str, Any], added: dict[str, Any]
) -> None:
    again = written_again(key, settings)
    assert {name: again[name] for name in added} == added
    kept = {name: value for name, value in settings.items() if name != "spec"}
    assert {name: again[name] for name in kept} == kept
