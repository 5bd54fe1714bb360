"""Studies over several hosts that ssh reaches: MPI jobs with files, and pairs of programs.

The hosts are namespaces of this machine (host_support.py); the study runs on a third one.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_support import Hosts
from study_support import Scripts, script, study

from vicinal.labs.study.file.model import Environment
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.running.ready import check_ready
from vicinal.labs.study.workloads.driver import Tools

HERE = Path(__file__).parent
STUDY = r"""
import json
import sys
from dataclasses import replace
from pathlib import Path
from study_support import Heard, Scripts, script, study
from vicinal.mpi.environment import MessagePath
from vicinal.labs.study.file.model import Design, Environment, Quantity, Workload
from vicinal.labs.study.running.trial import Limits
from vicinal.labs.study.running.runner import run_study
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Tools

cluster = {
    "hosts": [{"name": "node0"}, {"name": "node1"}],
    "nodes": [{"name": "native", "backend": "host", "count": 2}],
    "region": "none",
}
hosts = Environment("hosts", "two hosts", cluster, path=MessagePath.NETWORK)
listen = (
    "import socket, json; s = socket.create_server(('', 47113)); c, a = s.accept(); "
    "c.send(json.dumps([socket.gethostname(), a[0]]).encode())"
)
connect = (
    "import json, socket; c = socket.create_connection(('{server}', 47113)); "
    "name, ours = json.loads(c.recv(99)); assert name == 'node0', name; "
    "assert socket.gethostname() == 'node1'; assert ours == c.getsockname()[0] != '127.0.0.1'; "
    "print(json.dumps({'time': 7}))"
)
python = sys.executable
workloads = [
    Workload("latency", "latency", "record", "latency", Quantity.LATENCY, (8,), seconds=0.1),
    Workload(
        *("pingpong", "pingpong", "libfabric", "latency", Quantity.LATENCY, (64,)),
        samples=100,
        options={"provider": "tcp", "endpoint": "msg", "messages": "msg"},
    ),
    script("pair", f'{python} -c "{connect}"', server=[python, "-c", listen]),
    script("files", 'printf \'{"time": %s}\' "$(cat it.dat)"', files={"it.dat": "5"}),
]
heard = Heard()
outcome = run_study(
    replace(study(workloads, [hosts]), design=Design((), trials=1)),
    Path(sys.argv[1]),
    Tools(),
    resume=False,
    view=heard,
    drivers=drivers() | {"scripts": Scripts()},
    limits=Limits(given_seconds=240),
)
print(json.dumps([outcome.trials, outcome.failures, outcome.lacking, heard.lines]))
"""


def test_a_region_on_each_host_is_refused_before_anything_starts() -> None:
    """Nothing checks whether a study's messages used these regions, so no result may claim it."""
    cluster = {
        "hosts": [{"name": "node0"}, {"name": "node1"}],
        "nodes": [{"name": "native", "backend": "host", "count": 2}],
    }
    what = study([script("good", "true")], [Environment("hosts", "two", cluster)])
    lacking = check_ready(what, Tools(), {"scripts": Scripts()})
    assert list(lacking) == ["hosts"]
    assert lacking["hosts"].endswith("give it the path network")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    directory = tmp_path / "hosts"
    directory.mkdir()
    with Hosts(2, directory) as opened:
        yield opened


@pytest.mark.long
def test_a_study_over_hosts(hosts: Hosts, tmp_path: Path) -> None:
    folder = tmp_path / "result"
    done = hosts.at_head(
        *(sys.executable, "-c", STUDY, folder),
        PYTHONPATH=os.pathsep.join([hosts.environment()["PYTHONPATH"], str(HERE)]),
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert done.returncode == 0, done.stderr
    trials, failures, lacking, lines = json.loads(done.stdout.splitlines()[-1])
    assert (failures, lacking) == ([], {}), lines
    assert trials == 4
    result = open_result(folder)
    by_name = {each.trial.workload: each for each in result.trials}
    assert by_name["pair"].trial.figures[0].value == 7
    assert by_name["pingpong"].trial.figures[0].value > 0
    assert by_name["files"].trial.figures[0].value == 5
    assert set(by_name["latency"].trial.conditions["program"]["hosts"]) == {"node0", "node1"}
    nodes = result.manifest["environments"]["hosts"]["nodes"]
    assert [each["name"] for each in nodes] == ["native0", "native1"]
    assert hosts.leftovers() == {}
