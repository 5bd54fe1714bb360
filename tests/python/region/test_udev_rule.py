"""The rule that gives a region's device to its users in a guest. It runs here without udev."""

import os
import re
import stat
import subprocess
import time
from pathlib import Path

import vicinal.cluster.vm.image

RULES = Path(vicinal.cluster.vm.image.__file__).parent / "70-vicinal.rules"


def command(device: Path) -> list[str]:
    """The words of the command that udev runs, for a device that is this directory.

    The group is replaced by a group that exists on every host.
    """
    line = next(each for each in RULES.read_text().splitlines() if 'SUBSYSTEM=="pci"' in each)
    (run,) = re.findall(r'RUN\+="([^"]*)"', line)
    assert "$" not in run  # udev would substitute it
    words = re.findall(r"'([^']*)'|(\S+)", run)
    found = [quoted or bare for quoted, bare in words]
    group = f"chgrp {os.getegid()}"
    return [each.replace("/sys%p", str(device)).replace("chgrp mpi", group) for each in found]


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_device_is_handed_over(tmp_path: Path) -> None:
    memory = tmp_path / "resource2"
    memory.touch(mode=0o600)
    subprocess.run(command(tmp_path), check=True, timeout=60)
    assert mode(memory) == 0o660


def test_one_that_is_plugged_in_is_so_when_its_file_is_there(tmp_path: Path) -> None:
    """The kernel announces a device before it has made the device's file."""
    memory = tmp_path / "resource2"
    with subprocess.Popen(command(tmp_path)) as running:
        time.sleep(0.3)
        assert running.poll() is None
        memory.touch(mode=0o600)
        assert running.wait(60) == 0
    assert mode(memory) == 0o660


def test_one_without_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    words = command(tmp_path)
    assert words[:2] == ["/usr/bin/timeout", "10"]
    words[1] = "0.2"
    assert subprocess.run(words, check=False, timeout=60).returncode == 124
