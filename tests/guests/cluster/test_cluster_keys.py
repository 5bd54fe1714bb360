"""Keys of a cluster file that concern the host, with virtual machines; see keys_scenario.py."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from guest_support import GUARD_SECONDS
from launch_support import package_path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import ImageAdditions
from vicinal.cluster.nodes.vm.image_additions import additions_key, build_additions
from vicinal.cluster.vm.image.building import build_image


def test_networks_images_and_first_boots() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a network that stands for the host's")
    build_image(print)  # the scenario's network has no mirrors
    build_additions(ImageAdditions(packages=("tree",)), print)
    script = Path(__file__).parents[1] / "support/keys_scenario.py"
    with tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        done = subprocess.run(
            ["unshare", "--net", "--mount", sys.executable, script, name],
            cwd=name,
            env={**os.environ, "PYTHONPATH": package_path()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_what_is_added_to_the_image_is_kept_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one")
    additions = ImageAdditions(files=((str(tmp_path), "/opt/mine"),))
    build_image(print)
    said: list[str] = []
    first = build_additions(additions, said.append)
    assert said == ["writing the additions to the guest image"]
    assert b"opt/mine/file" in first.read_bytes()
    assert build_additions(additions, said.append) == first
    assert len(said) == 1
    key = additions_key(additions)
    (tmp_path / "file").write_text("other")
    assert additions_key(additions) != key
    first.unlink()


def test_a_package_that_does_not_exist() -> None:
    build_image(print)
    with pytest.raises(
        VicinalError, match=r"Unable to locate package no-such-pack.*: check that imag"
    ):
        build_additions(ImageAdditions(packages=("no-such-package",)), print)
