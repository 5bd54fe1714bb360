"""Guests as domains of a real libvirt: a system daemon as root, and an unprivileged user's session.

Both daemons are the test's own. domain_scenario.py has the steps.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from domain_support import ordinary_user, private_daemon
from guest_support import GUARD_SECONDS

from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

BOTH_WAYS = [["guest0", "guest1"], ["guest1", "guest0"]]


def play(
    before: Sequence[str], uri: str, directory: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run the scenario; returns the facts of each step."""
    image = build_image(print)
    choice = choose_accelerator(find_qemu(), image, print)
    print(choice.accelerator.description)
    script = Path(__file__).parents[1] / "support/domain_scenario.py"
    arguments: list[str | Path] = [uri, directory, image.kernel, image.files, choice.accelerator]
    program = mpi_program(Mpi.MPICH, "verify")
    done = subprocess.run(
        [*before, script, *arguments, program, *sorted(image.holds)],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    print(done.stdout)
    consoles = [f"{each}:\n{each.read_text()}" for each in directory.glob("console*")]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *consoles])
    return {facts.pop("step"): facts for facts in map(json.loads, done.stdout.splitlines())}


def check(facts: dict[str, Any], directory: Path) -> None:
    assert facts["connected"]["qemu"].endswith("qemu-system-x86_64")
    assert "is not Vicinal's" in facts["clash"]["error"]
    assert "did not boot and is" in facts["broken"]["error"]
    assert "Kernel panic" in facts["broken"]["error"]
    assert facts["verified"]["talks"] == BOTH_WAYS
    assert "did not release the region" in facts["deaf"]["error"]
    assert facts["refused"]["error"].endswith(": detach the region first")
    assert facts["restored"]["talks"] == BOTH_WAYS
    assert facts["stopped"] == {"button": True}
    assert facts["removed"]["left"] == []
    assert not list(directory.glob("*.port"))
    left = [
        each.info["cmdline"]
        for each in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in each.info["cmdline"] or [])
    ]
    assert left == []


def test_as_root_with_a_system_libvirt_without_systemd() -> None:
    with private_daemon() as uri, tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        facts = play([sys.executable], uri, Path(name), os.environ)
        assert facts["connected"]["user"] == [0, 0]  # from qemu.conf
        check(facts, Path(name))


def test_as_an_ordinary_user_with_a_session() -> None:
    with tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        before, environment = ordinary_user(Path(name))
        facts = play(before, "qemu:///session", Path(name), environment)
        assert facts["connected"]["user"] is None
        assert facts["modules"] == {"devices": [["/dev/dax0.0"]] * 2, "talks": BOTH_WAYS}
        check(facts, Path(name))
