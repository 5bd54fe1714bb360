"""The time that commands take to create virtual clusters, with real containers."""

from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import cluster_names
from vicinal.cluster.nodes.container.state import default_base
from vicinal.labs.bench.bars import Group, read_groups
from vicinal.labs.bench.schema import validate
from vicinal.labs.bench.setup import is_setup, measure_setup


def group(metric: str, count: int) -> Group:
    values = {
        "sides": {"made": {"backend": "container", "count": count, "runtime": "bubblewrap"}},
        "groups": [
            {
                "name": "cluster",
                "title": "A cluster",
                "bars": [
                    {
                        "name": "row",
                        "issue": 5,
                        "title": "a title",
                        "metric": metric,
                        "ours": "made",
                        "at_most": 100,
                    }
                ],
            }
        ],
    }
    validate(values, "bars")
    (made,) = read_groups(values)
    return made


def left_behind() -> list[str]:
    regions = [path.name for path in Path("/dev/shm").glob("vicinal-*-vicinal-bench")]
    return regions + [name for name in cluster_names(default_base()) if name == "vicinal-bench"]


@pytest.mark.parametrize(
    ("metric", "trials"), [("cluster-plan", 2), ("cluster-up", 1), ("first-message", 1)]
)
def test_a_cluster_is_made_by_the_commands_and_taken_away(metric: str, trials: int) -> None:
    made = group(metric, 2)
    (bar,) = made.bars
    assert is_setup(bar)
    row = measure_setup(bar, made, trials)
    assert row["unit"] == "s"
    assert row["met"] is True
    assert len(row["ours"]["raw"]) == trials
    assert all(0 < seconds < 100 for (seconds,) in row["ours"]["raw"])
    assert row["ours"]["setup"]["title"] == "2 containers by bubblewrap"
    assert left_behind() == []


def test_a_command_that_fails_is_said_with_its_own_words() -> None:
    made = group("cluster-up", 2000)
    with pytest.raises(VicinalError, match=r"`vicinal up` failed .*region\.members cannot be 4000"):
        measure_setup(made.bars[0], made, 1)
