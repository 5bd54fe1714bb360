"""Nodes that die while a study runs: one launch is lost, and the study creates the nodes again."""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread

import psutil
import pytest
from process_support import named
from study_support import NATIVE, NETWORK, REGION, Heard, clusters_left, study

from vicinal.base.errors import VicinalError
from vicinal.cluster.manager import open_nodes, take_down
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.jobs import ContainerNodes
from vicinal.cluster.plan.state import cluster_names
from vicinal.labs.study.environments import clusters
from vicinal.labs.study.file.model import Quantity, Study, Workload
from vicinal.labs.study.result.reading import Result, open_result
from vicinal.labs.study.running.runner import Outcome, run_study
from vicinal.labs.study.running.view import Shown
from vicinal.labs.study.workloads.driver import Tools

SECONDS = 60.0
# Long enough for a kill in the middle.
LATENCY = Workload(
    "latency", "latency", "record", "latency", Quantity.LATENCY, (8,), samples=10**7, seconds=1.5
)
STRUCK = 2
"""The number of the launch in which nodes die; this launch is in containers."""


@dataclass
class Striking(Heard):
    """A view that strikes at one launch: before it begins, or while its program runs."""

    strike: Callable[[], None] = lambda: None
    running: bool = True
    struck: Shown | None = None
    errors: list[BaseException] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)

    def show(self, shown: Shown) -> None:
        super().show(shown)
        if self.struck is None and shown.trials + 1 >= STRUCK and "native" not in shown.now:
            self.struck = shown
            if self.running:
                self.threads.append(Thread(target=self._when_it_runs))
                self.threads[-1].start()
            else:
                self.strike()

    def _when_it_runs(self) -> None:
        try:
            deadline = time.monotonic() + SECONDS
            while not named(inside(containers(), "node1"), "record"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(0.3)
            self.strike()
        except BaseException as error:
            self.errors.append(error)


def containers() -> ContainerCluster:
    """The containers of the running study."""
    for name in cluster_names():
        nodes = open_nodes(name)
        if isinstance(nodes, ContainerNodes):
            return nodes.cluster
    raise AssertionError("no cluster of containers")


def inside(cluster: ContainerCluster, node: str) -> list[psutil.Process]:
    """The processes in a node."""
    names = {each.name: each.pid_namespace for each in cluster.nodes}
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if str(Path(f"/proc/{process.pid}/ns/pid").readlink()) == names.get(node):
                found.append(process)
    return found


def kill_node() -> None:
    """Kill a node's first process; the kernel then ends the node's other processes."""
    min(inside(containers(), "node1"), key=lambda each: each.create_time()).kill()


def kill_head() -> None:
    head = Head.find(containers().state_directory)
    assert head is not None
    os.kill(head.process, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _own_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(what: Study, folder: Path, view: Striking) -> tuple[Outcome, Result]:
    outcome = run_study(what, folder, Tools(), resume=False, view=view, seed=7)
    for thread in view.threads:
        thread.join()
    assert view.errors == []
    assert view.struck is not None
    assert clusters_left(folder) == []
    return outcome, open_result(folder)


@pytest.mark.parametrize(
    ("strike", "running"),
    [
        (kill_node, True),
        pytest.param(kill_head, True, marks=pytest.mark.long),
        pytest.param(kill_node, False, marks=pytest.mark.long),
    ],
    ids=["node", "all-nodes", "between-launches"],
)
def test_nodes_that_die_are_made_again(
    tmp_path: Path, strike: Callable[[], None], running: bool
) -> None:
    what = study([LATENCY], [NETWORK, REGION], trials=2)
    view = Striking(strike=strike, running=running)
    outcome, result = run(what, tmp_path / "result", view)
    assert outcome.given_up == []
    assert len(outcome.failures) == 1
    assert outcome.trials == 5  # two blocks of two environments and the control
    (failed,) = [each for each in result.trials if each.failure is not None]
    assert view.struck is not None
    assert view.struck.now == f"latency in {failed.trial.environment}"
    # If the head ends, the whole cluster ends, which shows at once or node by node.
    assert re.search(
        r"(node/node1|cluster study-\w+-0)\b.* did not run any more$", failed.failure or ""
    )
    assert view.lines.count("creating the nodes of network, region again") == 1
    # The next launches are in the new nodes, and succeed.
    assert all(each.failure is None for each in result.trials if each.number > failed.number)


@pytest.mark.long
def test_nodes_that_cannot_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is a fake. Other environments go on, and the study says so."""

    def refuse() -> None:
        def fail(*_: object, **__: object) -> None:
            raise VicinalError("there is no room for nodes", "make some")

        kill_node()
        monkeypatch.setattr(clusters, "bring_up", fail)

    what = study([LATENCY], [NATIVE, NETWORK], trials=3)
    view = Striking(strike=refuse)
    outcome, result = run(what, tmp_path / "result", view)
    assert len(outcome.failures) == 1
    said = "the nodes of network cannot be repaired: there is no room for nodes: make some"
    assert view.lines.count(said) == 1
    native = [each for each in result.trials if each.trial.environment.startswith("native")]
    assert len(native) == 6
    assert all(each.failure is None for each in native)
    assert outcome.given_up == ["network"]


def test_nodes_that_another_command_takes_away_end_the_study(tmp_path: Path) -> None:
    """No environment failed, so the trial is not kept as a failure, and --resume repeats it."""
    what = study([replace(LATENCY, seconds=0.1)], [NETWORK, REGION], trials=2)
    view = Striking(strike=lambda: take_all_down(), running=False)
    folder = tmp_path / "result"
    with pytest.raises(VicinalError, match=r"removed study-\w+-0, the nodes of \w+, while the"):
        run_study(what, folder, Tools(), resume=False, view=view, seed=7)
    assert clusters_left(folder) == []
    assert [each.failure for each in open_result(folder).trials] == [None]
    outcome = run_study(what, folder, Tools(), resume=True, view=Heard())
    assert (outcome.trials, outcome.failures) == (6, [])


def take_all_down() -> None:
    for name in cluster_names():
        take_down(name)
