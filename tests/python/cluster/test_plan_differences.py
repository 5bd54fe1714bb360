"""What a plan says about changed attributes: the old and the new value, with readable units."""

import pytest

from vicinal.cluster.plan.planning import differences
from vicinal.cluster.plan.resource import Json

NODE: dict[str, Json] = {"memory": 1 << 30, "cpus": [0, 1], "binds": [{"source": "/a"}]}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"members": 16}, {"members": 16}, []),
        ({"members": 16}, {"members": 24}, ["members: 16 -> 24"]),
        ({"section_bytes": 960 << 10}, {"section_bytes": 4 << 20}, ["section: 960 KiB -> 4 MiB"]),
        ({"memory_mib": 64}, {"memory_mib": 1536}, ["memory: 64 MiB -> 1.5 GiB"]),
        ({"device": None}, {"device": "nvdimm"}, ['device: not set -> "nvdimm"']),
        ({"hugepages": False}, {"hugepages": True}, ["hugepages: false -> true"]),
        ({}, {"label": "a"}, ['label: not set -> "a"']),
        ({"spec": NODE}, {"spec": NODE | {"memory": None}}, ["memory: 1 GiB -> not set"]),
        ({"spec": NODE}, {"spec": NODE | {"cpus": [2]}}, ["cpus: [0, 1] -> [2]"]),
        (
            {"spec": NODE, "runtime": None},
            {"spec": NODE | {"binds": [{"source": "/b"}, {"source": "/c"}]}, "runtime": "crun"},
            [
                'binds[0].source: "/a" -> "/b"',
                'binds[1]: not set -> {"source": "/c"}',
                'runtime: not set -> "crun"',
            ],
        ),
    ],
)
def test_each_attribute_is_told_with_old_and_new(
    before: dict[str, Json], after: dict[str, Json], told: list[str]
) -> None:
    assert list(differences(before, after)) == told


def test_long_values_are_cut() -> None:
    (told,) = differences({"text": "a" * 200}, {"text": "b"})
    assert len(told) < 90
    assert told.endswith('... -> "b"')
