"""`vicinal tune` on the kernel's own interfaces in a network namespace.

A tap device accepts rx-frames up to 64, and turns larger values into 64. A veth pair has a number
of queues that can be set.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_client import CommandServer
from command_support import CHECKOUT, error_line
from test_tune_killed import apart

Done = subprocess.CompletedProcess[str]


class Tune:
    """The command in the network namespace, with its own state and root directories."""

    def __init__(self, server: CommandServer, directory: Path) -> None:
        self._server = server
        self.directory = directory
        self.state = directory / "state"
        self.root = directory / "root"

    def __call__(self, command: str, *arguments: str, **variables: str) -> Done:
        options = ["--state", str(self.state)]
        if command in ("apply", "restore"):
            options += ["--root", str(self.root)]
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "src"), "COLUMNS": "200"}
        environment.pop("SSH_CONNECTION", None)
        environment |= variables
        return self._server.run(
            ["tune", command, *options, *arguments], self.directory, environment
        )

    def devices(self, *arguments: str) -> dict[str, Any]:
        shown = self("show", "--json", *arguments)
        assert shown.returncode == 0, shown.stderr
        return {each["name"]: each for each in json.loads(shown.stdout)["devices"]}

    def value(self, name: str) -> Any:
        device = name.partition("/")[0]
        rows = self.devices(device)[device]["knobs"]
        return {row["knob"]: row["value"] for row in rows}[name]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    directory = tmp_path_factory.mktemp("server")
    found = CommandServer(directory, lambda command: [*apart(), *command])
    yield found
    found.close()


@pytest.fixture
def tune(server: CommandServer, tmp_path: Path) -> Iterator[Tune]:
    tune = Tune(server, tmp_path)
    yield tune
    assert tune("restore").returncode == 0


def test_every_interface_is_answered_for(tune: Tune) -> None:
    found = tune.devices()
    assert found["lo"]["knobs"] == []
    assert "no interrupt moderation" in found["lo"]["lacks"]
    (frames,) = (row for row in found["tap0"]["knobs"] if row["knob"] == "tap0/rx-frames")
    assert (frames["value"], frames["unit"], frames["ability"]) == (0, "frames", "not tried")
    assert "rx-usecs" in found["tap0"]["missing"]
    assert [row["knob"] for row in found["va"]["knobs"]] == ["va/channels-rx", "va/channels-tx"]
    assert not tune.state.exists()
    text = tune("show", "lo", "va").stdout
    assert "channels-rx" in text
    assert "MV2_SRQ_LIMIT" not in text
    assert "MV2_SRQ_LIMIT" in tune("show").stdout


def test_what_can_be_set_is_tried_and_left(tune: Tune) -> None:
    rows = {row["knob"]: row for row in tune.devices("tap0", "va", "--probe")["tap0"]["knobs"]}
    frames, queues = rows["tap0/rx-frames"], rows["tap0/channels-combined"]
    assert (frames["ability"], frames["values"]) == ("yes", [1, 2, 4, 8, 16, 32, 64])
    assert frames["why"] == "88 becomes 64; 128 becomes 64"
    assert queues["ability"] == "not supported"
    assert tune.value("tap0/rx-frames") == 0
    assert list(tune.state.iterdir()) == []


def test_a_setting_is_applied_and_restored(tune: Tune) -> None:
    said = tune("apply", "tap0/rx-frames=40", "va/channels-rx=1", "MV2_SRQ_LIMIT=30")
    assert said.stdout.splitlines() == [
        "va/channels-rx is 1, and was 2",
        "tap0/rx-frames is 40, and was 0",
        "export MV2_SRQ_LIMIT=30",
    ]
    assert (tune.value("tap0/rx-frames"), tune.value("va/channels-rx")) == (40, 1)
    assert "tap0/rx-frames was 0 before it was set to 40" in tune("show").stdout
    assert tune("apply", "tap0/rx-frames=40").stdout == "everything is set already\n"
    would = tune("restore", "--dry-run").stdout
    assert would == "tap0/rx-frames would be restored to 0\nva/channels-rx would be restored to 2\n"
    assert tune("restore").returncode == 0
    assert (tune.value("tap0/rx-frames"), tune.value("va/channels-rx")) == (0, 2)
    assert tune("restore").stdout == "nothing was set\n"


def test_another_way_to_the_kernel_sees_the_same(tune: Tune, server: CommandServer) -> None:
    """The check uses the ioctl of older programs instead of netlink."""
    tune("apply", "tap0/rx-frames=40")
    code = (
        "from pyroute2.ethtool.ioctl import IoctlEthtool\n"
        "print(dict(IoctlEthtool('tap0').get_coalesce())['rx_max_coalesced_frames'])"
    )
    enter = ["nsenter", "--target", str(server._process.pid), "--net", "--user"]
    enter += ["--preserve-credentials"]
    if os.geteuid() == 0:
        enter = enter[:4]
    found = subprocess.run(
        [*enter, sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stdout == "40\n", found.stderr


def test_a_driver_that_makes_something_else_of_it_is_refused(tune: Tune) -> None:
    failed = tune("apply", "va/channels-rx=1", "tap0/rx-frames=88")
    assert "the driver changes it to 64: choose another value, such as 64" in error_line(failed)
    assert (tune.value("tap0/rx-frames"), tune.value("va/channels-rx")) == (0, 2)
    assert list(tune.state.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("tap0/rx-usecs=8", "the driver of tap0 has no rx-usecs: use rx-frames"),
        ("lo/rx-usecs=8", "the driver of lo has no interrupt moderation"),
        ("va/channels-rx=9", "va/channels-rx cannot be 9: use a whole number from 0 to 2"),
        ("tap9/rx-usecs=8", "there is no interface 'tap9'"),
        ("tap0/rx-frames", "'tap0/rx-frames' is no setting: write KNOB=VALUE: eth0/rx-usecs=10"),
        ("tap0/frames=1", "there is no knob 'tap0/frames'"),
    ],
)
def test_what_cannot_be_is_one_line(tune: Tune, argument: str, message: str) -> None:
    assert message in error_line(tune("apply", argument))
    assert message in error_line(tune("apply", "--dry-run", argument))


def test_a_dry_run_changes_nothing(tune: Tune) -> None:
    said = tune("apply", "--dry-run", "tap0/rx-frames=40", "va/channels-rx=2").stdout
    assert said == ("tap0/rx-frames would be 40, and is 0\nva/channels-rx is 2 already\n")
    assert not tune.state.exists()
    assert tune.value("tap0/rx-frames") == 0


def test_a_setting_comes_from_a_file(tune: Tune) -> None:
    file = tune.directory / "setting.json"
    file.write_text('{"setting": {"tap0/rx-frames": 32, "UCX_RNDV_THRESH": 4096}}')
    said = tune("apply", "--from", str(file), "va/channels-tx=1").stdout
    assert "tap0/rx-frames is 32" in said
    assert "va/channels-tx is 1" in said
    assert "export UCX_RNDV_THRESH=4096" in said
    for text in ("", "{}", "[]", '{"setting": 3}', '{"setting": {"tap0/rx-frames": true}}'):
        file.write_text(text)
        assert "setting.json" in error_line(tune("apply", "--from", str(file)))
    assert "no setting was given" in error_line(tune("apply"))


def test_the_interface_of_this_session_is_left_alone(tune: Tune, server: CommandServer) -> None:
    inside = ["nsenter", "--target", str(server._process.pid), "--net"]
    if os.geteuid() != 0:
        inside += ["--user", "--preserve-credentials"]
    for command in ("addr add 198.51.100.1/24 dev va", "link set va up", "link set vb up"):
        subprocess.run([*inside, "ip", *command.split()], check=True)
    session = {"SSH_CONNECTION": "198.51.100.2 50022 198.51.100.1 22"}
    try:
        refused = tune("apply", "va/channels-rx=1", **session)
        assert "va/channels-rx is left alone: it carries this session" in error_line(refused)
        shown = tune("show", "va", "--probe", **session).stdout
        assert "left alone" in shown
        allowed = tune("apply", "va/channels-rx=1", "--own-connection", **session)
        assert allowed.returncode == 0, allowed.stderr
        assert tune("restore", **session).returncode == 0
        subprocess.run(
            [*inside, "ip", "route", "add", "default", "via", "198.51.100.2"], check=True
        )
        refused = tune("apply", "va/channels-rx=1")
        assert "it carries the default route" in error_line(refused)
    finally:
        subprocess.run([*inside, "ip", "addr", "flush", "dev", "va"], check=True)


def test_a_unit_applies_it_at_each_start(tune: Tune) -> None:
    said = tune("apply", "--persistent", "tap0/rx-frames=40").stdout
    unit = tune.root / "etc/systemd/system/vicinal-tune.service"
    wanted = tune.root / "etc/systemd/system/multi-user.target.wants/vicinal-tune.service"
    assert f"wrote {unit}" in said
    assert wanted.resolve() == unit
    setting = json.loads((tune.root / "etc/vicinal/tune.json").read_text())
    assert setting == {"setting": {"tap0/rx-frames": 40}}
    text = unit.read_text()
    assert "After=network-pre.target sys-subsystem-net-devices-tap0.device" in text
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit],
            capture_output=True,
            text=True,
            check=False,
        )
        assert unit.name not in checked.stderr, checked.stderr
    # The command of the unit. Its file is where the boot reads it.
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    assert "tune apply --at-boot" in line
    assert line.endswith("--from /etc/vicinal/tune.json")
    tune("restore")
    assert not any(path.is_file() or path.is_symlink() for path in tune.root.rglob("*"))
    assert tune.value("tap0/rx-frames") == 0


def test_a_start_that_it_broke_is_not_broken_again(tune: Tune) -> None:
    tune("apply", "--persistent", "tap0/rx-frames=40")
    wanted = tune.root / "etc/systemd/system/multi-user.target.wants/vicinal-tune.service"
    file = tune.root / "etc/vicinal/tune.json"
    # Simulate a host that went down while an earlier boot applied the setting.
    journal = tune.state / "journal"
    begun = journal.read_text().splitlines()[:2]
    begun[0] = json.dumps({"event": "begin", "kind": "boot", "boot": "earlier"})
    journal.write_text("\n".join(begun) + "\n")
    failed = tune("apply", "--at-boot", "--from", str(file))
    assert "the host went down while this setting was applied" in error_line(failed)
    assert not wanted.is_symlink()
    # The next boot applies nothing; only an administrator's command tries again.
    tried = tune("apply", "--persistent", "--from", str(file))
    assert tried.returncode == 0, tried.stderr
    assert wanted.is_symlink()
    # The journal no longer has the values of that earlier boot.
    tune("apply", "tap0/rx-frames=0")
    assert "tap0/rx-frames was 40, and stays" in tune("restore", "--forget").stdout


def test_without_rights_it_shows_and_sets_nothing(tmp_path: Path) -> None:
    def run(*arguments: str) -> Done:
        without = ["setpriv", "--bounding-set=-net_admin", sys.executable, "-m", "vicinal", "tune"]
        return subprocess.run(
            [*apart(), *without, *arguments, "--state", tmp_path],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )

    shown = run("show", "tap0", "--json", "--probe")
    (device,) = json.loads(shown.stdout)["devices"]
    found = {row["knob"]: (row["value"], row["ability"]) for row in device["knobs"]}
    assert found["tap0/rx-frames"] == (0, "readable only")
    refused = error_line(run("apply", "tap0/rx-frames=4"))
    assert "the driver of tap0 refuses rx-frames 4: operation not permitted: be root" in refused
    assert list(tmp_path.iterdir()) == []


def test_a_signal_sets_it_back(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        """
import signal, sys, time
from pathlib import Path
from vicinal.base.signals import Ended, signals_raise
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.state_directory import sole_command
state = Path(sys.argv[1])
for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)  # whoever runs the tests may ignore them: nohup does
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with signals_raise(), sole_command(state):
        applier = Applier(TunedHost(), state / "journal")
        applier.recover()
        with applier.temporarily() as work:
            work.apply({"tap0/rx-frames": 16})
            print(TunedHost().ethtool.coalescing("tap0")["rx-frames"], flush=True)
            time.sleep(60)
except Ended as ended:
    print(TunedHost().ethtool.coalescing("tap0")["rx-frames"], flush=True)
    sys.exit(ended.status)
"""
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with subprocess.Popen(
            [*apart(), sys.executable, program, tmp_path],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "16\n"
            process.send_signal(number)
            assert process.stdout.readline() == "0\n"
            assert process.wait(60) == 128 + number
        assert not (tmp_path / "journal").exists()


def test_a_signal_waits_though_a_thread_takes_it() -> None:
    """Threads such as those of numpy do not use the main thread's signal mask."""
    program = """
import os, signal, threading, time
from vicinal.base.signals import Ended, signals_raise, signals_wait
signal.signal(signal.SIGINT, signal.default_int_handler)
end = threading.Event()
threading.Thread(target=end.wait, daemon=True).start()
try:
    with signals_raise():
        with signals_wait():
            with signals_wait():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            print("whole")
        print("never said")
except Ended as ended:
    print(ended.number.name)
end.set()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["whole", "SIGINT"], done.stderr


def test_what_a_killed_command_left_is_set_back_by_show(tune: Tune) -> None:
    tune("apply", "tap0/rx-frames=40")
    journal = tune.state / "journal"
    kept = journal.read_text()
    journal.write_text(kept.replace('{"event": "keep"}\n', '{"event": "ke'))
    assert tune.value("tap0/rx-frames") == 0
    assert not journal.exists()


def test_a_command_at_work_keeps_others_away(tune: Tune) -> None:
    tune.state.mkdir()
    lock = os.open(tune.state, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another `vicinal tune`" in error_line(tune("apply", "tap0/rx-frames=8"))
        assert tune("show", "lo").returncode == 0
    finally:
        os.close(lock)
