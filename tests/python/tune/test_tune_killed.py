"""If a command is killed at any step, the next command restores the host.

One host has the kernel's own interfaces, a tap device and a veth pair, in a network namespace.
The other host is a stand-in with more knobs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_knobs import fake_tuned_host
from launch_support import package_path

HERE = Path(__file__).parent
NETWORK = """
ip link set lo up
ip tuntap add tap0 mode tap
ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb numrxqueues 2 numtxqueues 2
exec "$@"
"""


def apart() -> list[str]:
    """The start of a command line that runs the rest in a new network namespace."""
    own = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    return [*own, "sh", "-ec", NETWORK, "sh"]


def killed_everywhere(before: list[str], host: str, state: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*before, sys.executable, HERE / "tune_killed.py", host, state],
        env=os.environ | {"PYTHONPATH": f"{package_path()}:{HERE}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module", params=["fake", "kernel"])
def lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    state = tmp_path_factory.mktemp("state")
    if request.param == "kernel":
        return killed_everywhere(apart(), "kernel", state)
    host = tmp_path_factory.mktemp("host")
    fake_tuned_host(host)
    return killed_everywhere([], str(host), state)


def test_values_are_as_before_wherever_it_was_killed(lines: list[dict[str, Any]]) -> None:
    before, last = lines[0]["found"], lines[-2]["action"]
    assert not lines[0]["journal"]
    assert last == "restore"
    for each in lines:
        if each["action"] == "restored":
            assert (each["found"], each["journal"]) == (before, False)
        if each["action"] == "try":
            assert each["recovered"] == before, each
        if each["action"] == "apply" and each["recovered"] != before:
            # Killed after its last journal line: the setting is complete and stays.
            assert each["recovered"] == each["found"]
            assert all(each["found"][name] != before[name] for name in before), each


def test_it_was_killed_while_values_were_changed(lines: list[dict[str, Any]]) -> None:
    """The test above proves nothing without such kills."""
    before = lines[0]["found"]
    for action in ("apply", "try", "restore"):
        killed = [each for each in lines if each["action"] == action and each["killed"]]
        assert len(killed) >= 10, action
        different = {json.dumps(each["found"]) for each in killed}
        # No value changed, all changed, and at least one state in between.
        assert len(different) >= 3, action
        assert json.dumps(before) in different
