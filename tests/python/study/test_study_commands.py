"""`vicinal study list` and `show`."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vicinal.cli import run
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.labs.study.file import host_facts
from vicinal.labs.study.file.adapt import adapt
from vicinal.labs.study.file.host_facts import HostFacts
from vicinal.labs.study.file.json_form import study_from_json
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.file.reading import parse_study
from vicinal.labs.study.file.shipped import STUDIES, load_study, study_names
from vicinal.labs.study.file.trials import count_tests
from vicinal.labs.study.running import runner
from vicinal.labs.study.running.runner import Outcome
from vicinal.labs.study_commands import run as running


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert run(["study", *arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


@pytest.fixture(autouse=True)
def _a_host_of_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same facts on every machine, because the output depends on them."""
    facts = HostFacts(
        cores=2,
        sockets=1,
        numa_nodes=1,
        memory_bytes=16 << 30,
        runtimes=("crun",),
        accelerator=Accelerator.TCG,
    )
    monkeypatch.setattr(
        host_facts, "examine_host", lambda hosts=(): replace(facts, hosts=tuple(hosts))
    )


def test_all_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "list").splitlines()
    while not lines[0].startswith("name "):
        # In one of four whole runs, a line stood before the table. This shows it if it comes again.
        with capsys.disabled():
            print(f"before the table: {lines.pop(0)!r}")
    assert [line.split()[0] for line in lines[1:] if line[0] != " "] == study_names()
    listed = {each["name"]: each for each in json.loads(said(capsys, "list", "--json"))}
    assert list(listed) == study_names()
    assert [listed[name]["here"] for name in ("quick", "p2-fig4", "p1-fig2", "p3-fig13")] == [
        "whole",
        "adapted",
        "in part",
        "not here",
    ]


def test_a_study_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    study = load_study("p2-fig4d")
    shown = " ".join(said(capsys, "show", "p2-fig4d").split())
    names = [each.name for each in study.environments]
    for name in (*names, *(each.name for each in study.workloads)):
        assert name in shown
    assert "4: 2.72 µs" in shown
    assert "On this machine it can be run adapted." in shown
    assert "not sriov: no card of this machine has verbs" in shown
    assert "workload latency: 2 ranks instead of 14" in shown
    assert re.search(r"\d+ launches in \d+ blocks: about \d+ min", shown)
    adapted = adapt(study, host_facts.examine_host())
    assert study_from_json(json.loads(said(capsys, "show", "p2-fig4d", "--json"))) == adapted
    text = said(capsys, "show", "p2-fig4d", "--yaml")
    assert parse_study(STUDIES / "p2-fig4d.yaml", text) == study
    line = said(capsys, "show", "quick", "--yaml", "--json", status=1)
    assert line == "vicinal: error: --yaml and --json were both given: leave out one of them\n"


def test_hosts_that_are_named_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(said(capsys, "show", "p1-fig5").split())
    assert "not native: it needs 4 hosts, and no host besides this one was named" in shown
    hosts = ("--host", "localhost", "--host", "other")
    shown = " ".join(said(capsys, "show", "p1-fig5", *hosts).split())
    assert "not native: this machine has no RDMA device with an active port" in shown


def test_what_is_adapted_is_said_by_rule_when_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output is as with `show`: each rule once, and its changes below."""
    monkeypatch.setattr(runner, "run_study", lambda *_, **__: Outcome(tmp_path))
    monkeypatch.setattr(running, "_conclude", lambda _outcome: 0)
    assert run(["study", "run", "p2-fig4d", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().err.splitlines()
    adapted = adapt(load_study("p2-fig4d"), host_facts.examine_host())
    rules = list(dict.fromkeys(each.why for each in adapted.adaptations))
    assert len(rules) < len(adapted.adaptations)
    assert [line for line in lines if line.startswith("adapted: ")] == [
        f"adapted: {rule}:" for rule in rules
    ]
    for rule in rules:
        below = lines[lines.index(f"adapted: {rule}:") + 1 :]
        wanted = [f"  {each.what}" for each in adapted.adaptations if each.why == rule]
        assert below[: len(wanted)] == wanted


def test_a_study_of_ones_own_with_too_few_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "show", "quick", "--yaml")
    mine = tmp_path / "mine.yaml"
    mine.write_text(re.sub(r"trials: \d+", "trials: 3", text))
    shown = " ".join(said(capsys, "show", str(mine)).split())
    tests = count_tests(load_study("quick"))
    assert f"Warning: 3 trials are too few: each of {tests} tests" in shown


def test_a_study_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    line = said(capsys, "show", "quikc", status=1)
    assert line == "vicinal: error: there is no study quikc: did you mean quick?\n"


def test_a_run_goes_on_with_the_facts_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts of a machine change: whether KVM works is known after a machine has started.

    The options of the first run stay, too.
    """
    ran: list[tuple[Study, dict[str, Any]]] = []

    def run_study(study: Study, *_: object, asked: dict[str, Any], **__: object) -> Outcome:
        ran.append((study, json.loads(json.dumps(asked))))
        return Outcome(tmp_path)

    monkeypatch.setattr(runner, "run_study", run_study)
    monkeypatch.setattr(running, "_conclude", lambda _outcome: 0)
    arguments = ["study", "run", "p2-fig8", "--output", str(tmp_path), "--quiet"]
    given = ["--with-osu", str(tmp_path), "--timeout", "77"]
    assert run([*arguments, *given]) == 0
    assert ran[0][1]["study"] == "p2-fig8"
    assert (ran[0][1]["tools"], ran[0][1]["timeout"]) == ({"osu": str(tmp_path)}, 77)
    assert ran[0][0].workload("lj").options["steps"] == 20  # instead of 200: VMs are emulated
    before = host_facts.examine_host()
    known = replace(before, accelerator=Accelerator.KVM)
    monkeypatch.setattr(host_facts, "examine_host", lambda _hosts=(): known)
    monkeypatch.setattr(running, "_asked_before", lambda _folder: ran[0][1])
    assert run([*arguments, "--resume"]) == 0
    assert ran[1] == ran[0]
    assert run(arguments) == 0
    assert ran[2][0].workload("lj").options["steps"] == 200
