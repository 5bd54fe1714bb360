"""The privileged helper: requests that it accepts and refuses, and how users reach it.

The helper runs as its own process. If it has to change something, it runs in a user and mount
namespace in which this user is root and /sys is a fake (fake_cards.py).
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fake_cards import FakeHost, igb

from vicinal.base.errors import VicinalError
from vicinal.host.vf import helper
from vicinal.host.vf.privileged import service
from vicinal.host.vf.privileged.requests import PROTOCOL
from vicinal.host.vf.privileged.service import perform
from vicinal.host.vf.privileged.system import RefusedError

FIRST = "0000:01:08.0"
ONE = {"vf": FIRST, "owner": "demo"}
GIVEN = {"vf": FIRST, "fresh": True, "settings": {}, "binding": ""}
NOBODY = 65534


def request(operation: str, **fields: object) -> dict[str, object]:
    return {"protocol": PROTOCOL, "operation": operation, **fields}


def assignment(**changed: object) -> dict[str, object]:
    """The fields of a request that assigns FIRST to `demo`."""
    return {"vfs": [{**GIVEN, **changed}], "owner": "demo"}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        "assign",
        {},
        request("assign"),
        request("unlink", vf=FIRST, owner="demo"),
        request("assign", **assignment(), path="/etc/passwd"),
        request("assign", **assignment(path="/etc/passwd")),
        request("assign", **assignment(vf="../../../etc")),
        request("assign", **assignment(vf="0000:01:08.0\n")),
        request("assign", vfs=[GIVEN], owner="../x"),
        request("assign", vfs=[GIVEN], owner=["demo"]),
        request("assign", vfs=[], owner="demo"),
        request("assign", vfs=GIVEN, owner="demo"),
        request("assign", vfs=[FIRST], owner="demo"),
        request("assign", vfs=[GIVEN, GIVEN], owner="demo"),
        request("assign", vfs=[GIVEN, {**GIVEN, "vf": "../x"}], owner="demo"),
        request("release", vfs=FIRST, owner="demo"),
        request("release", vfs=[[FIRST]], owner="demo"),
        request("count", physical="0000:01:00.0", count=True, owner="demo"),
        request("count", physical="0000:01:00.0", count=-1, owner="demo"),
        request("count", physical="0000:01:00.0", count="2", owner="demo"),
        request("bind", **ONE, binding="uio_pci_generic"),
        request("assign", **assignment(binding="uio_pci_generic")),
        request("assign", **assignment(fresh=1)),
        request("grant", **ONE, user=-1),
        request("grant", **ONE, user="1000"),
        {**request("assign", **assignment()), "protocol": PROTOCOL + 1},
    ],
    ids=str,
)
def test_what_is_not_in_its_vocabulary_is_refused(tmp_path: Path, wrong: object) -> None:
    host = FakeHost(tmp_path, igb())
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "1")
    before = list(host.writes)
    with pytest.raises(RefusedError):
        perform(host, 0, wrong)
    assert (host.writes, host.calls) == (before, [])


@pytest.mark.parametrize(
    "settings",
    [
        {"mac": "52:54:00:aa:bb:01 trust on"},
        {"mac": 5},
        {"vlan": 4095},
        {"spoofchk": "off"},
        {"trust": 1},
        {"state": "up"},
        {"node_guid": "0x0011223344556677"},
        {"netns": "1"},
        {"mac": "52:54:00:aa:bb:01", "port_guid": "00:11:22:33:44:55:66:77"},
    ],
    ids=str,
)
def test_settings_that_it_does_not_know_are_refused(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    host = FakeHost(tmp_path, igb())
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "1")
    perform(host, 0, request("assign", **assignment()))
    before = list(host.writes)
    with pytest.raises(RefusedError):
        perform(host, 0, request("configure", **ONE, settings=settings))
    with pytest.raises(RefusedError):
        perform(host, 0, request("assign", **assignment(fresh=False, settings=settings)))
    assert (host.writes, host.calls) == (before, [])


def test_only_virtual_functions_are_ever_unbound(tmp_path: Path) -> None:
    """Neither a disk's controller nor a card itself is a virtual function."""
    host = FakeHost(tmp_path, igb())
    host.files(host.device("0000:00:1f.2"), **{"class": "0x010601", "driver_override": ""})
    for address in ("0000:01:00.0", "0000:00:1f.2", "0000:0f:00.0"):
        with pytest.raises(RefusedError, match="is no virtual function of this host"):
            perform(host, 0, request("assign", **assignment(vf=address)))
        with pytest.raises(RefusedError, match="is not assigned"):
            perform(host, 0, request("bind", vf=address, owner="demo", binding="vfio-pci"))
    with pytest.raises(RefusedError, match="no network card that can have VFs"):
        perform(host, 0, request("count", physical="0000:00:1f.2", count=0, owner="demo"))
    assert host.writes == []


def test_only_root_grants_a_vf_to_another_user(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, igb())
    perform(host, 1000, request("count", physical="0000:01:00.0", count=1, owner="demo"))
    perform(host, 1000, request("assign", **assignment()))
    writes = len(host.writes)
    with pytest.raises(RefusedError, match="only root grants VFs to others"):
        perform(host, 1000, request("grant", **ONE, user=1001))
    assert (host.writes[writes:], host.given) == ([], [])
    perform(host, 0, request("grant", **ONE, user=1001))
    assert host.given[-1][1] == 1001


def test_a_link_that_names_another_card_s_vf_is_not_believed(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, igb())
    stranger = host.device("0000:00:1f.2")
    host.files(stranger, **{"class": "0x010601"})
    (stranger / "physfn").symlink_to(host.device("0000:01:00.0"))
    with pytest.raises(RefusedError, match="is no virtual function"):
        perform(host, 0, request("assign", **assignment(vf="0000:00:1f.2")))


def test_it_needs_only_the_standard_library() -> None:
    """`python3 -I` has no other path, so an audit has to read only one directory."""
    files = list(helper.SOURCE.glob("*.py"))
    own = {"." + file.stem for file in files}
    imported = {
        name
        for file in files
        for name in re.findall(r"^ *(?:import|from) ([.\w]+)", file.read_text(), re.MULTILINE)
    }
    assert {"json", ".changes"} <= imported
    assert {name for name in imported - own if name not in sys.stdlib_module_names} == {
        "importlib.util",
        "collections.abc",
    }


def test_nothing_beside_it_is_taken_for_a_module_of_python(tmp_path: Path) -> None:
    """Python searches a directory that it runs before the standard library."""
    there = _installed(tmp_path / "helper")
    (there / "json.py").write_text("raise SystemExit('taken')")
    done = subprocess.run(
        [helper.PYTHON, "-I", there], input="[]", capture_output=True, text=True, check=False
    )
    # The test sends an invalid request. The helper starts and refuses it, or refuses an
    # unprivileged user first.
    refused = "another version" if os.geteuid() == 0 else "not run as root"
    assert refused in json.loads(done.stdout)["error"][0], done.stderr


def _installed(directory: Path) -> Path:
    """Copy the helper's files with the command that the error of helper.py suggests."""
    files = shlex.join(map(str, helper.SOURCE.glob("*.py")))
    subprocess.run(["sh", "-c", f"install -D -m 644 -t {directory} {files}"], check=True)
    return directory


def test_as_an_ordinary_user_it_does_nothing() -> None:
    with tempfile.TemporaryDirectory() as directory:  # the user nobody cannot read a checkout
        Path(directory).chmod(0o755)
        done = subprocess.run(
            [helper.PYTHON, "-I", _installed(Path(directory) / "helper")],
            input=json.dumps(request("assign", **assignment())),
            capture_output=True,
            text=True,
            timeout=60,
            user=NOBODY if os.geteuid() == 0 else None,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["error"][0] == "the helper was not run as root"


def test_without_rights_the_error_says_what_an_administrator_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test uses a fake sudo, which refuses as the real one does."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        VicinalError, match="sudo was not found: run the command as root, or install sudo"
    ):
        helper.ask_helper("assign", **assignment())
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n')
    sudo.chmod(0o755)
    with pytest.raises(VicinalError) as refused:
        helper.ask_helper("assign", **assignment())
    said = str(refused.value)
    assert "sudo did not run the helper (sudo: a password is required)" in said
    assert f"install -D -m 644 -t {helper.INSTALLED} {helper.SOURCE}/*.py" in said
    assert f"ALL=(root) NOPASSWD: {helper.PYTHON} -I {helper.INSTALLED}`" in said


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]


def _in_namespace(host: FakeHost, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as root of a namespace whose /sys is the fake host's."""
    records = host.records.parent / "run"
    records.mkdir()
    setup = f'mount --bind "{host.sysfs}" /sys && mount --bind "{records}" /run && '
    return subprocess.run(
        [*NAMESPACE, "sh", "-c", setup + script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def host_with_vfs(tmp_path: Path) -> FakeHost:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system grants no user and mount namespaces")
    host = FakeHost(tmp_path, igb())
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "2")
    return host


def test_the_command_reaches_the_helper(host_with_vfs: FakeHost) -> None:
    """The whole path: the command line, the helper as a process, its records, and the output."""
    calls = [
        ["assign", FIRST, "--owner", "demo"],
        ["list"],
        ["show", FIRST, "--json"],
        ["create", "eth1", "9"],
        ["release", "--owner", "demo"],
        ["release", "--owner", "demo"],
        ["remove", "--owner", "demo"],
    ]
    inside = f"from vicinal.cli import run; print([run(['vf', *c]) for c in {calls}])"
    script = f"exec {shlex.join([sys.executable, '-c', inside])}"
    done = _in_namespace(host_with_vfs, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FIRST} is assigned to demo: igbvf" in done.stdout
    assert "0000:01:00.0 (eth1): ethernet, driver igb, 2 of at most 4 VFs" in done.stdout
    assert '"owner": "demo"' in done.stdout
    assert "vicinal: error: 9 VFs were asked of 0000:01:00.0" in done.stderr
    assert done.stdout.endswith(
        "released all of demo\nnothing was assigned to demo\n"
        "demo has no VFs, created or assigned\n[0, 0, 0, 1, 0, 0, 0]\n"
    )
    text = (host_with_vfs.records.parent / "run/vicinal-vfs/records.json").read_text()
    assert json.loads(text) == {"physical": {}, "vfs": {}}


def test_root_that_came_by_sudo_is_root(host_with_vfs: FakeHost) -> None:
    inside = "from vicinal.host.vf.helper import ask_helper as ask;"
    inside += f"ask('assign', **{assignment()!r})"
    script = f"SUDO_UID=1000 exec {shlex.join([sys.executable, '-c', inside])}"
    done = _in_namespace(host_with_vfs, script)
    assert done.returncode == 0, done.stderr
    text = (host_with_vfs.records.parent / "run/vicinal-vfs/records.json").read_text()
    assert json.loads(text)["vfs"][FIRST]["user"] == 0


def test_the_lock_of_a_helper_that_died_holds_nobody_up(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, igb())
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "1")
    host.records.mkdir()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, os, sys, time;"
            "fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX);"
            "print('held', flush=True); time.sleep(600)",
            str(host.records / "lock"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "_LOCK_SECONDS", 0.2)
            with pytest.raises(RefusedError, match="another `vicinal vf` is changing"):
                perform(host, 0, request("assign", **assignment()))
        holder.kill()
    perform(host, 0, request("assign", **assignment()))


def test_sudo_runs_the_helper_by_the_line_that_is_suggested(tmp_path: Path) -> None:
    """The test uses the real sudo, in a mount namespace with its own /etc/sudoers and helper."""
    if os.geteuid() != 0 or shutil.which("sudo") is None:
        pytest.skip("this needs root, and sudo")
    rule = tmp_path / "sudoers"
    rule.write_text(helper.sudoers_line("nobody") + "\n")
    rule.chmod(0o440)
    host = FakeHost(tmp_path, igb())
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "1")
    directory = helper.INSTALLED.parent
    sudo = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sudo -n"
    run = f"{sudo} {helper.PYTHON} -I {helper.INSTALLED}"
    what = json.dumps(request("assign", **assignment()))
    script = (
        f"mkdir {tmp_path}/run {tmp_path}/bin"
        f" && install -D -m 644 -t {tmp_path}/bin/{helper.INSTALLED.name} {helper.SOURCE}/*.py"
        f" && mount --bind {rule} /etc/sudoers && mount --bind {tmp_path}/run /run"
        f" && mount --bind {host.sysfs} /sys"
        f" && mount -t tmpfs none /usr/local && mkdir -p {directory}"
        f" && mount --bind {tmp_path}/bin {directory}"
        f" && echo '{what}' | {run}"
        f"; {run} extra </dev/null; {sudo} id"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout or "{}") == {"taken": []}, done.stderr
    records = json.loads((tmp_path / "run/vicinal-vfs/records.json").read_text())
    assert records["vfs"][FIRST]["user"] == NOBODY
    assert done.stderr.count("a password is required") == 2, done.stderr
