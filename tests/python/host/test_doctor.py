"""`vicinal doctor` on the machine that runs the tests, and how the command shows its findings."""

import io
import json
import os
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from command_support import Vicinal, error_line
from rich.console import Console

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import check as container_check
from vicinal.cluster.nodes.container.choice import available_runtimes
from vicinal.cluster.nodes.container.cluster import ContainerCluster, cluster_names, remove_cluster
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.qemu import check as guest_check
from vicinal.cluster.vm.qemu.accelerator_probe import Choice
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.host.doctor import Examined, choose_checks, examine, load_schema, show_report
from vicinal.host.finding import Check, Finding, Status, failed, passed, skipped, warned
from vicinal.host.system import Host

WORDS = "some words that are long enough to be wrapped where a terminal is narrow " * 2


def check(name: str, *findings: Finding) -> Check:
    return Check(name, name, f"about {name}", lambda _: findings)


def examined(*findings: Finding) -> list[Examined]:
    return list(examine(Host(), [check("things", *findings)]))


# The command


def test_the_document_of_this_machine(vicinal: Vicinal) -> None:
    result = vicinal("doctor", "--json", "--no-start-guest")
    found = json.loads(result.stdout)
    jsonschema.Draft202012Validator(load_schema()).validate(found)
    assert result.returncode == (1 if found["summary"]["fail"] else 0)
    by_name = {each["name"]: each["findings"] for each in found["checks"]}
    (numa,) = [each for each in by_name["numa"] if "cpus" in each["facts"]]
    assert numa["facts"]["cpus"] == os.cpu_count()
    assert by_name["provider"][0]["status"] == "pass"
    assert {each["facts"].get("mpi") for each in by_name["mpi"]} >= {"mpich", "openmpi"}
    space = os.statvfs("/dev/shm")
    assert by_name["shm"][0]["facts"]["size_bytes"] == space.f_blocks * space.f_frsize


def test_a_pipe_gets_a_line_for_each_finding(vicinal: Vicinal) -> None:
    result = vicinal("doctor", "--no-start-guest", "numa", "cma", COLUMNS="40")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("PASS  numa        ")
    assert lines[-2][6:9] == "cma"
    assert lines[-1].endswith(" not here")
    assert "\x1b" not in result.stdout


def test_what_fails_is_the_exit_status(vicinal: Vicinal, tmp_path: Path) -> None:
    result = vicinal("doctor", "provider", VICINAL_PROVIDER_DIR=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout.startswith("FAIL  provider    there is no libvicinal-fi.so")
    assert "-> " in result.stdout
    assert "1 failed" in result.stdout
    assert result.stderr == ""


def test_the_list_names_all_checks_and_runs_none(vicinal: Vicinal) -> None:
    lines = vicinal("doctor", "--list").stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert {"guests", "iommu", "sriov", "infiniband", "mpi"} <= set(names)
    assert len(set(names)) == len(names)


def test_an_unknown_check_is_named_with_one_like_it(vicinal: Vicinal) -> None:
    line = error_line(vicinal("doctor", "iomu"))
    assert "'iomu'" in line
    assert "did you mean iommu?" in line


# Choosing and running


def test_checks_are_run_in_their_order() -> None:
    every = [check("one"), check("two"), check("three")]
    assert [each.name for each in choose_checks(every, ["three", "one"])] == ["one", "three"]
    assert choose_checks(every, []) == every


def test_a_check_that_cannot_go_on_stops_no_other() -> None:
    def refuse(_: Host) -> list[Finding]:
        raise VicinalError("no way", "go round")

    def break_off(_: Host) -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/sys/secret")

    checks = [
        Check("a", "a", "", refuse),
        Check("b", "b", "", break_off),
        check("c", passed("good")),
    ]
    first, second, third = (each.findings[0] for each in examine(Host(), checks))
    assert (first.status, first.text, first.remedy) == (Status.FAIL, "no way", "go round")
    assert (second.status, second.remedy) == (Status.WARN, "run the check as root")
    assert "/sys/secret: permission denied" in second.text
    assert third.status is Status.PASS


# Output


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_gets_lines_that_fit(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, no_color=True)
    findings = [passed(WORDS), warned(WORDS, WORDS), failed("x" * 300, WORDS), skipped(WORDS)]
    show_report(examined(*findings), console)
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in stream.getvalue().splitlines()]
    assert max(len(line.rstrip()) for line in lines) <= width
    text = " ".join(line[18:].strip() for line in lines[:-1])
    assert text.count("→") == 2
    assert text.replace(" ", "").count("x" * 300) == 1  # the output cuts nothing off
    assert lines[-1] == "1 passed, 1 with a warning, 1 failed, 1 not here"


def test_brackets_are_shown_as_they_are() -> None:
    stream = io.StringIO()
    show_report(examined(passed("[bold]none[/bold] :cat:")), Console(file=stream, width=80))
    assert "[bold]none[/bold] :cat:" in stream.getvalue()


# Container nodes


def test_a_node_is_started_with_each_runtime_and_nothing_is_left(vicinal: Vicinal) -> None:
    runtimes = {runtime.name for runtime in available_runtimes()}
    result = vicinal("doctor", "--json", "nodes")
    (only,) = json.loads(result.stdout)["checks"]
    tried = {each for finding in only["findings"] for each in finding["facts"].get("runtimes", [])}
    assert tried == runtimes
    assert all(each["status"] in ("pass", "warn", "skip") for each in only["findings"]), only
    assert not [name for name in cluster_names() if name.startswith("doctor-")]


def test_what_a_killed_doctor_left_is_cleared_away(vicinal: Vicinal) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    left = f"doctor-{ended.pid}"
    ContainerCluster.create(left)
    try:
        assert left in cluster_names()
        vicinal("doctor", "nodes")
        assert left not in cluster_names()
    finally:
        remove_cluster(left)


def test_runtimes_that_do_alike_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = {"crun": (), "runc": ("memory",), "bubblewrap": ("memory",)}
    monkeypatch.setattr(
        container_check,
        "available_runtimes",
        lambda: [SimpleNamespace(name=name) for name in (*lacks, "broken")],
    )
    monkeypatch.setattr(container_check, "_cluster", nullcontext)

    def attempt(_: object, runtime: str) -> tuple[str, ...]:
        if runtime == "broken":
            raise VicinalError("no node", "mend it")
        return lacks[runtime]

    monkeypatch.setattr(container_check, "_try", attempt)
    broken, good, less = container_check.check_nodes(Host())
    assert (broken.status, broken.text, broken.remedy) == (
        Status.FAIL,
        "broken: no node",
        "mend it",
    )
    assert (good.status, good.facts["runtimes"]) == (Status.PASS, ["crun"])
    assert (less.status, less.facts["runtimes"]) == (Status.WARN, ["runc", "bubblewrap"])
    assert less.text.endswith(", without memory")


# Guests


class FakeQemu(Qemu):
    """A QEMU with a version, and without a program that the test would have to start."""

    @property
    def version(self) -> str:
        return "99.0"


@pytest.mark.parametrize(
    ("start", "fetched", "tried"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_when_a_guest_is_started(
    monkeypatch: pytest.MonkeyPatch, start: bool | None, fetched: bool, tried: bool
) -> None:
    began = []
    monkeypatch.setattr(guest_check, "find_qemu", lambda: FakeQemu(("qemu",)))
    monkeypatch.setattr(guest_check, "known_choice", lambda *_: None)
    monkeypatch.setattr(guest_check, "is_fetched", lambda: fetched)
    monkeypatch.setattr(guest_check, "build_image", lambda say: began.append(say))
    monkeypatch.setattr(
        guest_check, "choose_accelerator", lambda *_: Choice(Accelerator.KVM, "a guest booted")
    )
    monkeypatch.setattr(Host, "program", lambda *_: Path("/usr/bin/qemu"))
    ((finding,),) = (
        each.findings for each in examine(Host(), [guest_check.guest_check(start, lambda _: None)])
    )
    assert bool(began) is tried
    assert finding.status is (Status.PASS if tried else Status.WARN)
    assert tried or "--start-guest" in finding.remedy
