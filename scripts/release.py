"""`make release VERSION=X.Y.Z`: build, describe, sign and tag a release. See RELEASING.md.

Everything is made in a clone of the commit, below build/releases/X.Y.Z, so that no untracked file
comes into a release. The checkout changes at the very end: it gets the clone's commit and tag. A
dry run leaves that out, and says what it would do.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
CHANGELOG = "CHANGELOG.md"
VERSION_FILE = "src/vicinal/__init__.py"
UPGRADING = "### Upgrading"
NEXT = "## Unreleased\n\n### Upgrading\n\nNothing to do.\n\n"
SUMS = "SHA256SUMS"
KINDS = {"deb": "Debian's packages", "rpm": "the packages for RPM"}
"""Packages of scripts/packages that a release contains."""
BUNDLED = ("requirements/command.txt", "requirements/study.txt")
"""The Python packages inside these packages."""


class ReleaseError(Exception):
    """Why there is no release, and the remedy, in one line."""


@dataclass(frozen=True)
class Key:
    """The key that git signs tags with."""

    name: str  # as in user.signingkey
    ssh: bool


def main() -> int:
    """Run the command. Returns 0 if the release is made, else 1."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("version", help="X.Y.Z")
    parser.add_argument("--dry-run", action="store_true", help="commit and tag nothing here")
    parser.add_argument(
        "--without", default="", metavar="KIND,KIND", help="packages to leave out: deb, rpm"
    )
    options = parser.parse_args()
    try:
        release(TREE, options.version, options.dry_run, kinds_without(options.without))
    except ReleaseError as error:
        print(f"release: error: {error}", file=sys.stderr)
        return 1
    return 0


def kinds_without(words: str) -> list[str]:
    """The kinds of packages that are left after the kinds in a list with commas."""
    left_out = [word for word in words.split(",") if word]
    for word in left_out:
        if word not in KINDS:
            raise ReleaseError(f"'{word}' is no kind of packages: leave out deb, rpm or both")
    return [kind for kind in KINDS if kind not in left_out]


def release(tree: Path, version: str, dry_run: bool, kinds: Sequence[str]) -> None:
    """Make the release of a checkout's commit in build/releases/VERSION, which is emptied first.

    It contains packages of these kinds.
    """
    check_version(version, git(tree, "tag", "--list", "v*").split())
    changes = git(tree, "status", "--porcelain")
    if changes:
        raise ReleaseError(
            f"the tree has changes that are not committed, such as {changes.split()[1]}: "
            "commit them, or put them aside with `git stash --include-untracked`"
        )
    day = datetime.now(UTC).date().isoformat()
    changelog = cut_changelog((tree / CHANGELOG).read_text(), version, day)
    module = set_version((tree / VERSION_FILE).read_text(), version)
    key = signing_key(tree)
    if key is None and not dry_run:
        raise ReleaseError(
            "git has no key to sign with: name one, `git config user.signingkey KEY` (and "
            "`git config gpg.format ssh` for a key of ssh), or make a dry run, DRY_RUN=1"
        )
    check_programs(tree, kinds)
    out = tree / "build/releases" / version
    shutil.rmtree(out, ignore_errors=True)
    clone = out / "clone"
    git(tree, "clone", "--quiet", str(tree), str(clone))
    adopt_settings(tree, clone)
    (clone / CHANGELOG).write_text(changelog)
    (clone / VERSION_FILE).write_text(module)
    git(clone, "commit", "--quiet", "--all", "--allow-empty", "-m", f"Release {version}")
    parts = ", ".join(["the wheel", "the source distribution", *(KINDS[kind] for kind in kinds)])
    log = out / "build.log"
    where = log.relative_to(tree)
    print(f"release: building {version} in a clone: {parts}; the log is {where}", flush=True)
    build(tree, clone, out, version, log)
    packages = build_packages(clone, out, kinds, log)
    list_components(tree, clone, out, version, log)
    if packages:
        list_bundled(tree, clone, out, version, packages, log)
    log.unlink()
    (out / "NOTES.md").write_text(section_of(changelog, version))
    sums = write_sums(out)
    signed = [] if key is None else [sign(sums, key)]
    tag(clone, version, key)
    made = [path.name for path in sorted(out.iterdir()) if path.is_file()]
    if dry_run:
        print("dry run: nothing outside of build has changed: there is no commit and no tag")
        print(f"dry run: a release commits 'Release {version}' here, and tags it v{version}")
        if not signed:
            print(f"dry run: {SUMS} and the tag are UNSIGNED: git has no user.signingkey")
    else:
        take_over(tree, clone, version)
        print(
            f"release: committed and tagged v{version}; publish it: git push origin HEAD v{version}"
        )
    shutil.rmtree(clone)
    print(f"release: {out.relative_to(tree)} has {', '.join(made)}")


def check_version(version: str, tags: list[str]) -> None:
    """Refuse what is no version, or not greater than all versions that were tagged."""
    if not re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", version):
        raise ReleaseError(f"'{version}' is no version: say VERSION=X.Y.Z, such as 0.1.0")
    if f"v{version}" in tags:
        raise ReleaseError(f"v{version} is tagged already: a mistake gets the next version")
    numbers = numbers_of(version)
    for other in tags:
        before = re.fullmatch(r"v(\d+\.\d+\.\d+)", other)
        same_series = before is not None and numbers_of(before[1])[:2] == numbers[:2]
        if before is not None and same_series and numbers_of(before[1]) > numbers:
            raise ReleaseError(f"{version} is older than {other}: choose a greater version")


def numbers_of(version: str) -> tuple[int, ...]:
    """1.10.2 as (1, 10, 2)."""
    return tuple(int(each) for each in version.split("."))


def cut_changelog(text: str, version: str, day: str) -> str:
    """The changelog with the section of the version, and an empty section `Unreleased` above.

    A section of the version that is there already stays as it is.
    """
    if re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE) is None:
        title = f"## {version} - {day}\n"
        text, count = re.subn(r"^## Unreleased\n", NEXT + title, text, count=1, flags=re.MULTILINE)
        if count == 0:
            raise ReleaseError(
                f"{CHANGELOG} has no section 'Unreleased' and none '{version} - YYYY-MM-DD': "
                "describe what changed there"
            )
    section = section_of(text, version)
    notes = re.search(rf"^{UPGRADING}\n+([^#\n].*)", section, re.MULTILINE)
    if notes is None:
        raise ReleaseError(
            f"{CHANGELOG}: the section of {version} has no '{UPGRADING}': say there what users do "
            "when they upgrade, or 'Nothing to do.'"
        )
    if not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError(f"{CHANGELOG}: the section of {version} lists no change: describe them")
    return text


def section_of(text: str, version: str) -> str:
    """The section of a version, with its title."""
    found = re.search(rf"^## {re.escape(version)} - .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0].rstrip() + "\n" if found else ""


def set_version(text: str, version: str) -> str:
    """The package's __init__.py with this version."""
    text, count = re.subn(r'^__version__ = ".*"$', f'__version__ = "{version}"', text, flags=re.M)
    if count != 1:
        raise ReleaseError(f'{VERSION_FILE} has not one line __version__ = "...": write it there')
    return text


def signing_key(tree: Path) -> Key | None:
    """The key of git's settings, or None."""
    name = git(tree, "config", "--default", "", "user.signingkey").strip()
    kind = git(tree, "config", "--default", "openpgp", "gpg.format").strip()
    if name and kind not in ("openpgp", "ssh"):
        raise ReleaseError(
            f"git signs by {kind}, which is not supported: set gpg.format to openpgp or ssh"
        )
    return Key(name, kind == "ssh") if name else None


def adopt_settings(tree: Path, clone: Path) -> None:
    """Give a clone the author and the key that the checkout's own settings name."""
    listed = git(tree, "config", "--null", "--list")
    for entry in listed.split("\0"):
        name, _, value = entry.partition("\n")
        if name.startswith(("user.", "gpg.")):
            git(clone, "config", name, value)


def check_programs(tree: Path, kinds: Sequence[str]) -> None:
    """Refuse to begin without the programs that make the packages of these kinds."""
    for kind in kinds:
        missing = run([tree / "scripts/packages", "--missing", kind], tree).split()
        if missing:
            raise ReleaseError(
                f"programs that make {KINDS[kind]} are missing: apt-get install "
                f"{' '.join(missing)}, or leave {KINDS[kind]} out, WITHOUT={kind}"
            )


def build(tree: Path, clone: Path, out: Path, version: str, log: Path) -> None:
    """Put the wheel and the source distribution into a directory."""
    (clone / "build").mkdir()
    for name in ("venv", "wheel-venv"):
        if (tree / "build" / name).exists():
            (clone / "build" / name).symlink_to(tree / "build" / name)
    run(["make", "man-pages"], clone, log)
    run([clone / "build/venv/bin/python", "-m", "vicinal.labs.study.file.shipped"], clone, log)
    run([clone / "scripts/wheel"], clone, log)
    for path in (clone / "build/dist").iterdir():
        if f"vicinal-{version}" not in path.name:
            raise ReleaseError(f"{path.name} is not of version {version}: see {log}")
        shutil.move(path, out / path.name)


def build_packages(clone: Path, out: Path, kinds: Sequence[str], log: Path) -> list[Path]:
    """Put packages of these kinds into a directory, checked by lintian and rpmlint."""
    packages = []
    for kind in kinds:
        run([clone / "scripts/packages", kind], clone, log)
        for path in sorted((clone / "build/packages" / kind).glob(f"*.{kind}")):
            packages.append(out / path.name)
            shutil.move(path, packages[-1])
    return packages


def tools_of(tree: Path, clone: Path, log: Path) -> Path:
    """The environment with the program that lists components; made if it is missing or old."""
    tools = tree / "build/release-venv"
    pinned = clone / "requirements/release.txt"
    stamp = tools / ".stamp"
    if not stamp.is_file() or stamp.read_text() != pinned.read_text():
        shutil.rmtree(tools, ignore_errors=True)
        run([clone / "build/venv/bin/python", "-m", "venv", tools], clone, log)
        run([tools / "bin/pip", "install", "--require-hashes", "-r", pinned], clone, log)
        stamp.write_text(pinned.read_text())
    return tools


def list_components(tree: Path, clone: Path, out: Path, version: str, log: Path) -> None:
    """Write the wheel's components as they are installed today, in CycloneDX's format."""
    python = clone / "build/venv/bin/python"
    tools = tools_of(tree, clone, log)
    (wheel,) = out.glob("*.whl")
    installed = clone / "build/components"
    run([python, "-m", "venv", "--without-pip", installed], clone, log)
    run([clone / "build/venv/bin/pip", "--python", installed, "install", wheel], clone, log)
    bill = out / f"vicinal-{version}.cdx.json"
    of: list[str | Path] = [
        "--pyproject",
        clone / "pyproject.toml",
        "--output-file",
        bill,
        installed,
    ]
    run([tools / "bin/cyclonedx-py", "environment", "--output-reproducible", *of], clone, log)


def list_bundled(
    tree: Path, clone: Path, out: Path, version: str, packages: Sequence[Path], log: Path
) -> None:
    """Write the packages and the Python packages inside them, in CycloneDX's format."""
    pinned = clone / "build/bundled.txt"
    pinned.write_text("".join((clone / name).read_text() for name in BUNDLED))
    bill = out / f"vicinal-{version}-packages.cdx.json"
    program: list[str | Path] = [tools_of(tree, clone, log) / "bin/cyclonedx-py", "requirements"]
    of: list[str | Path] = [
        "--pyproject",
        clone / "pyproject.toml",
        "--output-file",
        bill,
        pinned,
    ]
    run([*program, "--output-reproducible", *of], clone, log)
    content = with_files(json.loads(bill.read_text()), version, packages)
    bill.write_text(json.dumps(content, indent=2) + "\n")


def with_files(bill: dict[str, Any], version: str, files: Sequence[Path]) -> dict[str, Any]:
    """A list of components in CycloneDX's format, with files and their checksums too."""
    for component in bill["components"]:
        component.pop("description", None)  # the lines of the file, with a hash for each platform
    bill["metadata"]["component"]["version"] = version
    bill["components"] += [
        {
            "type": "file",
            "bom-ref": path.name,
            "name": path.name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": sum_of(path)}],
        }
        for path in files
    ]
    parts = [component["bom-ref"] for component in bill["components"]]
    root = bill["metadata"]["component"]["bom-ref"]
    bill["dependencies"] = [{"ref": root, "dependsOn": parts}, *({"ref": part} for part in parts)]
    return bill


def sum_of(file: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_sums(out: Path) -> Path:
    """Write the checksums of all files in a directory, as sha256sum(1) does."""
    files = sorted(path for path in out.iterdir() if path.is_file())
    lines = [f"{sum_of(path)}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines))
    return out / SUMS


def sign(file: Path, key: Key) -> Path:
    """Write a signature beside a file."""
    if not key.ssh:
        signature = file.with_name(file.name + ".asc")
        command = ["gpg", "--batch", "--yes", "--armor", "--local-user", key.name]
        run([*command, "--detach-sign", "--output", signature, file], file.parent)
        return signature
    literal = key.name.removeprefix("key::")
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as public:
        public.write(f"{literal}\n")
        public.flush()
        path = public.name if literal.startswith(("ssh-", "ecdsa-", "sk-")) else key.name
        signature = file.with_name(file.name + ".sig")
        signature.unlink(missing_ok=True)
        identity = Path(path).expanduser()
        run(["ssh-keygen", "-Y", "sign", "-f", identity, "-n", "file", file], file.parent)
    return signature


def tag(clone: Path, version: str, key: Key | None) -> None:
    """Tag the clone's commit, with a signature if there is a key."""
    how = "--annotate" if key is None else "--sign"
    git(clone, "tag", how, f"v{version}", "-m", f"Vicinal {version}")


def take_over(tree: Path, clone: Path, version: str) -> None:
    """Bring the clone's commit and tag into the checkout, if that has not moved meanwhile."""
    if git(clone, "rev-parse", "HEAD~").strip() != git(tree, "rev-parse", "HEAD").strip():
        raise ReleaseError("the checkout got other commits meanwhile: release again")
    git(
        tree,
        "fetch",
        "--quiet",
        "--no-tags",
        str(clone),
        "HEAD",
        f"refs/tags/v{version}:refs/tags/v{version}",
    )
    git(tree, "merge", "--quiet", "--ff-only", f"v{version}^{{commit}}")


def git(tree: Path, *arguments: str) -> str:
    """What a command of git prints."""
    return run(["git", *arguments], tree)


def run(command: Sequence[str | Path], directory: Path, log: Path | None = None) -> str:
    """Run a command. With a log, its output goes there instead of being returned."""
    words = [str(each) for each in command]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    # The environment of the checkout has its package; a clone's commands import the clone's.
    variables["PYTHONPATH"] = str(directory / "src")
    try:
        done = subprocess.run(
            words, cwd=directory, env=variables, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ReleaseError(f"there is no program {words[0]}: install it") from None
    if log is not None:
        with log.open("a") as file:
            file.write(f"== {' '.join(words)}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        why = lines[-1] if lines else f"exit status {done.returncode}"
        where = f": {log} has all lines" if log is not None else ""
        raise ReleaseError(
            f"`{Path(words[0]).name} {words[1] if words[1:] else ''}` failed: {why}{where}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
