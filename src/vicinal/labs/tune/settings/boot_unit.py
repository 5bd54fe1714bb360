"""A setting that a unit of systemd applies at each boot of the host.

The unit calls `vicinal tune apply --at-boot`. It works as `apply`, with one difference: if the
host went down while the setting was applied, the next boot leaves the setting out.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, sync_directory, write_atomically
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs import rdma

NAME = "vicinal-tune.service"
_UNIT = Path("etc/systemd/system") / NAME
_WANTED = Path("etc/systemd/system/multi-user.target.wants") / NAME
_SETTING = Path("etc/vicinal/tune.json")


def write_unit(root: Path, setting: Setting, options: Sequence[str] = ()) -> list[Path]:
    """Write the unit and its setting below `root`; returns the written files.

    `options` are of `vicinal tune apply`. Raises VicinalError if the files cannot be written.
    """
    files = {
        _SETTING: json.dumps({"setting": dict(setting)}, indent=2) + "\n",
        _UNIT: unit_text(setting, Path("/") / _SETTING, options),
    }
    try:
        for name, text in files.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text, Durability.NAME)
        link = root / _WANTED
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / NAME)
        sync_directory(link.parent)
    except OSError as error:
        raise VicinalError(
            f"{error.filename or root}: {describe_os_error(error)}",
            "be root, or leave out --persistent",
        ) from error
    return [root / name for name in (*files, _WANTED)]


def remove_unit(root: Path) -> list[Path]:
    """Remove the unit and its setting; returns the removed files. Raises VicinalError on
    failure.
    """
    found = [root / name for name in (_WANTED, _UNIT, _SETTING) if _is_there(root / name)]
    try:
        for file in found:
            file.unlink()
            sync_directory(file.parent)
    except OSError as error:
        raise VicinalError(
            f"{error.filename}: {describe_os_error(error)}",
            "be root: until the file is removed, the setting is applied at each boot",
        ) from error
    return found


def disable_unit(root: Path) -> None:
    """Disable the unit, and keep the files."""
    (root / _WANTED).unlink(missing_ok=True)


def read_setting(file: Path) -> dict[str, Value]:
    """The setting in a file such as the unit's. Raises VicinalError if the file has no setting."""
    try:
        values = json.loads(file.read_text())["setting"]
    except OSError as error:
        raise VicinalError(f"{file}: {describe_os_error(error)}", "name another file") from error
    except (ValueError, KeyError, TypeError) as error:
        raise VicinalError(
            f"{file} has no setting", 'write it as {"setting": {"eth0/rx-usecs": 10}}'
        ) from error
    return check_setting(values, str(file))


def check_setting(values: object, source: str) -> dict[str, Value]:
    """Check a setting from a file; errors call the file `source`. Raises VicinalError if it is
    invalid.
    """
    if isinstance(values, Mapping):
        good = (
            isinstance(each, int | str) and not isinstance(each, bool) for each in values.values()
        )
        if all(good):
            return {str(name): value for name, value in values.items()}
    raise VicinalError(
        f"{source} has a knob whose value is neither a whole number nor a word",
        'write on and off as "on" and "off"',
    )


def unit_text(setting: Setting, file: Path, options: Sequence[str]) -> str:
    """The text of the unit, which waits for the setting's interfaces as long as systemd does."""
    knobs = [name.partition("/") for name in setting]
    interfaces = sorted({device for device, _, part in knobs if part != rdma.PART})
    units = " ".join(f"sys-subsystem-net-devices-{_escaped(name)}.device" for name in interfaces)
    # A path for systemd, in which % and spaces have a meaning.
    words = [sys.executable, "-m", "vicinal", "tune", "apply", "--at-boot"]
    words += [*options, "--from", str(file)]
    command = " ".join(_quoted(word) for word in words)
    return f"""# Written by `vicinal tune apply --persistent`; `vicinal tune restore` removes it.
[Unit]
Description=Interrupt moderation and other knobs, as vicinal tune found them
Documentation=man:vicinal(1)
Wants={units}
After=network-pre.target {units}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


def _is_there(file: Path) -> bool:
    return file.is_symlink() or file.exists()


def _escaped(name: str) -> str:
    """A part of a unit's name; systemd escapes special characters as \\xNN."""
    return re.sub(r"[^A-Za-z0-9:_.]", lambda found: f"\\x{ord(found[0]):02x}", name)


def _quoted(word: str) -> str:
    """Quote a word for a unit's command line."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or " " in word else word
