"""`vicinal opennebula`: Vicinal's files among OpenNebula's scripts, installed, checked, removed.

The files are vmm/vicinal, vnm/vicinal, a probe, and hooks.

The driver has own scripts for the actions that involve a region. For all other actions it links to
the stock driver's scripts. The probe lies among the probes of the stock hypervisor, because
OpenNebula runs every probe there. Hooks lie in the folders of OpenNebula's network drivers, in
vnm/DRIVER/{pre,clean}.d/vicinal. After its own work, a network driver's script runs the files in
the folder of the script's name. The files get the script's own input. If a file fails, the script
fails. Files of others in these folders are never touched.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.files import replaced
from vicinal.base.waiting import told
from vicinal.host.vf.privileged.system import Host
from vicinal.integrations.opennebula.request import LIMITS_FILE, LIMITS_TEMPLATE, read_limits

REMOTES = Path("/var/lib/one/remotes")
"""OpenNebula's scripts on a front-end, which `onehost sync` copies to its hosts."""
CONFIGURATION = Path("/etc/one/oned.conf")
ACTIONS = (
    *("deploy", "cancel", "shutdown", "save", "restore", "migrate", "snapshot_create"),
    "arrive",
)
"""Actions with a script of Vicinal's; the stock driver does all others. The migrate of another host
calls arrive.
"""
NETWORK_ACTIONS = ("pre", "post", "clean", "update_nic")
NAME = "vicinal"

_MARK = "made by `vicinal opennebula install`"
_STOCK = "kvm"
_HALF = re.compile(r"\..+\.part")
"""A file that `install` is writing. A killed `install` may leave it empty."""
_SETTINGS = ("kvmrc",)
"""Older versions of OpenNebula keep these settings among the scripts. Vicinal's scripts read the
stock driver's file.
"""

ONED_CONF = """\
VM_MAD = [
    NAME           = "vicinal",
    SUNSTONE_NAME  = "KVM with shared regions",
    EXECUTABLE     = "one_vmm_exec",
    ARGUMENTS      = "-t 15 -r 0 vicinal -p",
    DEFAULT        = "vmm_exec/vmm_exec_kvm.conf",
    TYPE           = "kvm",
    KEEP_SNAPSHOTS = "yes",
    LIVE_RESIZE    = "yes",
    SUPPORT_SHAREABLE = "yes"
]

VN_MAD_CONF = [
    NAME        = "vicinal",
    BRIDGE_TYPE = "linux"
]
"""
HOOKED_ACTIONS = ("pre", "clean")
_RUNS_HOOKS = re.compile(r"run_hooks|\.d/")
"""Matches a network driver's script that runs hooks. Scripts of before 2019 run none."""


@dataclass(frozen=True)
class Installation:
    """Vicinal's files in one folder of OpenNebula's scripts."""

    remotes: Path
    python: Path
    """The interpreter of Vicinal's scripts; every host must have it at this path."""
    hooks: tuple[str, ...] = ()
    """OpenNebula's network drivers that get hooks. Drivers that already have hooks keep them."""

    @property
    def variant(self) -> Path:
        """Vicinal's VM driver, vmm/vicinal."""
        return self.remotes / "vmm" / NAME

    @property
    def stock(self) -> Path:
        """OpenNebula's KVM driver, vmm/kvm."""
        return self.remotes / "vmm" / _STOCK

    @property
    def network(self) -> Path:
        """Vicinal's network driver, vnm/vicinal."""
        return self.remotes / "vnm" / NAME

    @property
    def probe(self) -> Path:
        """The probe's file."""
        return self.remotes / "im" / f"{_STOCK}-probes.d" / "host" / "system" / NAME

    def install(self) -> list[str]:
        """Create or update all files; returns one line per change.

        Raises VicinalError, before any change, if OpenNebula's scripts are missing or a file of
        others is in the way.
        """
        self._check_stock()
        self._check_ours()
        read_limits(self.remotes / LIMITS_FILE)
        said = []
        self._directory(self.variant)
        self._directory(self.network)
        stale = self._stale()
        for file, wanted in self._wanted().items():
            if _is(file, wanted):
                continue
            self._directory(file.parent)
            self._put(file, wanted)
            said.append(f"made {file}")
        limits = self.remotes / LIMITS_FILE
        if not limits.exists():
            self._directory(limits.parent)
            self._put(limits, LIMITS_TEMPLATE, 0o644)
            said.append(f"made {limits}")
        for file in stale:  # last: stale files stay usable until their replacements exist
            file.unlink()
            said.append(f"removed {file}")
        return said

    def faults(self) -> Iterator[str]:
        """Differences from what install() writes, one line each.

        Raises VicinalError if OpenNebula's scripts are missing or a file of others is in the way.
        """
        self._check_stock()
        self._check_ours()
        for directory in (self.variant, self.network):
            if not directory.is_dir():
                yield f"{directory} is missing"
                return
        for file, wanted in self._wanted().items():
            if not _is(file, wanted):
                yield f"{file} {'has other contents' if os.path.lexists(file) else 'is missing'}"
        for file in self._stale():
            yield f"{file} belongs to a script that OpenNebula no longer has"
        read_limits(self.remotes / LIMITS_FILE)

    def remove(self) -> list[str]:
        """Remove Vicinal's files; returns one line per change. A limits file that was edited stays.

        If `self.hooks` names drivers, removes only the hooks of these drivers. Raises VicinalError
        if none of these drivers has hooks, or a file of others is in the way.
        """
        self._check_ours()
        said = self._remove_hooks()
        if self.hooks:
            return said
        for directory in (self.variant, self.network):
            if directory.is_dir():
                for file in directory.iterdir():
                    file.unlink()
                directory.rmdir()
                said.append(f"removed {directory}")
        if self.probe.is_file():
            self.probe.unlink()
            said.append(f"removed {self.probe}")
        limits = self.remotes / LIMITS_FILE
        if limits.exists():
            if limits.read_bytes() == LIMITS_TEMPLATE.encode():
                limits.unlink()
                _part(limits).unlink(missing_ok=True)
                if not any(limits.parent.iterdir()):
                    limits.parent.rmdir()
                said.append(f"removed {limits}")
            else:
                said.append(f"kept {limits}, because it was edited")
        return said

    def _remove_hooks(self) -> list[str]:
        said = []
        for file in self._hook_files(self.hooks or self._hooked()):
            if file.is_file():
                file.unlink()
                said.append(f"removed {file}")
                if not any(file.parent.iterdir()):
                    file.parent.rmdir()
        if self.hooks and not said:
            raise VicinalError(
                f"{' and '.join(map(repr, self.hooks))} had no hooks",
                "see `vicinal opennebula check`",
            )
        return said

    def _hooked(self) -> list[str]:
        """Drivers that get hooks: the named drivers, and drivers that already have Vicinal's
        hooks.
        """
        directory = self.network.parent
        have = [
            driver
            for driver in hooked_drivers(directory, NAME)
            if all(map(self._is_ours, filter(os.path.lexists, hook_files(directory, driver, NAME))))
        ]
        return sorted({*self.hooks, *have})

    def _hook_files(self, drivers: Iterable[str]) -> list[Path]:
        directory = self.network.parent
        return [file for driver in drivers for file in hook_files(directory, driver, NAME)]

    def _check_stock(self) -> None:
        common = self.remotes / "scripts_common.sh"
        directories = (self.network.parent, self.probe.parent)
        for needed in (self.stock / "deploy", common, *directories):
            if not needed.exists():
                raise VicinalError(
                    f"{needed} is missing, and OpenNebula's scripts contain it",
                    "name the folder of OpenNebula's scripts with --remotes",
                )
        check_drivers(self.network.parent, self._hooked(), NAME)

    def _check_ours(self) -> None:
        """Raise VicinalError if a file of others lies at a path of Vicinal's files."""
        ours = [self.probe, *self._hook_files(self._hooked())]
        for directory in (self.variant, self.network):
            whole = directory.is_dir() and not directory.is_symlink()
            ours += sorted(directory.iterdir()) if whole else [directory]
        strange = [each for each in ours if os.path.lexists(each) and not self._is_ours(each)]
        if strange:
            raise VicinalError(f"{strange[0]} is not Vicinal's", "move it away, and try again")

    def _is_ours(self, file: Path) -> bool:
        if file.is_symlink():
            return file.readlink().parent == Path("..") / _STOCK
        if not file.is_file():
            return False
        if _HALF.fullmatch(file.name):
            return True
        return _MARK in file.read_text(errors="replace") or _is_copy(file, self.stock / file.name)

    def _wanted(self) -> dict[Path, str | Path]:
        """The wanted files: the text of a script, or the target of a link."""
        wanted: dict[Path, str | Path] = {}
        for file in sorted(self.stock.iterdir()):
            if file.name not in _SETTINGS:
                wanted[self.variant / file.name] = Path("..") / _STOCK / file.name
        for action in ACTIONS:
            wanted[self.variant / action] = self._script("action.sh")
        for action in NETWORK_ACTIONS:
            wanted[self.network / action] = self._script("network.sh")
        for file in self._hook_files(self._hooked()):
            wanted[file] = self._script("hook.sh")
        return wanted | {self.probe: self._script("probe.sh")}

    def _script(self, name: str) -> str:
        text = resources.files("vicinal.integrations.opennebula").joinpath(name).read_text()
        records = Host.records / "records.json"
        return text.replace("@PYTHON@", f"'{self.python}'").replace("@RECORDS@", f"'{records}'")

    def _stale(self) -> list[Path]:
        wanted = self._wanted()
        there = (*sorted(self.variant.iterdir()), *sorted(self.network.iterdir()))
        return [file for file in there if file not in wanted]

    def _directory(self, directory: Path) -> None:
        if not directory.is_dir():
            directory.mkdir(parents=True)
            self._give(directory)

    def _put(self, file: Path, wanted: str | Path, mode: int = 0o755) -> None:
        """Write atomically, because a host may copy these files at any time."""
        with replaced(file) as part:
            if isinstance(wanted, Path):
                part.symlink_to(wanted)
            else:
                part.write_text(wanted)
                part.chmod(mode)
            self._give(part)

    def _give(self, file: Path) -> None:
        """If root installs, give the file to the owner of OpenNebula's scripts."""
        if os.geteuid() == 0:
            status = self.stock.stat()
            os.chown(file, status.st_uid, status.st_gid, follow_symlinks=False)


def _part(file: Path) -> Path:
    return file.with_name(f".{file.name}.part")


def check_configuration(file: Path = CONFIGURATION) -> str | None:
    """Why oned.conf does not load the drivers; None if it does, or cannot be read."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return None
    lines = (line.partition("#")[0] for line in text.splitlines())
    words = "".join("".join(lines).split())
    for section in ("VM_MAD", "VN_MAD_CONF"):
        if not re.search(rf'\b{section}=\[[^]]*\bNAME="{NAME}"', words):
            return f"{file} has no {section} with the name {NAME}"
    return None


def _is(file: Path, wanted: str | Path) -> bool:
    if isinstance(wanted, Path):
        if file.is_symlink():
            return file.readlink() == wanted
        return _is_copy(file, file.parent / wanted)
    if file.is_symlink() or not file.is_file() or not os.access(file, os.X_OK):
        return False
    return file.read_text(errors="replace") == wanted


def _is_copy(file: Path, other: Path) -> bool:
    """Whether `file` is an executable copy of `other`: `onehost sync` turns links into copies."""
    if not (file.is_file() and other.is_file()):
        return False
    return os.access(file, os.X_OK) and file.read_bytes() == other.read_bytes()


def hook_files(network: Path, driver: str, own: str) -> list[Path]:
    """The paths of a network driver's hooks; `network` is the folder of all drivers, `own` the
    name.
    """
    return [network / driver / f"{action}.d" / own for action in HOOKED_ACTIONS]


def hooked_drivers(network: Path, own: str) -> set[str]:
    """Drivers that have hooks with the name `own`, from Vicinal or from others."""
    found = (network.glob(f"*/{action}.d/{own}") for action in HOOKED_ACTIONS)
    return {file.parent.parent.name for files in found for file in files}


def check_drivers(network: Path, drivers: Iterable[str], own: str) -> None:
    """Raise VicinalError if one of `drivers` is no network driver of OpenNebula or runs no
    hooks.
    """
    for driver in drivers:
        there = sorted({each.parent.name for each in network.glob("*/pre")} - {own})
        if driver not in there:
            raise VicinalError(
                f"{driver!r} is no network driver of OpenNebula: {network} has "
                f"{', '.join(there) or 'none'}",
                "name one of these drivers",
            )
        for action in HOOKED_ACTIONS:
            script = network / driver / action
            text = script.read_text(errors="replace") if script.is_file() else ""
            if not _RUNS_HOOKS.search(text):
                raise VicinalError(f"{script} runs no hooks", "use a newer release of OpenNebula")


Remotes = Annotated[
    Path,
    typer.Option(metavar="DIRECTORY", help="The folder of OpenNebula's scripts on its front-end."),
]
Python = Annotated[
    Path,
    typer.Option(
        metavar="PATH",
        help="The Python interpreter that has Vicinal, at the same path on every host; the running"
        " interpreter by default.",
    ),
]
Hooks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DRIVER",
        help="A network driver of OpenNebula, such as 802.1Q, that gets hooks. The hooks set rates"
        " and link states of SR-IOV VFs in its networks. Repeat for more drivers.",
    ),
]

commands = typer.Typer(help="Give OpenNebula's VMs shared regions, by a variant of its KVM driver.")


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="opennebula")


@commands.command()
def install(
    remotes: Remotes = REMOTES, python: Python = Path(sys.executable), hooks: Hooks = None
) -> None:
    """Install the driver vicinal beside OpenNebula's driver kvm. Repeat after updates of either."""
    with told("installing the driver beside OpenNebula's"):
        done = _installation(remotes, python, hooks).install()
    for line in done:
        typer.echo(line)
    if not done:
        typer.echo("everything is installed already")
    typer.echo("\nOpenNebula's oned.conf needs these lines, and a restart of opennebula:\n")
    typer.echo(ONED_CONF)
    typer.echo(
        "Then, as oneadmin: `onehost sync --force`, and `onehost create NODE -i kvm -v vicinal`."
    )


@commands.command()
def check(
    remotes: Remotes = REMOTES, python: Python = Path(sys.executable), hooks: Hooks = None
) -> None:
    """Check that all files of the driver are installed and current; exit with 1 if not."""
    with told("checking OpenNebula's drivers"):
        faults = list(_installation(remotes, python, hooks).faults())
    for fault in faults:
        typer.echo(f"vicinal: error: {fault}: run `vicinal opennebula install`", err=True)
    if missing := check_configuration():
        typer.echo(f"vicinal: warning: {missing}: see `vicinal opennebula install`", err=True)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"{remotes / 'vmm/vicinal'} is complete and current")


@commands.command()
def remove(remotes: Remotes = REMOTES, hooks: Hooks = None) -> None:
    """Remove the driver, or only hooks. No host of OpenNebula may use the driver any more."""
    with told("removing the driver"):
        done = list(_installation(remotes, Path(sys.executable), hooks).remove())
    for line in done:
        typer.echo(line)


def _installation(remotes: Path, python: Path, hooks: list[str] | None) -> Installation:
    if not python.is_absolute() or "'" in str(python) or "\n" in str(python):
        raise VicinalError(
            f"a script cannot name the interpreter {str(python)!r}",
            "give an absolute path without quotes and line breaks",
        )
    return Installation(remotes.absolute(), python, tuple(hooks or ()))
