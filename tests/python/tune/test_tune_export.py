"""`vicinal tune export`: the tools that an export is meant for run what it writes.

A shell and ethtool run the scripts, on the kernel's own interfaces (test_tune_killed.py) and on a
stand-in for cards that the tests do not have. TuneD's own code, from Debian's package, loads the
profile. A shell and the launchers of both MPI libraries read the variables.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_client import CommandServer
from command_support import CHECKOUT, error_line
from test_tune_killed import apart
from unpacked_packages import unpacked

from vicinal.base.errors import VicinalError
from vicinal.labs.tune import export_command
from vicinal.labs.tune.export_command import Format, active_profiles, read_found

Done = subprocess.CompletedProcess[str]

FAKE_ETHTOOL = """#!/bin/sh
# A card whose driver has rx-usecs and adaptive-rx: it refuses 99, and ignores 7.
# While it takes 13, somebody ends the script.
cd "$(dirname "$0")" || exit 1
case $1 in
-c)
	printf 'Coalesce parameters for %s:\\nAdaptive RX: %s  TX: n/a\\n' "$2" "$(cat adaptive-rx)"
	printf 'rx-usecs:\\t%s\\nrx-frames:\\tn/a\\n' "$(cat rx-usecs)"
	printf 'rx-frame-low:\\t%s\\n\\nCQE mode RX: n/a  TX: n/a\\n' "$(cat low)"
	;;
-C)
	[ "$3" != rx-frames-low ] || set -- "$1" "$2" low "$4"
	case $4 in
	99) echo 'netlink error: Invalid argument' >&2; exit 1 ;;
	7) ;;
	13) echo 13 >"$3"; kill -s TERM "$PPID" ;;
	*) echo "$4" >"$3" ;;
	esac
	;;
esac
"""


class Exporter:
    """The command in the network namespace of test_tune_killed.py."""

    def __init__(self, server: CommandServer, directory: Path) -> None:
        self._server = server
        self.directory = directory
        self.to = directory / "out"

    def __call__(self, *arguments: str, to: Path | None = None) -> Done:
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "src"), "COLUMNS": "200"}
        return self._server.run(
            ["tune", "export", "--to", str(to or self.to), *arguments], self.directory, environment
        )

    def written(self, *values: str, options: tuple[str, ...] = ()) -> Path:
        """The directory that an export of a setting wrote."""
        settings = [word for value in values for word in ("--setting", value)]
        done = self(*settings, *options)
        assert done.returncode == 0, done.stderr
        return self.to


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    found = CommandServer(tmp_path_factory.mktemp("server"), lambda command: [*apart(), *command])
    yield found
    found.close()


@pytest.fixture
def export(server: CommandServer, tmp_path: Path) -> Exporter:
    return Exporter(server, tmp_path)


def run(*command: object, **variables: str) -> Done:
    return subprocess.run(
        [str(each) for each in command],
        env=os.environ | variables,
        # mpiexec forwards its standard input, and ends with SIGPIPE if no rank reads the input any
        # more.
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def in_network(script: str, *arguments: object) -> Done:
    """Run shell commands in a new network namespace of the same kind."""
    return run(*apart(), "sh", "-c", script, "sh", *arguments)


def test_scripts_set_and_restore_what_the_kernel_has(export: Exporter) -> None:
    out = export.written("tap0/rx-frames=40", "va/channels-rx=1") / "ethtool"
    read = "ethtool -l va | tail -4 | head -1; ethtool -c tap0 | grep '^rx-frames:'"
    done = in_network(
        f'"$1/set.sh" && {read} && "$1/set.sh" verify && "$1/set.sh" && '
        f'"$1/restore.sh" && {read} && ! "$1/set.sh" verify',
        out,
    )
    assert done.returncode == 0, done.stderr
    assert [line.replace("\t", " ") for line in done.stdout.splitlines()] == [
        "va rx is 1, and was 2",
        "tap0 rx-frames is 40, and was 0",
        "RX:  1",
        "rx-frames: 40",
        "va rx is 1 already",
        "tap0 rx-frames is 40 already",
        "va rx is 2, and was 1",
        "tap0 rx-frames is 0, and was 40",
        "RX:  2",
        "rx-frames: 0",
    ]
    assert done.stderr.splitlines() == [
        "set.sh: error: va rx is 2, and not 1",
        "set.sh: error: tap0 rx-frames is 0, and not 40",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tap0/rx-frames=88", "tap0 accepts rx-frames 88 without an error, but has 64"),
        ("tap0/rx-usecs=8", "the driver of tap0 has no rx-usecs"),
        ("tap9/rx-usecs=8", "rx-usecs of tap9 cannot be read"),
        ("lo/irq-affinity=0", "the driver of lo has no irq-affinity"),
    ],
)
def test_what_a_driver_refuses_leaves_nothing(export: Exporter, value: str, message: str) -> None:
    name = value.partition("=")[0]
    done = export("--setting", value, "--setting", "va/channels-rx=1")
    assert done.returncode == 0, done.stderr
    # A value that cannot be read on this host cannot be restored.
    restorable = name == "tap0/rx-frames"
    assert (export.to / "ethtool/restore.sh").exists() == restorable
    assert ("restore.sh is not written" in done.stderr) != restorable
    tried = in_network(
        '"$1/ethtool/set.sh"; status=$?; ethtool -l va | tail -4; exit $status', export.to
    )
    assert tried.returncode == 1
    assert f"set.sh: error: {message}" in tried.stderr
    assert tried.stdout.endswith("RX:\t\t2\nTX:\t\t2\nOther:\t\tn/a\nCombined:\tn/a\n")


def test_scripts_are_clean(export: Exporter) -> None:
    out = export.written(
        *("tap0/rx-frames=40", "eth1/adaptive-tx=on", "eth1/channels-combined=2"),
        *("eth1/irq-affinity=0 / 1", "mlx5_0/adaptive-moderation=off"),
    )
    scripts = [*out.rglob("*.sh")]
    assert len(scripts) == 2  # no value of eth1 can be read here
    checked = run("shellcheck", *scripts)
    assert checked.returncode == 0, checked.stdout
    assert all(os.access(script, os.X_OK) for script in scripts)


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The stand-in for ethtool, and its state."""
    directory = tmp_path / "card"
    directory.mkdir()
    (directory / "ethtool").write_text(FAKE_ETHTOOL)
    (directory / "ethtool").chmod(0o755)
    for part, value in {"rx-usecs": "3", "adaptive-rx": "on", "low": "1"}.items():
        (directory / part).write_text(f"{value}\n")
    return directory


def values_of(card: Path) -> list[str]:
    return [(card / part).read_text().strip() for part in ("rx-usecs", "adaptive-rx", "low")]


def test_a_script_knows_how_ethtool_calls_things(export: Exporter, card: Path) -> None:
    out = export.written("eth1/rx-usecs=10", "eth1/adaptive-rx=off", "eth1/rx-frame-low=5")
    search = f"{card}:{os.environ['PATH']}"
    done = run(out / "ethtool/set.sh", PATH=search)
    assert done.returncode == 0, done.stderr
    assert values_of(card) == ["10", "off", "5"]


@pytest.mark.parametrize(
    ("usecs", "message"),
    [
        ("99", "eth1 refuses rx-usecs 99"),
        ("7", "eth1 accepts rx-usecs 7 without an error, but has 3"),
    ],
)
def test_a_script_sets_all_or_nothing(
    export: Exporter, card: Path, usecs: str, message: str
) -> None:
    out = export.written("eth1/adaptive-rx=off", "eth1/rx-frame-low=5", f"eth1/rx-usecs={usecs}")
    done = run(out / "ethtool/set.sh", PATH=f"{card}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"set.sh: error: {message}"
    assert "eth1 adaptive-rx is on, and was off" in done.stdout
    assert values_of(card) == ["3", "on", "1"]


def test_a_script_that_is_ended_leaves_nothing(export: Exporter, card: Path) -> None:
    out = export.written("eth1/adaptive-rx=off", "eth1/rx-usecs=13", "eth1/rx-frame-low=5")
    search = f"{card}:{os.environ['PATH']}"
    done = run(out / "ethtool/set.sh", PATH=search)
    assert done.returncode == 1, done
    assert "eth1 rx-usecs is 3, and was 13" in done.stdout
    assert values_of(card) == ["3", "on", "1"]


def test_a_script_names_the_program_it_needs(export: Exporter, card: Path) -> None:
    out = export.written("mlx5_0/adaptive-moderation=off")
    tools = card / "tools"
    tools.mkdir()
    for tool in ("sh", "sed", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    text = (out / "ethtool/set.sh").read_text().replace("$PATH:/usr/sbin:/sbin", str(tools))
    script = card / "set.sh"
    script.write_text(text)
    assert run("sh", script).stderr == "set.sh: error: there is no program rdma: install it\n"


@pytest.fixture(scope="module")
def tuned() -> Path:
    """TuneD's package, unpacked; scripts/setup downloads it."""
    return unpacked("tuned")


def by_tuned(tuned: Path, profiles: Path, name: str) -> Any:
    inside = shlex.join([sys.executable, str(Path(__file__).with_name("tuned_inside.py"))])
    own = ["unshare", "-nm"] if os.geteuid() == 0 else ["unshare", "-rnm"]
    done = run(
        *own,
        *apart()[len(own) :],
        *("sh", "-ec", f'mount -t tmpfs tmpfs /run; exec {inside} "$@"', "sh"),
        *(tuned, profiles, name),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_tuned_starts_verifies_and_stops_it(export: Exporter, tuned: Path) -> None:
    options = ("--name", "mine", "--include", "network-latency", "--format", "tuned")
    out = export.written("tap0/rx-frames=40", "va/channels-rx=1", options=options)
    found = by_tuned(tuned, out / "tuned", "mine")
    assert "sysctl" in found["units"]  # from the included profile
    assert (found["before"], found["started"], found["stopped"]) == (
        ["2", "0"],
        ["1", "40"],
        ["2", "0"],
    )
    assert found["verified"] is True
    assert found["complaints"] == []


def test_the_profile_adds_to_the_active_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = tmp_path / "active_profile"
    active.write_text("throughput-performance vicinal\n")  # its own name, left by an earlier export
    monkeypatch.setattr(export_command, "active_profiles", lambda: active_profiles(active))
    export_command.export(tmp_path, values=["va/channels-rx=1"], form=Format.TUNED)
    text = (tmp_path / "tuned/vicinal/tuned.conf").read_text()
    assert "\ninclude=throughput-performance\n" in text
    assert active_profiles(tmp_path / "none") == []


def test_tuned_hears_what_cannot_be_set(export: Exporter, tuned: Path) -> None:
    out = export.written("tap0/rx-frames=88", "va/channels-rx=1")
    found = by_tuned(tuned, out / "tuned", "vicinal")
    assert found["started"] == found["stopped"] == ["2", "0"]
    assert found["verified"] is False
    assert "but has 64" in " ".join(found["complaints"])


def test_its_net_plugin_reads_what_is_left_to_it(export: Exporter, tuned: Path) -> None:
    out = export.written(
        *("eth1/rx-usecs=10", "eth1/rx-frame-low=2", "eth1/cqe-mode-rx=off", "va/channels-rx=1"),
        "eth2/adaptive-rx=on",
        options=("--net-plugin",),
    )
    script = (out / "tuned/vicinal/script.sh").read_text()
    assert "coalescing eth1 cqe-mode-rx off" in script
    assert "rx-usecs" not in script.partition("settings() {")[2].partition("}")[0]
    found = by_tuned(tuned, out / "tuned", "vicinal")
    assert found["net"] == {
        "eth1": {"rx-usecs": "10", "rx-frames-low": "2"},
        "eth2": {"adaptive-rx": "on"},
    }


def test_shells_and_launchers_read_the_variables(export: Exporter) -> None:
    values = ("VICINAL_PROGRESS=block", "UCX_RNDV_THRESH=16384", "MV2_SRQ_LIMIT=unset")
    out = export.written(*values) / "environment"
    assert not (export.to / "tuned").exists()
    show = 'echo "$VICINAL_PROGRESS $UCX_RNDV_THRESH ${MV2_SRQ_LIMIT-none}"'
    for shell in ("dash", "bash"):
        done = run(
            shell, "-ec", f'. "$1"; {show}', shell, out / "environment.sh", MV2_SRQ_LIMIT="9"
        )
        assert done.stdout == "block 16384 none\n", done.stderr
    lines = [line for line in (out / "environment.conf").read_text().splitlines() if line[0] != "#"]
    assert lines == ["VICINAL_PROGRESS=block", "UCX_RNDV_THRESH=16384"]
    mpi = CHECKOUT / "build/mpi"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    arguments = (out / "mpich.arguments").read_text().split()
    files = {"OMPI_MCA_mca_base_param_files": str(out / "openmpi-mca-params.conf"), **root}
    for done in (
        run(mpi / "mpich/bin/mpiexec", *arguments, "-n", "1", "sh", "-c", show),
        run(
            *(mpi / "openmpi/bin/mpirun", "--tune", out / "openmpi.arguments"),
            *("-n", "1", "sh", "-c", show),
            **root,
        ),
        run(mpi / "openmpi/bin/mpirun", "-n", "1", "sh", "-c", show, **files),
    ):
        assert done.stdout.startswith("block 16384"), done.stderr


def result(directory: Path, **changes: Any) -> str:
    """The folder of a search's result."""
    directory.mkdir(exist_ok=True)
    present, better = {"tap0/rx-frames": 0}, {"tap0/rx-frames": 40, "VICINAL_PROGRESS": "poll"}
    found = {
        "schema": 1,
        "name": "cable",
        "present": present | {"VICINAL_PROGRESS": "auto"},
        "phases": [
            {"phase": "small", "setting": better, "outcome": "a better setting"},
            {"phase": "bulk", "setting": present | {"VICINAL_PROGRESS": "auto"}},
        ],
        "common": better,
    }
    (directory / "manifest.json").write_text('{"schema": 1}')
    (directory / "result.json").write_text(json.dumps(found | changes))
    return str(directory)


def test_a_search_is_exported(export: Exporter, tmp_path: Path) -> None:
    folder = result(tmp_path / "found")
    done = export(folder)
    assert done.returncode == 0, done.stderr
    assert "coalescing tap0 rx-frames 40\n" in (export.to / "ethtool/set.sh").read_text()
    assert "coalescing tap0 rx-frames 0\n" in (export.to / "ethtool/restore.sh").read_text()
    assert "export VICINAL_PROGRESS=poll" in (export.to / "environment/environment.sh").read_text()
    again = error_line(export(folder))
    assert "exists already: name another directory, or use --force" in again
    assert export(folder, "--force").returncode == 0
    # The export writes nothing if one of its files already exists.
    other = tmp_path / "other"
    (other / "environment").mkdir(parents=True)
    (other / "environment/environment.sh").write_text("mine\n")
    assert "exists already" in error_line(export(folder, to=other))
    assert [path.name for path in other.rglob("*") if path.is_file()] == ["environment.sh"]


def test_a_phase_has_a_setting_of_its_own(tmp_path: Path) -> None:
    folder = Path(result(tmp_path, common=None))
    with pytest.raises(VicinalError, match=r"choose one with --phase: small, bulk"):
        read_found(folder, None)
    assert read_found(folder, "small").setting["tap0/rx-frames"] == 40
    with pytest.raises(
        VicinalError, match=r"has no better setting than the present one for 'bulk'"
    ):
        read_found(folder, "bulk")
    with pytest.raises(VicinalError, match=r"has no phase 'none': name one of small, bulk"):
        read_found(folder, "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "export needs exactly one setting"),
        (("--setting", "tap0/frames=1"), "there is no knob 'tap0/frames'"),
        (("--setting", "LD_PRELOAD=/tmp/x.so"), "there is no knob 'LD_PRELOAD'"),
        (("--setting", "e;reboot/rx-usecs=1"), "'e;reboot' cannot be the name of a device"),
        (("--setting", "-e/rx-usecs=1"), "'-e' cannot be the name of a device"),
        (("--setting", "eth0\n/rx-usecs=1"), "cannot be the name of a device"),
        (("--setting", "eth0/rx-usecs=$(id)"), "eth0/rx-usecs cannot be '$(id)'"),
        (("--setting", "eth0/adaptive-rx=1"), "eth0/adaptive-rx cannot be 1"),
        (("--setting", "eth0/irq-affinity=0;id"), "eth0/irq-affinity cannot be '0;id'"),
        (("--setting", "VICINAL_PROGRESS=$(id)"), "VICINAL_PROGRESS cannot be '$(id)'"),
        (("--setting", "VICINAL_PROGRESS=a b"), "VICINAL_PROGRESS cannot be 'a b'"),
        (("--setting", "tap0/rx-frames=1", "--name", "../x"), "'../x' cannot be a TuneD profile"),
        (("--setting", "tap0/rx-frames=1", "--include", "a b"), "'a b' cannot be a TuneD profile"),
        (("--setting", "tap0/rx-frames=1", "--include", "vicinal"), "cannot include itself"),
        (("--setting", "tap0/rx-frames=1", "--phase", "x"), "--setting has no phases"),
        (("--setting", "tap0/rx-frames=1", "--format", "environment"), "no variables of jobs"),
        (("--setting", "MV2_SRQ_LIMIT=30", "--format", "tuned"), "no knobs of a host"),
        (("/nonexistent",), "/nonexistent/manifest.json cannot be read (no such file or direct"),
    ],
)
def test_what_cannot_be_exported_is_said(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    app = typer.Typer()
    app.command()(export_command.export)
    with pytest.raises(VicinalError) as error:
        typer.main.get_command(app).main(
            ["--to", str(tmp_path / "out"), *arguments], standalone_mode=False
        )
    assert message in str(error.value).replace("\\n", "\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', '{"schema": 1, "phases": [{}]}'])
def test_a_result_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": 1}')
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(VicinalError, match=r"has no result of a search|is damaged"):
        read_found(tmp_path, None)
