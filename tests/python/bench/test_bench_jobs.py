"""A trial counts only if its ranks and messages were where the scenario says."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vicinal.base.errors import VicinalError
from vicinal.labs.bench import jobs
from vicinal.labs.bench.demo import DemoPlan, measure_series
from vicinal.labs.bench.jobs import Amount, measure_on
from vicinal.labs.bench.metric import Metric, Trial
from vicinal.labs.bench.sides import Scenario
from vicinal.mpi.environment import MessagePath, Mpi
from vicinal.mpi.job import CompletedJob, Job

AMOUNT = Amount(trials=2, repetitions=1, seconds=0.1)
TCP = Scenario(Mpi.MPICH, MessagePath.NETWORK)


def output(*hosts: str) -> str:
    records = [
        {"program": "latency", "mpi": "Some MPI", "hosts": hosts},
        {"size": 8, "microseconds": 1.5},
    ]
    return "\n".join(map(json.dumps, records))


class FakeRunner:
    """Nodes on which each job ends with the same output."""

    command = "vicinal run"
    pins = True

    def __init__(
        self, *hosts: str, status: int = 0, errors: str = "", regions: tuple[Any, ...] = ()
    ) -> None:
        self._done = CompletedJob(status, output(*hosts), errors, 1.0, None, regions)
        self.jobs: list[Job] = []

    def run(self, job: Job) -> CompletedJob:
        self.jobs.append(job)
        return self._done


@pytest.fixture(autouse=True)
def programs_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "mpi_program", lambda mpi, name: Path("/programs", mpi, name))


def measured(runner: FakeRunner, scenario: Scenario = TCP) -> Mapping[Metric, Trial]:
    return measure_on(runner, scenario, {Metric.LATENCY: [8]}, AMOUNT)


def test_a_trial_is_one_start_of_the_program() -> None:
    runner = FakeRunner("node0", "node1")
    scenario = replace(TCP, arguments=("--window", "16"), variables=(("WORD", "some"),))
    assert measured(runner, scenario)[Metric.LATENCY].repetitions == {8: [1.5]}
    (job,) = runner.jobs
    assert " ".join(job.program) == (
        "/programs/mpich/latency --window 16 --sizes 8 --repetitions 1 --seconds 0.1"
    )
    assert (job.ranks, job.pin, job.environment) == (2, True, {"WORD": "some"})


def test_ranks_that_shared_a_node_make_no_trial() -> None:
    with pytest.raises(
        VicinalError, match=r"MPICH, network: the ranks ran on a and a, not on 2 node\(s\)"
    ):
        measured(FakeRunner("a", "a"))


def test_a_program_that_fails_is_said_with_its_first_words() -> None:
    runner = FakeRunner("a", "b", status=3, errors="---\nit broke\nlater\n")
    with pytest.raises(VicinalError) as raised:
        measured(runner)
    assert raised.value.message == "MPICH, network: latency failed with status 3 (it broke)"
    assert raised.value.remedy == (
        "run it by hand: vicinal run --mpi mpich --path network -n 2 /programs/mpich/latency"
    )


@pytest.mark.parametrize(
    ("hosts", "pairs", "trouble"),
    [
        (1, [(0, 0), (0, 1)], None),
        (1, [(0, 0)], "nothing went through the region"),
        (2, [(0, 0)], None),
        (2, [(0, 1)], "something went through the region"),
    ],
)
def test_messages_take_the_path_that_the_scenario_names(
    hosts: int, pairs: list[tuple[int, int]], trouble: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    talked = [SimpleNamespace(sender=sender, receiver=receiver) for sender, receiver in pairs]
    monkeypatch.setattr(jobs, "pair_traffic", lambda region: talked if region == "state" else [])
    runner = FakeRunner("a", "b", regions=("state",) * hosts)
    scenario = Scenario(Mpi.MPICH, MessagePath.REGION, hosts=hosts)
    if trouble is None:
        assert measured(runner, scenario)
    else:
        with pytest.raises(VicinalError, match=f"MPICH, region: latency ran, but {trouble}"):
            measured(runner, scenario)


def test_a_demo_measures_one_trial_of_everything_after_the_other() -> None:
    plan = DemoPlan(mpis=[Mpi.MPICH], sizes=[8], amount=AMOUNT)
    said: list[str] = []

    def measure(scenario: Scenario, metric: Metric) -> Trial:
        assert said[-1].startswith(f"{scenario.title}: {metric}")
        return Trial(["a", "b"], "Some MPI", {8: [float(len(said))]})

    result = measure_series(plan, measure, said.append)
    assert len(said) == 16
    assert said[:2] == ["MPICH, network: latency (1 of 2)", "MPICH, network: bandwidth (1 of 2)"]
    assert said[8] == "MPICH, network: latency (2 of 2)"
    assert [line["points"][0]["raw"] for line in result["series"][:2]] == [[[1], [9]], [[2], [10]]]
