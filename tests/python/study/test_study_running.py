"""Running studies: blocks and their order, kept data, and faults in the middle of a study."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from study_support import (
    NATIVE,
    NETWORK,
    REGION,
    Heard,
    Scripts,
    clusters_left,
    script,
    study,
)

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program
from vicinal.labs.study.environments.clusters import StudyClusters
from vicinal.labs.study.file.model import Environment, Quantity, Study, Workload, control_name
from vicinal.labs.study.result.reading import Result, open_result
from vicinal.labs.study.running.plan import Plan, selected
from vicinal.labs.study.running.ready import missing_in_guests
from vicinal.labs.study.running.runner import Outcome, run_study
from vicinal.labs.study.running.trial import Limits
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Program, Tools
from vicinal.mpi.libraries import Mpi

LATENCY = Workload(
    "latency", "latency", "record", "latency", Quantity.LATENCY, (8, 1024), samples=50, seconds=0.05
)
GOOD = script("good", "echo '{\"time\": 1}'")


def run(
    what: Study, folder: Path, heard: Heard | None = None, *, resume: bool = False, **others: float
) -> tuple[Outcome, Result]:
    limits = Limits(**others) if others else None  # type: ignore[arg-type]
    outcome = run_study(
        what,
        folder,
        Tools(),
        resume=resume,
        view=heard or Heard(),
        seed=7,
        drivers=drivers() | {"scripts": Scripts()},
        limits=limits,
    )
    return outcome, open_result(folder)


def test_tiny_study(tmp_path: Path) -> None:
    """This host and containers run the real program: every block has every environment."""
    folder = tmp_path / "result"
    outcome, result = run(study([LATENCY], [NATIVE, REGION, NETWORK]), folder)
    assert (outcome.trials, outcome.failures, outcome.lacking) == (8, [], {})
    assert not result.problems
    wanted = sorted(["native", control_name("native"), "region", "network"])
    for block in (1, 2):
        there = [each.trial for each in result.trials if each.trial.block == block]
        assert sorted(each.environment for each in there) == wanted
    for stored in result.trials:
        assert [each.size for each in stored.series] == [8, 1024]
        assert all(0 < each.samples <= 50 for each in stored.series)  # fewer on a busy machine
        conditions = stored.trial.conditions
        assert conditions["busy_seconds"] > 0
        assert conditions["interrupts_per_second"] > 0
        assert 0 <= conditions["steal"] <= 1
        assert conditions["emulated"] is False
        hosts = set(conditions["program"]["hosts"])
        assert len(hosts) == (2 if stored.trial.environment in ("region", "network") else 1)
    facts = result.manifest["environments"]
    assert [node["name"] for node in facts["region"]["nodes"]] == ["node0", "node1"]
    assert {each["kernel"] for each in facts.values()} == {os.uname().release}
    assert facts["network"]["same_nodes"] == ["region", "network"]
    assert clusters_left(folder) == []


def test_order_is_drawn_from_the_seed() -> None:
    what = study([LATENCY, GOOD], [NATIVE, REGION, NETWORK])
    orders = {tuple(Plan(what, 1).block(number)) for number in range(1, 9)}
    first = {planned[0].named for planned in orders}
    assert len(orders) == 8
    assert len(first) > 1
    assert Plan(what, 1).block(3) == Plan(what, 1).block(3)
    assert [each.key[1:] for each in Plan(what, 1).block(3)] != [
        each.key[1:] for each in Plan(what, 2).block(3)
    ]
    block = Plan(what, 1).block(1)
    # The launches of a workload are adjacent, so that a disturbance affects all of them.
    assert [each.workload for each in block] in (
        ["latency"] * 4 + ["good"] * 4,
        ["good"] * 4 + ["latency"] * 4,
    )


def test_failures_hangs_and_garbage_end_a_trial_and_not_the_study(tmp_path: Path) -> None:
    end = [
        GOOD,
        script("fails", "echo some; echo the disk is on fire >&2; exit 3"),
        script("fails late", "echo '{\"time\": 1}'; exit 3"),
        script("garbage", "echo all is well"),
        script("silent", "echo '{}'"),
    ]
    # These may take long on a busy machine; only a program that hangs reaches the limit.
    workloads = [replace(each, seconds=60.0) for each in end]
    workloads.append(replace(script("hangs", "echo begun; sleep 1000"), seconds=0.0))
    folder, heard = tmp_path / "result", Heard()
    outcome, result = run(
        study(workloads, trials=3), folder, heard, least_seconds=0, times_expected=1, failures=2
    )
    assert outcome.trials == 6  # three, and three of the control
    assert len(outcome.given_up) == 2 * (len(workloads) - 1)
    failed = [each for each in result.trials if each.failure is not None]
    assert len(failed) == 2 * len(outcome.given_up)
    reasons = {each.trial.workload: each.failure or "" for each in failed}
    assert "status 3" in reasons["fails"]
    assert "the disk is on fire" in reasons["fails"]
    assert "status 3" in reasons["fails late"]
    assert "did not end within 1 s" in reasons["hangs"]
    assert "garbage" in reasons["garbage"]
    assert "no measured values" in reasons["silent"]
    outputs = {
        each.trial.workload: [result.output(each, name) for name in each.outputs] for each in failed
    }
    assert outputs["fails"] == ["some\n", "the disk is on fire\n"]
    assert outputs["fails late"] == ['{"time": 1}\n']
    assert outputs["hangs"] == ["begun\n"]
    assert outputs["garbage"] == ["all is well\n"]
    assert any("given up after 2 failures in a row: hangs in native" in x for x in heard.lines)
    assert clusters_left(folder) == []


def test_figures_of_a_path_that_was_not_taken_are_none(tmp_path: Path) -> None:
    """The variables make MPI use TCP, in spite of the environment's name."""
    wrong = Environment("wrong", "no region", REGION.cluster, variables={"FI_PROVIDER": "tcp"})
    _, result = run(study([LATENCY], [wrong], trials=1), tmp_path / "result")
    assert [each.failure for each in result.trials] == [
        "nothing went through the region: the values are not the region's"
    ] * len(result.trials)


def test_what_is_lacking_is_said_before_anything_starts(tmp_path: Path) -> None:
    lacking = script("lacking", "true", lacking=True)
    strange = Environment("strange", "no", {"nodes": [{"name": "node", "runtime": "none such"}]})
    heard = Heard()
    outcome, result = run(
        study([GOOD, lacking], [NATIVE, strange], trials=1), tmp_path / "result", heard
    )
    assert set(outcome.lacking) == {"lacking", "strange"}
    assert "left out: lacking: no such tool: install its package" in heard.lines[:2]
    assert result.manifest["study"]["unavailable"] == outcome.lacking
    assert {each.trial.workload for each in result.trials} == {"good"}
    with pytest.raises(VicinalError, match="nothing of the study tiny can be measured") as caught:
        run(study([lacking], [NATIVE]), tmp_path / "other")
    assert "install its package" in str(caught.value)
    assert not (tmp_path / "other").exists()


def test_an_environment_that_cannot_be_made_is_left_out(tmp_path: Path) -> None:
    """Only the attempt to create the nodes shows that this host has no room for them."""
    cluster = {
        "nodes": [{"name": "node", "count": 2, "cpus": 512}],
        "placement": {"policy": "core"},
    }
    heard = Heard()
    outcome, result = run(
        study([GOOD], [NATIVE, Environment("large", "too large", cluster)], trials=1),
        tmp_path / "result",
        heard,
    )
    assert "need 1024 cores" in outcome.lacking["large"]
    assert any(line.startswith("left out: large") for line in heard.lines)
    assert outcome.trials == 2
    assert "large" in result.manifest["study"]["unavailable"]


def test_resume_measures_what_is_missing_and_what_failed(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    flag = tmp_path / "mended"
    mended = script("mended", f"[ -e {flag} ] && echo '{{\"time\": 2}}'")
    what = study([GOOD, mended], trials=1)
    outcome, _ = run(what, folder)
    assert (outcome.trials, len(outcome.failures)) == (2, 2)
    flag.touch()
    outcome, result = run(what, folder, resume=True)
    assert (outcome.trials, outcome.failures) == (4, [])
    assert len(result.trials) == 6
    assert len(result.manifest["resumed"]) == 1
    with pytest.raises(VicinalError, match="was begun, in its design") as caught:
        run(study([GOOD, mended], trials=2), folder, resume=True)
    assert "--output" in str(caught.value)
    with pytest.raises(VicinalError, match="not empty"):
        run(what, folder)


def test_files_input_and_servers(tmp_path: Path) -> None:
    """Files, input and servers of programs, on this host and in containers."""
    workloads = [
        script("files", 'printf \'{"time": %s}\' "$(cat it.dat)"', files={"it.dat": "5"}),
        script("stdin", "cat", stdin='{"time": 6}'),
    ]
    listen = (
        "import socket, sys; s = socket.create_server(('', 47113)); c, _ = s.accept(); "
        "c.send(b'{\"time\": 7}')"
    )
    connect = (
        "import socket; print(socket.create_connection(('{server}', 47113)).recv(99).decode())"
    )
    python = "/usr/bin/python3"
    workloads.append(script("pair", f'{python} -c "{connect}"', server=[python, "-c", listen]))
    outcome, result = run(study(workloads, [NETWORK, NATIVE], trials=1), tmp_path / "result")
    assert outcome.failures == []
    values = {
        (e.trial.environment, e.trial.workload): e.trial.figures[0].value for e in result.trials
    }
    for environment in ("native", "network"):
        assert [values[environment, each.name] for each in workloads] == [5, 6, 7]


def test_only_a_part(tmp_path: Path) -> None:
    del tmp_path
    what = study([LATENCY, GOOD], [NATIVE, REGION, NETWORK])
    part = selected(what, ["region/*", "native/latency"])
    assert [each.name for each in part.environments] == ["native", "region"]
    assert [each.test for each in part.design.comparisons] == ["region"]
    with pytest.raises(VicinalError, match="no part of the study tiny matches nowhere"):
        selected(what, ["nowhere/*"])


def test_environments_of_the_same_nodes_share_them() -> None:
    bare = replace(NETWORK, name="bare", cluster={**NETWORK.cluster, "region": "none"})
    larger = replace(REGION, name="larger", cluster={**REGION.cluster, "region": {"members": 16}})
    clusters = StudyClusters("study-x", [NATIVE, bare, REGION, NETWORK, larger])
    assert clusters.sharing("region") == ["bare", "region", "network"]
    assert clusters.name_of("region") == clusters.name_of("bare") != clusters.name_of("native")
    assert clusters.sharing("larger") == ["larger"]


def test_programs_that_virtual_machines_lack() -> None:
    """A job brings only its command's first word and its MPI library into virtual machines."""
    vms = Environment("vms", "", {"nodes": [{"name": "vm", "backend": "vm"}]})
    record = Program([str(mpi_program(Mpi.MPICH, "record"))], 2)
    git = shutil.which("git")
    hidden = Program(["/bin/sh", "-c", f"exec {git} --version"], 2)
    assert missing_in_guests(vms, record) is None
    assert "git needs" in (missing_in_guests(vms, Program([str(git)], 2)) or "")
    assert "git needs git" in (missing_in_guests(vms, hidden) or "")
    served = Program(record.command, 2, server=hidden.command)
    assert "git needs git" in (missing_in_guests(vms, served) or "")
    assert missing_in_guests(REGION, hidden) is None
    has = {**vms.cluster, "image": {"packages": ["git"]}}
    assert missing_in_guests(replace(vms, cluster=has), hidden) is None
