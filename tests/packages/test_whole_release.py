"""Whole releases of this commit, with uncommitted changes, in a clone of the checkout.

test_release_packages.py makes one with packages for Debian and RPM, which takes many minutes.
"""

import json
import sys
from pathlib import Path

import package_support
import pytest
from package_support import clone_for_release

VERSION = "97.0.0"
OUT = f"build/releases/{VERSION}"
RELEASE = (sys.executable, "scripts/release.py", VERSION, "--without", "deb,rpm")


def call(*command: object, directory: Path) -> str:
    """The output of a command in a directory."""
    return package_support.call(list(command), cwd=directory)


def state_of(tree: Path) -> tuple[str, ...]:
    return tuple(
        call("git", *command, directory=tree)
        for command in (["rev-parse", "HEAD"], ["tag"], ["status", "--porcelain"], ["branch", "-v"])
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_for_release(tmp_path_factory.mktemp("release") / "tree")


def test_a_dry_run_makes_everything_and_changes_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")  # it may name a key
    before = state_of(tree)
    said = call(*RELEASE, "--dry-run", directory=tree)
    assert state_of(tree) == before
    assert "there is no commit and no tag" in said
    assert f"a release commits 'Release {VERSION}' here, and tags it v{VERSION}" in said
    assert "SHA256SUMS and the tag are UNSIGNED" in said
    (wheel,) = (tree / OUT).glob("*.whl")
    names = [f"vicinal-{VERSION}.cdx.json", f"vicinal-{VERSION}.tar.gz", wheel.name, "NOTES.md"]
    assert {each.name for each in (tree / OUT).iterdir()} == {*names, "SHA256SUMS"}
    checked = call("sha256sum", "--check", "SHA256SUMS", directory=tree / OUT)
    assert sorted(checked.splitlines()) == sorted(f"{name}: OK" for name in names)
    assert "### Upgrading" in (tree / OUT / "NOTES.md").read_text()


def test_the_list_of_components_names_what_the_wheel_installs(tree: Path) -> None:
    bill = json.loads((tree / OUT / f"vicinal-{VERSION}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "vicinal"
    components = {each["name"].lower(): each for each in bill["components"]}
    assert {"typer", "rich", "psutil", "ruamel.yaml", "cryptography"} <= set(components)
    assert not {"pip", "numpy", "pytest", "cyclonedx-bom"} & set(components)
    assert all(each["version"] for each in components.values())


def test_a_release_is_signed_committed_and_tagged(tree: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key, directory=tree)
    call("git", "config", "gpg.format", "ssh", directory=tree)
    call("git", "config", "user.signingkey", key, directory=tree)
    before = call("git", "rev-parse", "HEAD", directory=tree)
    said = call(*RELEASE, directory=tree)
    assert f"committed and tagged v{VERSION}; publish it: git push" in said
    assert call("git", "rev-parse", "HEAD~", directory=tree) == before
    assert call("git", "describe", directory=tree) == f"v{VERSION}\n"
    changed = call("git", "diff", "--name-only", "HEAD~", directory=tree).split()
    assert changed == ["CHANGELOG.md", "src/vicinal/__init__.py"]
    (tmp_path / "signers").write_text(f"us {key.with_suffix('.pub').read_text()}")
    signers = f"gpg.ssh.allowedSignersFile={tmp_path / 'signers'}"
    call("git", "-c", signers, "verify-tag", f"v{VERSION}", directory=tree)
    verify = f"ssh-keygen -Y verify -f {tmp_path}/signers -I us -n file -s SHA256SUMS.sig"
    call("sh", "-c", f"{verify} <SHA256SUMS", directory=tree / OUT)
    assert call("git", "status", "--porcelain", directory=tree) == ""
