"""Commands of a cluster file that nodes run when they start: what the keys mean, and containers.

Tests of the commands in virtual machines are in tests/guests/cluster/test_cluster_keys.py.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_file_support import read
from command_support import Vicinal, error_line
from test_cluster_commands import Trial

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Commands
from vicinal.cluster.nodes.container.cluster import ContainerCluster

TEXT = """\
nodes:
  - name: node
    runtime: {runtime}
    mounts: [.]
    first_boot:
      - echo first >>{log}; id -u >>{log}
      - |
        test -e {log} &&
        echo "second of $(hostname)" >>{log}
    each_boot: [echo each >>{log}]
region: none
"""


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vicinal: Vicinal) -> Iterator[Trial]:
    trial = Trial(tmp_path, os.geteuid())
    monkeypatch.setenv("XDG_STATE_HOME", str(trial.directory))
    yield trial
    assert vicinal("down", trial.name).returncode == 0
    assert trial.left() == []


@pytest.mark.parametrize("runtime", ["crun", "bubblewrap"])
def test_containers_run_them_once_or_each_time(
    vicinal: Vicinal, trial: Trial, runtime: str
) -> None:
    log = trial.directory / "log"
    text = f"name: {trial.name}\n{TEXT.format(runtime=runtime, log=log)}"
    trial.file.write_text(text)

    def said() -> list[str]:
        lines = log.read_text().splitlines()
        log.write_text("")
        return lines

    up = vicinal("up", trial.file)
    assert up.returncode == 0, up.stderr
    whole = ["first", "0", "second of node", "each"]
    assert said() == whole
    assert vicinal("up", trial.file).returncode == 0
    assert said() == []
    # Both `start` and `up` start a stopped node.
    assert vicinal("stop", trial.name).returncode == 0
    assert vicinal("start", trial.name).returncode == 0
    assert said() == ["each"]
    assert vicinal("stop", trial.name).returncode == 0
    assert vicinal("up", trial.file).returncode == 0
    assert said() == ["each"]
    # A node whose process ended by itself.
    process = ContainerCluster.open(trial.name).process_of("node")
    assert process is not None
    os.kill(process, signal.SIGKILL)
    assert vicinal("up", trial.file).returncode == 0
    assert said() == ["each"]
    assert vicinal("status", trial.name).returncode == 0
    # If the commands change, the node is made anew.
    trial.file.write_text(text.replace("second of", "now of"))
    assert vicinal("up", trial.file).returncode == 0
    assert said() == ["first", "0", "now of node", "each"]


def test_one_that_fails_is_rolled_back(vicinal: Vicinal, trial: Trial) -> None:
    command = "echo one; echo two >&2; exit 3"
    trial.file.write_text(
        f"name: {trial.name}\nnodes: [{{name: node}}]\nfirst_boot: ['{command}']\nregion: none\n"
    )
    error = error_line(vicinal("up", "--quiet", trial.file))
    assert f"node: first_boot: this command ended with status 3: {command}; " in error
    assert "its last output: one | two: correct it in the cluster file" in error
    assert trial.left() == []


def test_a_group_s_own_commands_are_instead_of_those_for_all(tmp_path: Path) -> None:
    text = "name: a\nnodes:\n  - {name: n}\n  - {name: m, first_boot: [two], backend: vm}\n"
    n, m = read(tmp_path, text + "first_boot: [one]\neach_boot: [always]\n").nodes
    assert n.commands == Commands(("one",), ("always",))
    assert m.commands == Commands(("two",), ("always",))
    assert m.backend is BackEnd.VM
    assert not read(tmp_path, "name: a\nnodes: [{name: n}]\n").nodes[0].commands


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: [{name: n, first_boot: ls}]", "cluster.yaml:2: nodes[0].first_boot cannot be"),
        ("nodes: [{name: n}]\nfirst_boot: ['']", "cluster.yaml:3: first_boot[0] cannot be"),
        ("nodes: [{name: n}]\neach_boot: [[ls]]", "cluster.yaml:3: each_boot[0] cannot be"),
        ("nodes: [{name: n}]\nfirstboot: [ls]", "unknown key firstboot: did you mean first_boot?"),
        (
            "nodes:\n  - name: n\n    backend: host\n    first_boot: [ls]",
            "cluster.yaml:5: nodes[0] has the backend host, and first_boot is only for container",
        ),
        (
            "nodes: [{name: n, backend: host}]\neach_boot: [ls]",
            "cluster.yaml:3: each_boot is only for the backend container or vm, and no node has it",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, f"name: a\n{text}\n")
    assert said in str(caught.value)
