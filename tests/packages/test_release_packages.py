"""A release of this commit with the packages for Debian and RPM, without a commit and a tag."""

import json
import sys
from hashlib import sha256

import pytest
from package_support import call, clone_for_release

VERSION = "97.1.0"
BUILD_SECONDS = 3600
"""A guard against hangs: lintian reads 130 MB of Python packages."""
PACKAGES = {
    *("libfabric-vicinal", "libvicinal-dev", "vicinal", "vicinal-devel", "vicinal-guest"),
    *("vicinal-slurm", "vicinal-study"),
}


@pytest.mark.timeout(BUILD_SECONDS + 300)
def test_packages_are_in_the_checksums_and_in_the_list_of_components(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")  # it may name a key
    tree = clone_for_release(tmp_path_factory.mktemp("release") / "tree")
    command: list[object] = [sys.executable, "scripts/release.py", VERSION, "--dry-run"]
    said = call(command, cwd=tree, timeout=BUILD_SECONDS)
    assert "Debian's packages, the packages for RPM" in said
    out = tree / "build/releases" / VERSION
    debs, rpms = sorted(out.glob("*.deb")), sorted(out.glob("*.rpm"))
    names = {path.name.partition("_")[0] for path in debs if "-dbgsym_" not in path.name}
    assert names == PACKAGES - {"vicinal-devel"}
    assert f"vicinal-{VERSION}-1.src.rpm" in {path.name for path in rpms}
    assert {path.name.partition(f"-{VERSION}-")[0] for path in rpms} == PACKAGES - {
        "libvicinal-dev"
    }
    call(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=out)
    summed = {line.split()[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
    assert summed == {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    bill = json.loads((out / f"vicinal-{VERSION}-packages.cdx.json").read_text())
    hashes = {
        each["name"]: each["hashes"][0]["content"]
        for each in bill["components"]
        if each["type"] == "file"
    }
    assert hashes == {path.name: sha256(path.read_bytes()).hexdigest() for path in (*debs, *rpms)}
    bundled = {each["name"] for each in bill["components"] if each["type"] == "library"}
    assert {"typer", "psutil", "numpy", "matplotlib"} <= bundled
