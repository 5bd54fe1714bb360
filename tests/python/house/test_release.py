"""What `make release` refuses, what it writes into the changelog, and its signatures.

tests/packages/test_whole_release.py makes whole releases.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import release
from release import Key, ReleaseError

CHANGELOG = """# Changelog

## Unreleased

### Upgrading

Install the helper again.

### Added

- A command.

## 0.1.0 - 2026-01-02

- The first.
"""
GIT = ["git", "-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]


def call(*command: object, directory: Path) -> str:
    words = [str(each) for each in command]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the two files that a release changes, and no settings of the user's."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    directory = tmp_path / "tree"
    (directory / "src/vicinal").mkdir(parents=True)
    (directory / release.VERSION_FILE).write_text('"""Vicinal."""\n\n__version__ = "0.2.0.dev0"\n')
    (directory / release.CHANGELOG).write_text(CHANGELOG)
    (directory / ".gitignore").write_text("build\n")
    call("git", "init", "--quiet", directory=directory)
    call("git", "add", "--all", directory=directory)
    call(*GIT, "commit", "--quiet", "-m", "Begin", directory=directory)
    return directory


@pytest.fixture
def ssh_key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "somebody", "-f", path]
    call(*command, directory=tmp_path)
    return path


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0.dev0", "01.0.0", "1.0.0\n"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"is no version: say VERSION=X\.Y\.Z"):
        release.check_version(version, [])


def test_versions_grow_within_their_series() -> None:
    release.check_version("0.10.0", ["v0.9.1", "v1.0.0", "vendor"])
    with pytest.raises(ReleaseError, match="tagged already"):
        release.check_version("0.9.1", ["v0.9.1"])
    with pytest.raises(ReleaseError, match=r"0\.9\.2 is older than v0\.9\.10"):
        release.check_version("0.9.2", ["v0.9.1", "v0.9.10"])


def test_the_section_of_the_next_version_is_cut() -> None:
    cut = release.cut_changelog(CHANGELOG, "0.2.0", "2026-03-04")
    titles = [line for line in cut.splitlines() if line.startswith("## ")]
    assert titles == ["## Unreleased", "## 0.2.0 - 2026-03-04", "## 0.1.0 - 2026-01-02"]
    section = release.section_of(cut, "0.2.0")
    assert section.startswith("## 0.2.0 - 2026-03-04\n\n### Upgrading\n\nInstall the helper again.")
    assert section.endswith("- A command.\n")
    assert release.cut_changelog(cut, "0.2.0", "2026-05-06") == cut


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("## Unreleased\n", "", "no section 'Unreleased' and none '0.2.0 - YYYY-MM-DD'"),
        ("### Upgrading\n\nInstall the helper again.\n\n", "", "no '### Upgrading': say there"),
        ("Install the helper again.\n\n", "", "no '### Upgrading': say there"),
        ("- A command.\n", "", "lists no change"),
    ],
)
def test_a_changelog_that_lacks_something(old: str, new: str, says: str) -> None:
    assert old in CHANGELOG
    with pytest.raises(ReleaseError, match=says):
        release.cut_changelog(CHANGELOG.replace(old, new, 1), "0.2.0", "2026-03-04")


def test_this_changelog_and_version_can_be_released() -> None:
    changelog = (release.TREE / release.CHANGELOG).read_text()
    release.cut_changelog(changelog, "9.9.9", "2026-03-04")
    module = release.set_version((release.TREE / release.VERSION_FILE).read_text(), "9.9.9")
    assert '__version__ = "9.9.9"' in module


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    (tree / "new").write_text("")
    with pytest.raises(ReleaseError, match="changes that are not committed, such as new: commit"):
        release.release(tree, "0.2.0", dry_run=True, kinds=())


def test_without_a_key_only_a_dry_run_is_made(tree: Path) -> None:
    with pytest.raises(ReleaseError, match="git has no key to sign with: name one"):
        release.release(tree, "0.2.0", dry_run=False, kinds=())
    assert not (tree / "build").exists()
    call("git", "config", "gpg.format", "x509", directory=tree)
    call("git", "config", "user.signingkey", "1234", directory=tree)
    with pytest.raises(ReleaseError, match="git signs by x509, which is not supported"):
        release.release(tree, "0.2.0", dry_run=True, kinds=())


def test_kinds_of_packages_are_left_out_by_name() -> None:
    assert release.kinds_without("") == ["deb", "rpm"]
    assert release.kinds_without("rpm,") == ["deb"]
    assert release.kinds_without("rpm,deb") == []
    with pytest.raises(ReleaseError, match="'images' is no kind of packages: leave out deb, rpm"):
        release.kinds_without("deb,images")


@pytest.mark.parametrize(
    ("kind", "program", "says"),
    [
        (
            "deb",
            "dpkg-buildpackage",
            "Debian's packages are missing: apt-get install dpkg-dev, or ",
        ),
        ("rpm", "rpmbuild", "the packages for RPM are missing: apt-get install rpm, or "),
    ],
)
def test_without_the_programs_for_packages_nothing_is_begun(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, program: str, says: str
) -> None:
    """The only message names the programs, and the switch that does without them."""
    (tree / "scripts").mkdir()
    shutil.copy(release.TREE / "scripts/packages", tree / "scripts/packages")
    call("git", "add", "--all", directory=tree)
    call(*GIT, "commit", "--quiet", "-m", "Packages", directory=tree)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "git", "sed", "env"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for name in ("dh", "dpkg-buildpackage", "fakeroot", "lintian", "rpmbuild", "rpmlint"):
        if name != program:
            (programs / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ReleaseError, match=says) as caught:
        release.release(tree, "0.2.0", dry_run=True, kinds=("deb", "rpm"))
    assert str(caught.value).endswith(f" out, WITHOUT={kind}")
    assert "\n" not in str(caught.value)
    assert not (tree / "build/releases").exists()
    other = "rpm" if kind == "deb" else "deb"
    release.check_programs(tree, [other])


def test_packages_come_into_the_release_and_its_list_of_components(tmp_path: Path) -> None:
    clone, out = tmp_path / "clone", tmp_path / "out"
    (clone / "scripts").mkdir(parents=True)
    out.mkdir()
    packages = clone / "scripts/packages"
    packages.write_text(
        "#!/bin/sh -e\nd=build/packages/$1\nmkdir -p $d\necho $1 | tee $d/a.$1 $d/log\n"
    )
    packages.chmod(0o755)
    made = release.build_packages(clone, out, ["deb", "rpm"], out / "build.log")
    assert made == [out / "a.deb", out / "a.rpm"]
    assert {path.name for path in out.iterdir()} == {"a.deb", "a.rpm", "build.log"}
    library = {"type": "library", "bom-ref": "l1", "name": "attrs", "description": "line 1"}
    bill = {"components": [library], "metadata": {"component": {"bom-ref": "root"}}}
    listed = release.with_files(bill, "0.2.0", made)
    assert listed["metadata"]["component"]["version"] == "0.2.0"
    assert [each["name"] for each in listed["components"]] == ["attrs", "a.deb", "a.rpm"]
    sums = {each["name"]: each.get("hashes") for each in listed["components"]}
    (hashed,) = sums["a.deb"]
    assert hashed["content"] == call("sha256sum", "a.deb", directory=out).split()[0]
    assert listed["dependencies"][0] == {"ref": "root", "dependsOn": ["l1", "a.deb", "a.rpm"]}


def test_checksums_are_signed_by_ssh(tmp_path: Path, ssh_key: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "vicinal-0.2.0.tar.gz").write_text("content")
    sums = release.write_sums(out)
    assert "vicinal-0.2.0.tar.gz: OK" in call("sha256sum", "--check", sums.name, directory=out)
    signature = release.sign(sums, Key(str(ssh_key), ssh=True))
    (out / "signers").write_text(f"us {ssh_key.with_suffix('.pub').read_text()}")
    verify = f"ssh-keygen -Y verify -f signers -I us -n file -s {signature.name} <{sums.name}"
    assert "Good" in call("sh", "-c", verify, directory=out)
    sums.write_text("other")
    with pytest.raises(subprocess.CalledProcessError):
        call("sh", "-c", verify, directory=out)


def test_checksums_are_signed_by_gpg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("gpg") is None:
        pytest.skip("there is no gpg")
    with tempfile.TemporaryDirectory() as home:  # its sockets need a short path
        monkeypatch.setenv("GNUPGHOME", home)
        make = ["--passphrase", "", "--quick-generate-key", "us@example.org", "ed25519", "sign"]
        call("gpg", "--quiet", "--batch", *make, "1d", directory=tmp_path)
        (tmp_path / "SHA256SUMS").write_text("content")
        signature = release.sign(tmp_path / "SHA256SUMS", Key("us@example.org", ssh=False))
        assert signature.name == "SHA256SUMS.asc"
        call("gpg", "--quiet", "--verify", signature, "SHA256SUMS", directory=tmp_path)
        call("gpgconf", "--kill", "all", directory=tmp_path)


def test_a_key_that_no_agent_has_is_one_line(
    tmp_path: Path, ssh_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in git's settings, a public key may stand there itself, and an agent signs."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "SHA256SUMS").write_text("content")
    public = ssh_key.with_suffix(".pub").read_text().strip()
    with pytest.raises(ReleaseError, match="`ssh-keygen -Y` failed: ") as caught:
        release.sign(tmp_path / "SHA256SUMS", Key(f"key::{public}", ssh=True))
    assert "\n" not in str(caught.value)


def test_the_checkout_gets_the_signed_tag_of_the_clone(
    tree: Path, tmp_path: Path, ssh_key: Path
) -> None:
    for name, value in (
        ("user.name", "Somebody"),
        ("user.email", "somebody@example.org"),
        ("gpg.format", "ssh"),
        ("user.signingkey", str(ssh_key)),
    ):
        call("git", "config", name, value, directory=tree)
    clone = tmp_path / "clone"
    call("git", "clone", "--quiet", tree, clone, directory=tmp_path)
    release.adopt_settings(tree, clone)
    (clone / release.VERSION_FILE).write_text('__version__ = "0.2.0"\n')
    call("git", "commit", "--quiet", "--all", "-m", "Release 0.2.0", directory=clone)
    release.tag(clone, "0.2.0", release.signing_key(tree))
    release.take_over(tree, clone, "0.2.0")
    assert call("git", "log", "-1", "--format=%s", directory=tree) == "Release 0.2.0"
    assert call("git", "describe", directory=tree) == "v0.2.0"
    assert "BEGIN SSH SIGNATURE" in call("git", "cat-file", "tag", "v0.2.0", directory=tree)
    assert call("git", "status", "--porcelain", directory=tree) == ""


def test_a_checkout_that_moved_is_not_changed(tree: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    call("git", "clone", "--quiet", tree, clone, directory=tmp_path)
    call(*GIT, "commit", "--quiet", "--allow-empty", "-m", "Release", directory=clone)
    call(*GIT, "commit", "--quiet", "--allow-empty", "-m", "Meanwhile", directory=tree)
    with pytest.raises(ReleaseError, match="got other commits meanwhile: release again"):
        release.take_over(tree, clone, "0.2.0")
