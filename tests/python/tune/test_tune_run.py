"""`vicinal tune run` and `explain`: searches that launch jobs on this host, end and resume.

Tests that need a better setting measure a shell script whose figures depend on a variable. Tests of
the whole command launch the program `record`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from fake_knobs import BEFORE, FakeEthtool, FakeNetwork, fake_tuned_host
from study_support import Heard, Scripts, clusters_left
from test_tune_killed import apart

from vicinal.base.errors import VicinalError
from vicinal.cluster.manager import stop_cluster, take_down
from vicinal.cluster.owners import left_behind, take_away_left_behind
from vicinal.cluster.plan.state import cluster_names
from vicinal.labs.study.environments import clusters
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.workloads import drivers as all_drivers
from vicinal.labs.study.workloads.driver import Program, Tools
from vicinal.labs.tune.explain_command import show_result
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.measuring.folder import read_result
from vicinal.labs.tune.measuring.searching import check_launches, knobs_of, read_search, run_search
from vicinal.labs.tune.search.finding import Found
from vicinal.labs.tune.search.trial import Trial, read_trials
from vicinal.labs.tune.settings.applier import Applier

SECONDS = 120.0
REAL = """\
name: waiting
title: What ranks do that wait
objectives: [p50]
phases:
  - name: small
    workload: {driver: record, operation: latency, sizes: [8], samples: 100, seconds: 0.02}
knobs:
  KNOB
budget: {trials: 27}
confirmation: 6
"""
SCRIPTED = """\
name: scripted
title: A script that is as fast as it is told
objectives: [application]
environment:
  cluster: {nodes: [{name: host, backend: host}], region: none}
  path: shared-memory
phases:
  - name: only
    workload: {driver: scripts, operation: '%s', ranks: 1, quantity: time}
knobs:
  %s
budget: {trials: %d}
confirmation: 6
"""
BY_VARIABLE = """\
noise=$(date +%N | cut -c8-9); case "$UCX_RNDV_THRESH" in \
4096) echo "{\\"time\\": 1.50$noise}";; 16384) echo it breaks >&2; exit 3;; \
*) echo "{\\"time\\": 2.00$noise}";; esac"""


@pytest.fixture(autouse=True)
def _own_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory of its own: searches of other tests remove what killed searches left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def scripted(
    tmp_path: Path,
    operation: str,
    knobs: str,
    host: TunedHost | None = None,
    driver: Scripts | None = None,
    trials: int = 40,
) -> tuple[Found, Heard]:
    path = written(tmp_path, SCRIPTED % (operation.replace("'", "''"), knobs, trials))
    heard = Heard()
    state = tmp_path / "journal"
    found = run_search(
        read_search(path),
        tmp_path / "result",
        Applier(host or TunedHost(), state / "journal"),
        state,
        resume=False,
        again=["again"],
        view=heard,
        drivers={"scripts": driver or Scripts()},
    )
    return found, heard


def begin(
    command: list[str], trials: Path, until: Callable[[list[str]], bool]
) -> subprocess.Popen[str]:
    """Start the command, and return when its kept trials fulfil the condition."""
    running = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + SECONDS
    while not (trials.exists() and until(trials.read_text().splitlines())):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return running


@pytest.mark.long
def test_a_search_is_interrupted_and_gone_on_with(tmp_path: Path, vicinal: Vicinal) -> None:
    spec = written(tmp_path, REAL.replace("KNOB", "VICINAL_PROGRESS: [poll, block]"))
    folder = tmp_path / "result"
    command = [sys.executable, "-m", "vicinal", "tune", "run", str(spec)]
    running = begin(
        [*command, "--output", str(folder), "--seed", "5"],
        folder / "trials.jsonl",
        lambda lines: len(lines) >= 4,
    )
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + signal.SIGINT, said
    assert f"--resume --output {folder}" in said
    assert clusters_left(folder) == []
    unfinished = error_line(vicinal("tune", "explain", folder))
    assert "has not ended" in unfinished
    assert f"vicinal tune run {spec} --resume" in unfinished
    with (folder / "trials.jsonl").open("a") as torn:
        torn.write('{"number": 4')
    before = read_trials(folder / "trials.jsonl")
    done = vicinal("tune", "run", spec, "--output", folder, "--resume")
    assert done.returncode == 0, done.stderr
    trials = read_trials(folder / "trials.jsonl")
    assert trials[: len(before)] == before
    assert [each.number for each in trials] == list(range(len(trials)))
    assert not any(each.failed for each in trials)
    assert all({"p50", "p99", "bandwidth", "cpu"} <= each.values.keys() for each in trials)
    assert all(each.evidence["work"] > 0 for each in trials)
    assert {each.setting["VICINAL_PROGRESS"] for each in trials} == {"poll", "block", "unset"}
    result = json.loads(vicinal("tune", "explain", folder, "--json").stdout)
    assert (result["schema"], result["trials"], result["plan"]["seed"]) == (1, len(trials), 5)
    assert result["workloads"]["small"]["driver"] == "record"
    explained = vicinal("tune", "explain", folder).stdout
    assert "Phase small: " in explained
    assert explained in done.stdout
    assert clusters_left(folder) == []
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["resumed"]) == 1
    assert manifest["host"]["threads"] == os.cpu_count()
    spec.write_text(spec.read_text().replace("poll, block", "poll, adaptive"))
    other = vicinal("tune", "run", spec, "--output", folder, "--resume")
    assert "its knobs changed" in error_line(other)


def test_after_a_kill_the_next_command_sets_back(tmp_path: Path) -> None:
    """The test uses the kernel's own tap device, in a network namespace."""
    spec = written(
        tmp_path,
        REAL.replace("KNOB", "tap0/rx-frames: [8, 32]").replace(
            "phases:", "environment: {cluster: {nodes: [{name: host, backend: host}]}}\nphases:"
        ),
    )
    inside = subprocess.Popen([*apart(), "sleep", "600"])
    tune = [sys.executable, "-m", "vicinal", "tune"]
    enter = ["nsenter", "--target", str(inside.pid), "--net"]
    enter += ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
    try:
        state, folder = tmp_path / "journal", tmp_path / "result"
        options = ["--state", str(state), "--output", str(folder)]
        deadline = time.monotonic() + SECONDS
        while subprocess.run(
            [*enter, "ip", "link", "show", "vb"], capture_output=True, check=False
        ).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running = begin(
            [*enter, *tune, "run", str(spec), *options],
            folder / "trials.jsonl",
            lambda lines: any('"tap0/rx-frames": 8' in line for line in lines),
        )
        running.kill()
        running.communicate(timeout=SECONDS)
        assert '"event": "change"' in (state / "journal").read_text()
        shown = subprocess.run(
            [*enter, *tune, "show", "tap0", "--json", "--state", str(state)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
            timeout=SECONDS,
        )
        rows = json.loads(shown.stdout)["devices"][0]["knobs"]
        assert {"tap0/rx-frames": 0}.items() <= {e["knob"]: e["value"] for e in rows}.items()
        assert not (state / "journal").exists()
        # The next search or study removes the cluster, with this function.
        assert len(left_behind()) == 1
        take_away_left_behind(lambda _: None, pytest.fail)
        assert left_behind() == []
        assert not any(cluster_names())
    finally:
        inside.kill()
        inside.wait()


def test_a_better_setting_is_found_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, heard = scripted(
        tmp_path, BY_VARIABLE, "UCX_RNDV_THRESH: [4096, 16384]\n  MV2_SRQ_SIZE: [128]", trials=50
    )
    setting = found.space.setting(found.choice.phases[0].choice)
    assert setting["UCX_RNDV_THRESH"] == 4096
    show_result(read_result(tmp_path / "result"))
    said = capsys.readouterr().out
    assert "Phase only: a better setting." in said
    assert re.search(r"application time 1\.50?\d? s, present 2\.\d+: -2[45]\.\d %", said), said
    assert re.search(
        r"    UCX_RNDV_THRESH 4096: application time -2[45]\.\d % \(p < 0.0001\)", said
    ), said
    assert "Mechanism not established" in said
    assert "To apply it:\n  export UCX_RNDV_THRESH=4096\n" in said
    # A setting that fails is left out, and its output is kept.
    assert "UCX_RNDV_THRESH 16384 (now unset)" in said
    assert "it ended with status 3 (it breaks)" in said
    (first, *_) = (tmp_path / "result/outputs").glob("*.stderr")
    assert "it breaks" in first.read_text()
    assert any("it breaks" in line for line in heard.lines)
    assert any(each.estimates for each in heard.shown)


class Unplugging(Scripts):
    """Calls a function whenever the program of a launch is made, after the first ones."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.launches = 0

    def program(self, workload: Workload, mpi: Any, tools: Tools) -> Program:
        self.launches += 1
        if self.launches > 2:  # one program is made only to check that it can be made
            self._act()
        return super().program(workload, mpi, tools)


KNOB = "eth0/rx-usecs: [3, 10]"
SAME = """echo "{\\"time\\": 2}" """


def card(host: TunedHost) -> Mapping[str, int]:
    return host.ethtool.coalescing("eth0")


def test_host_knobs_are_back_where_nothing_is_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = fake_tuned_host(tmp_path / "host")
    found, _ = scripted(tmp_path, SAME, KNOB, host)
    assert {each.setting["eth0/rx-usecs"] for each in found.trials} == {3, 10}
    assert card(host) == BEFORE
    assert list((tmp_path / "journal").iterdir()) == []
    show_result(read_result(tmp_path / "result"))
    said = capsys.readouterr().out
    assert "Phase only: no better setting." in said
    assert said.endswith("\nThere is nothing to apply: no better setting was found.\n")


def test_an_interface_that_goes_away_ends_the_search(tmp_path: Path) -> None:
    host = fake_tuned_host(tmp_path / "host")
    network = host.network
    assert isinstance(network, FakeNetwork)
    with pytest.raises(VicinalError, match="the interface eth0 no longer exists"):
        scripted(tmp_path, SAME, KNOB, host, Unplugging(network.found.clear))
    assert list((tmp_path / "journal").iterdir()) == []


def test_nodes_that_another_command_takes_away_end_the_search(tmp_path: Path) -> None:
    """Otherwise trials of these settings fail, and the search finds nothing better."""
    host = fake_tuned_host(tmp_path / "host")
    driver = Unplugging(lambda: take_all_down() if driver.launches == 8 else None)
    with pytest.raises(VicinalError, match=r"removed tune-\w+-0, the nodes of the search"):
        scripted(tmp_path, SAME, KNOB, host, driver)
    assert card(host) == BEFORE
    assert cluster_names() == []
    assert all(not each.failed for each in kept_trials(tmp_path))
    assert not (tmp_path / "result/result.json").exists()


def test_nodes_that_cannot_be_made_again_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting of the trial in which the nodes ended may be the cause; no later setting is."""
    host = fake_tuned_host(tmp_path / "host")

    def refuse(*_: object, **__: object) -> None:
        raise VicinalError("there is no room for nodes", "make some")

    def end() -> None:
        for name in cluster_names():
            stop_cluster(name)
        monkeypatch.setattr(clusters, "bring_up", refuse)

    monkeypatch.setattr(clusters, "_SETTLED_SECONDS", 0.0)
    driver = Unplugging(lambda: end() if driver.launches == 8 else None)
    with pytest.raises(VicinalError, match=r"created again \(there is no room for nodes\)"):
        scripted(tmp_path, SAME, KNOB, host, driver)
    *good, last = kept_trials(tmp_path)
    assert not any(each.failed for each in good)
    assert "its nodes ended, and could not be created again" in str(last.error)
    assert card(host) == BEFORE


def kept_trials(tmp_path: Path) -> list[Trial]:
    return read_trials(tmp_path / "result/trials.jsonl")


def take_all_down() -> None:
    for name in cluster_names():
        take_down(name)


def test_a_trial_whose_link_drops_is_run_again(tmp_path: Path) -> None:
    host = fake_tuned_host(tmp_path / "host")
    network = host.network
    assert isinstance(network, FakeNetwork)
    driver = Unplugging(lambda: drop(network) if driver.launches in (5, 8, 9) else None)
    found, heard = scripted(tmp_path, SAME, KNOB, host, driver)
    said = [line for line in heard.lines if "the link of eth0 went down during the trial" in line]
    assert len(said) == 2
    # If the link drops again in the second run, the trial fails.
    assert [each.number for each in found.trials if each.failed] == [5]
    assert card(host) == BEFORE


def drop(network: FakeNetwork) -> None:
    """Count the link's going down and coming up."""
    network.found[0] = replace(
        network.found[0], carrier_changes=network.found[0].carrier_changes + 2
    )


def test_a_driver_that_refuses_later_leaves_nothing(tmp_path: Path) -> None:
    """In a trial, the driver refuses a value that it accepted before: half of a setting is set."""
    host = fake_tuned_host(tmp_path / "host")
    ethtool = host.ethtool
    assert isinstance(ethtool, FakeEthtool)
    driver = Unplugging(lambda: ethtool.put("eth0", refuses=["tx-usecs"]))
    knobs = f"{KNOB}\n  eth0/tx-usecs: [5, 20]"
    found, _ = scripted(tmp_path, SAME, knobs, host, driver)
    failed = [each for each in found.trials if each.failed]
    assert failed
    assert all(each.setting["eth0/tx-usecs"] == 20 for each in failed)
    assert all("refuses it" in str(each.error) for each in failed)
    assert card(host) == BEFORE


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ("eth7/rx-usecs: [1]", "there is no interface 'eth7'"),
        ("eth0/speed: [1]", "there is no knob 'eth0/speed'"),
        ("eth0/rx-usecs: [4294967296]", "eth0/rx-usecs cannot be 4294967296"),
        ("eth0/adaptive-rx: [1]", "eth0/adaptive-rx cannot be 1: use one of off, on"),
        ("eth1/rx-usecs: [1]", "eth1 has none"),
        ("VICINAL_PROGRES: [poll]", "no knob 'VICINAL_PROGRES': did you mean VICINAL_PROGRESS?"),
        ("VICINAL_PROGRESS: [spin]", "VICINAL_PROGRESS=spin is none of poll, adaptive, block"),
        ("eth0/tx-usecs: [5, 20]", "eth0/tx-usecs cannot be tuned: not supported"),
        ("eth0/rx-frames: [1, 200]", "eth0/rx-frames cannot be 200 (200 becomes 128)"),
        ("eth0/adaptive-rx: [off]", "eth0/adaptive-rx cannot be tuned: accepts but ignores"),
        ("MV2_SRQ_SIZE: [unset]", "no knob has a value other than its present one"),
    ],
)
def test_knobs_that_cannot_be_are_refused_before_anything_runs(
    tmp_path: Path, knobs: str, message: str
) -> None:
    host = fake_tuned_host(tmp_path / "host")
    ethtool = host.ethtool
    assert isinstance(ethtool, FakeEthtool)
    ethtool.put("eth0", refuses=["tx-usecs"], most={"rx-frames": 128}, ignores=["adaptive-rx"])
    with pytest.raises(VicinalError) as caught:
        scripted(tmp_path, SAME, knobs, host)
    assert message in str(caught.value)
    assert card(host) == BEFORE
    assert not (tmp_path / "result").exists()


def test_without_rights_and_on_the_own_connection_it_is_refused(tmp_path: Path) -> None:
    host = fake_tuned_host(tmp_path / "host")
    search = read_search(written(tmp_path, SCRIPTED % ("true", KNOB, 40)))
    applier = Applier(host, tmp_path / "journal", {"eth0": "it carries the default route"})
    with pytest.raises(VicinalError, match="left alone: it carries the default route"):
        knobs_of(search, applier)
    (tmp_path / "host/host/proc/self/status").write_text("CapEff:\t0000000000000000\n")
    with pytest.raises(VicinalError, match="only root may set eth0/rx-usecs"):
        scripted(tmp_path, SAME, KNOB, host)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("sizes: [8]", "sizes: [8, 64]", "spec.yaml:6: the phase 'small' needs one size"),
        ("sizes: [8]", "sizes: 8", "spec.yaml:6: the phase 'small' needs one size"),
        ("sizes: [8]", "size: [8]", "spec.yaml:6: unknown key size"),
        ("samples: 100", "name: x", "spec.yaml:6: the workload of 'small' has a name"),
        ("samples: 100", "samples: many", "spec.yaml:6: workloads[0].samples cannot be"),
        ("KNOB", "eth0/rx-usecs: [1, 2]", "knobs of interfaces (eth0/rx-usecs) and no environment"),
        ("phases:", "environment: {cluster: {}}\nphases:", "spec.yaml:4: environments[0].cluster"),
        ("phases:", "tools: {osu: none}\nphases:", "/none does not exist: correct tools.osu"),
        ("driver: record", "driver: recorder", "has no driver recorder"),
        ("objectives: [p50", "objectives: [speed", "spec.yaml:3"),
    ],
)
def test_a_file_that_cannot_be_is_refused(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    knob = "VICINAL_PROGRESS: [poll, block]"
    path = written(tmp_path, REAL.replace(before, after).replace("KNOB", knob))
    with pytest.raises(VicinalError) as caught:
        check_launches(read_search(path), all_drivers())
    assert message in str(caught.value)


def test_a_dry_run_says_what_would_be(tmp_path: Path, vicinal: Vicinal) -> None:
    path = written(tmp_path, REAL.replace("KNOB", "VICINAL_PROGRESS: [poll, block]"))
    done = vicinal("tune", "run", path, "--dry-run", VICINAL_PROGRESS="adaptive")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "VICINAL_PROGRESS is adaptive, and the values poll, block, adaptive would be tried",
        "phase small: record latency",
        "3 settings; P50 would be measured in at most 27 trials, and at least 25 trials",
    ]
    few = vicinal("tune", "run", path, "--dry-run", "--trials", "20")
    assert "a budget of 20 trials is too small" in error_line(few)
    assert "no result of waiting" in error_line(vicinal("tune", "run", path, "--resume"))
    assert "manifest.json cannot be read" in error_line(vicinal("tune", "explain", tmp_path))


def test_links_are_watched_by_the_kernel() -> None:
    """The test uses a veth pair whose other end goes down and up again."""
    code = """
import subprocess
from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knobs.network import KernelNetwork
from vicinal.labs.tune.measuring.links import LinkWatch

def ip(words):
    subprocess.run(["ip", "link", "set", *words.split()], check=True)

ip("va up"); ip("vb up")
watch = LinkWatch(KernelNetwork(), ["va", "tap0"])
before = watch.settle()
watch.check(before)
ip("vb down"); ip("vb up")
for act in (lambda: watch.check(before), lambda: (ip("vb down"), watch.settle(0.0))):
    try:
        act()
    except VicinalError as error:
        print(error.message)
print(sorted(before))
"""
    done = subprocess.run(
        [*apart(), sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "the link of va went down during the trial",
        "the link of va is down, and was up before",
        "['va']",
    ], done.stderr
