"""A trial counts only if its ranks and messages were where the scenario requires."""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.labs.bench import jobs
from vicinal.labs.bench.demo import (
    DemoPlan,
    GuestDemoPlan,
    measure_series,
    run_guest_demo,
    write_guest_demo,
)
from vicinal.labs.bench.jobs import Amount, measure_on
from vicinal.labs.bench.metric import Metric, Trial
from vicinal.labs.bench.report import demo_tables, guest_table
from vicinal.labs.bench.schema import validate
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


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two guests in which the region is five times as fast as the network."""
    unit = {"latency": "microseconds", "bandwidth": "megabytes_per_second"}

    def run_in_guests(job: Job, pair: Any, *, timeout: float) -> CompletedJob:
        assert timeout > 0
        assert job.program[1:3] == ["--window", "16"]
        assert not job.pin
        program = Path(job.program[0]).name
        better = (job.path is MessagePath.REGION) == (program == "bandwidth")
        hosts = [guest.name for guest in pair.guests]
        head = {"program": program, "mpi": "Some MPI", "hosts": hosts}
        records: list[dict[str, Any]] = [head]
        records += [{"size": size, unit[program]: 10 if better else 2} for size in (8, 4096)]
        regions: tuple[Any, ...] = ("state",) if job.path is MessagePath.REGION else ()
        return CompletedJob(0, "\n".join(map(json.dumps, records)), "", 1.0, None, regions)

    talked = [SimpleNamespace(sender=0, receiver=1)]
    monkeypatch.setattr(jobs, "run_in_guests", run_in_guests)
    monkeypatch.setattr(jobs, "pair_traffic", lambda region: talked if region == "state" else [])
    return SimpleNamespace(
        guests=[SimpleNamespace(name="guest0"), SimpleNamespace(name="guest1")],
        choice=SimpleNamespace(accelerator=Accelerator.TCG, reason="no other"),
        qemu=SimpleNamespace(version="7.2.1 (Debian)"),
        image=SimpleNamespace(kernel_version="6.1"),
    )


def test_the_demo_between_guests_is_a_demo_s_result_with_its_guests(
    pair: Any, tmp_path: Path
) -> None:
    plan = GuestDemoPlan(mpis=[Mpi.MPICH], sizes=(8, 4096), amount=AMOUNT)
    said: list[str] = []
    result = run_guest_demo(plan, pair, said.append)
    assert len(said) == 2 * len(plan.runs) == 8
    files = write_guest_demo(result, tmp_path)
    assert [file.name for file in files] == ["plot.png", "plot.svg", "result.json"]
    written = json.loads((tmp_path / "result.json").read_text())
    validate(written, "demo")
    assert written["guests"]["number"] == 2
    assert all(line["hosts"] == ["guest0", "guest1"] for line in written["series"])
    assert "two QEMU 7.2.1 guests on" in (tmp_path / "plot.svg").read_text()
    text = io.StringIO()
    Console(file=text, width=120).print(guest_table(result), demo_tables(result, Mpi.MPICH, [8]))
    for value in ("8 B", "4 KiB"):
        assert re.search(rf"{value} +│ +10\.0 +│ +2\.00 +│ +5\.00 × +│ +2\.00 +│", text.getvalue())
    assert re.search(r"8 B +10\.0 +2\.00 +5\.00 × +– +–", text.getvalue())
