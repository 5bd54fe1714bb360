"""Profiles: a host's thresholds in a file that the provider loads, as lines `key = value`.

The provider warns about invalid lines and ignores them. Here an invalid line is an error.
"""

from collections.abc import Mapping
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.wording import nearest
from vicinal.labs.tune.knob import Setting
from vicinal.mpi.thresholds import THRESHOLDS, number

SYSTEM_PROFILE = Path("/etc/vicinal/profile")
_BY_KEY = {each.key: each for each in THRESHOLDS}
_BYTES_MOST = 16_384
"""The provider uses no file of this length or longer."""


def user_profile(variables: Mapping[str, str]) -> Path:
    """The path of the user's own profile, for a process with these variables."""
    config = variables.get("XDG_CONFIG_HOME", "")
    base = Path(config) if config.startswith("/") else Path.home() / ".config"
    return base / "vicinal" / "profile"


def profile_in_force(variables: Mapping[str, str]) -> Path | None:
    """The file that a process with these variables loads; None if there is none."""
    named = variables.get("VICINAL_PROFILE", variables.get("FI_VICINAL_PROFILE"))
    if named is not None:
        return Path(named) if named else None
    return next((each for each in (user_profile(variables), SYSTEM_PROFILE) if each.exists()), None)


def thresholds_of(setting: Setting) -> dict[str, int]:
    """The thresholds in a setting's variables, by key; unset variables are left out.

    Raises VicinalError for an invalid value.
    """
    found: dict[str, int] = {}
    for each in THRESHOLDS:
        value = setting.get(each.variable, "unset")
        if value != "unset":
            found[each.key] = _checked(each.key, str(value), each.variable)
    return found


def read_profile(path: Path) -> dict[str, int]:
    """The thresholds of a profile by key. Raises VicinalError for a line that the provider would
    ignore.
    """
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise VicinalError(
            f"the profile {path} cannot be read ({describe_os_error(error)})",
            "name another profile",
        ) from error
    return parse_profile(text, str(path))


def parse_profile(text: str, name: str) -> dict[str, int]:
    """The thresholds in a profile's text; errors call the profile `name`. Raises VicinalError."""
    found: dict[str, int] = {}
    if len(text) >= _BYTES_MOST:
        raise VicinalError(
            f"{name} has {_BYTES_MOST} bytes or more, and the provider uses no such file",
            "shorten it",
        )
    for count, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0].strip(" \t\r")
        if not content:
            continue
        where = f"{name}, line {count}"
        key, equals, value = (part.strip(" \t\r") for part in content.partition("="))
        if not equals:
            raise VicinalError(f"{where}: {content!a} is not key = value", "correct or delete it")
        if key in found:
            raise VicinalError(f"{where}: {key} appears twice", "delete one of the two lines")
        found[key] = _checked(key, value, where)
    return found


def profile_text(thresholds: Mapping[str, int], heading: str = "") -> str:
    """The text of a profile. Raises VicinalError for an unknown threshold or an invalid value."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    lines += [f"{key} = {_checked(key, str(each), key)}" for key, each in thresholds.items()]
    return "".join(f"{line}\n" for line in lines)


def _checked(key: str, value: str, where: str) -> int:
    if key not in _BY_KEY:
        raise VicinalError(f"{where}: there is no threshold {key!a}", nearest(key, _BY_KEY))
    fault = _BY_KEY[key].fault(value)
    if fault is not None:
        raise VicinalError(f"{where}: {value!a} {fault}", "correct it")
    found = number(value)
    assert found is not None  # otherwise fault() would have found a fault
    return found
