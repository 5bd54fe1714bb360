"""Interfaces that are moved into containers and back by the real kernel (interfaces_inside.py).

tests/guests/vf/test_guest_vfs.py has interfaces of a network card and of its virtual
functions.
"""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch_support import GUARD_SECONDS, package_path

Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    directory = tmp_path_factory.mktemp("interfaces")
    script = Path(__file__).with_name("interfaces_inside.py")
    # A user who is not root can show device files to a container only from mounts of a namespace of
    # the user's own.
    own = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rnm"]
    done = subprocess.run(
        [*own, sys.executable, str(script), str(directory), f"t{secrets.token_hex(5)}"],
        env=os.environ
        | {
            "PYTHONPATH": f"{package_path()}:{script.parent}",
            "XDG_STATE_HOME": str(directory),
        },
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {line["step"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_it_is_moved_in_and_set_up(steps: Steps) -> None:
    assert steps["before"]["condition"] == "absent"
    assert steps["create"]["error"] == ""
    assert steps["created"]["condition"] == "ready"
    assert "eth7" not in steps["created"]["here"]
    (interface,) = json.loads(steps["addresses"]["stdout"])
    assert interface["flags"].count("UP") == 1
    assert [each["local"] for each in interface["addr_info"]] == ["10.7.0.1"]


def test_it_is_the_host_s_while_the_node_is_stopped(steps: Steps) -> None:
    assert steps["stop"]["error"] == ""
    assert steps["stopped"]["condition"] == "stopped"
    assert "eth7" in steps["stopped"]["here"]
    assert steps["start"]["error"] == ""
    assert steps["started"]["condition"] == "ready"


def test_it_comes_back_under_its_name(steps: Steps) -> None:
    assert steps["remove"]["error"] == ""
    assert steps["removed"]["condition"] == "absent"
    assert "eth7" in steps["removed"]["here"]
    assert "eth1" not in steps["removed"]["here"]


def test_what_is_in_use_or_no_card_is_left_alone(steps: Steps) -> None:
    assert "0000:01:00.0 is in use: its interface eth7 is up" in steps["in use"]["error"]
    said = "0000:09:00.0 is no network card of this host, which has 0000:01:00.0"
    assert said in steps["no card"]["error"]


def test_device_files_are_shown(steps: Steps) -> None:
    device = Path("/dev/kmsg").stat().st_rdev
    assert steps["device"]["stdout"].split() == [f"{os.major(device):x}", f"{os.minor(device):x}"]


def test_a_node_whose_network_ended_has_it_no_more(steps: Steps) -> None:
    assert steps["create again"]["error"] == ""
    found = steps["without its head"]
    assert (found["condition"], found["why"]) == ("broken", "it is not in the node's network")
