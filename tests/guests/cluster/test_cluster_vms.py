"""Clusters of virtual machines from `up` to `down`: as root, and as an unprivileged user.

Both use libvirt daemons of the test. vms_scenario.py has the steps.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domain_support import ordinary_user, private_daemon
from guest_support import GUARD_SECONDS
from launch_support import NOBODY

import vicinal
from vicinal.cluster.vm.image.building import build_image
from vicinal.labs.programs import mpi_program
from vicinal.mpi.libraries import STANDARD


def play(before: Sequence[str], directory: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run the scenario; returns the facts of each step, of a repeated step the last."""
    script = Path(__file__).parents[1] / "support/vms_scenario.py"
    programs = [str(mpi_program(mpi, "verify")) for mpi in STANDARD]
    done = subprocess.run(
        [*before, script, directory, *programs],
        cwd=directory,
        env={
            **environment,
            "PYTHONPATH": environment.get("PYTHONPATH", checkout()),
            "XDG_STATE_HOME": str(directory / "state"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return {facts.pop("step"): facts for facts in map(json.loads, done.stdout.splitlines())}


def checkout() -> str:
    return str(Path(vicinal.__file__).resolve().parents[1])


def check(facts: Mapping[str, Any], count: int) -> None:
    assert f"the virtual machines need {count * 999}.0 GiB of memory" in facts["memory"]["error"]
    assert "cores, and this host has" in facts["cores"]["error"]
    assert "vm/vm1 exists already" in facts["clash"]["error"]
    status = facts["status"]
    assert status["whole"] is True
    assert [node["name"] for node in status["nodes"]] == [f"vm{n}" for n in range(count)]
    assert {node["state"] for node in status["nodes"]} == {"running"}
    assert {node["memory_bytes"] for node in status["nodes"]} == {640 << 20}
    addresses = [f"10.0.0.{n + 1}" for n in range(count)]
    assert [node["address"] for node in status["nodes"]] == addresses
    # The output says whether the VMs are emulated, and why.
    assert status["accelerator"] in ("kvm", "tcg")
    assert any(f"{status['accelerator'].upper()}: " in line for line in facts["up"]["said"])
    assert facts["killed"]["before"] > 0


def test_as_root_with_a_system_libvirt() -> None:
    with private_daemon() as uri, tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        facts = play([sys.executable], Path(name), {**os.environ, "LIBVIRT_DEFAULT_URI": uri})
        check(facts, 3)
        assert any(each["key"] == "bridge/main" for each in facts["status"]["pieces"])
        assert "did not end within 6 s" in facts["late"]["error"]
        assert "Kernel panic" in facts["broken"]["error"]
        kept = Path(facts["broken"]["error"].rpartition(" ")[2])
        assert "Kernel panic" in kept.read_text(errors="replace")
        kept.unlink()


def test_as_an_ordinary_user_with_a_session() -> None:
    with tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        before, environment = ordinary_user(Path(name))
        lend_image(Path(name))
        facts = play(before, Path(name), environment)
        check(facts, 2)
        assert not any(each["key"] == "bridge/main" for each in facts["status"]["pieces"])


def lend_image(home: Path) -> None:
    """Link the image to where that user's would be, who would otherwise fetch and build one."""
    image = build_image(print)
    cache = home / "cache_home/vicinal/guests"
    system = cache / image.kernel.parents[1].name
    (system / "boot").mkdir(parents=True)
    (system / "lib/modules" / image.kernel_version).mkdir(parents=True)
    shutil.copy2(image.kernel, system / "boot")
    shutil.copy2(image.files, cache)
    if os.geteuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
