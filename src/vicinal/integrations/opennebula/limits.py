"""What the administrator allows: KEY=VALUE lines of etc/vmm/vicinal/vicinal.conf.

A region is memory of the host that OpenNebula's scheduler does not know of.
"""

from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size

FILE = Path("etc/vmm/vicinal/vicinal.conf")
"""Below OpenNebula's remotes."""

TEMPLATE = """\
# Vicinal's limits on each host; sizes with M or G.

# The longest region of one job
REGION_SIZE_MAX=1G

# All regions of one user together
USER_SIZE_MAX=4G
"""


@dataclass(frozen=True)
class Limits:
    """Of one host, in bytes."""

    region: int = 1 << 30
    user: int = 4 << 30
    """All regions of one user of OpenNebula together."""


_KEYS = {"REGION_SIZE_MAX": "region", "USER_SIZE_MAX": "user"}


def read_limits(file: Path) -> Limits:
    """The limits in a file, which need not be there. Raises VicinalError for a wrong line."""
    try:
        text = file.read_text("utf-8", errors="replace")  # comments are in whatever encoding
    except FileNotFoundError:
        return Limits()
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        key, equals, value = line.partition("=")
        if not equals or key.strip() not in _KEYS:
            raise VicinalError(
                f"{file}, line {number}: {line} is no setting", f"there is {', '.join(_KEYS)}"
            )
        try:
            values[_KEYS[key.strip()]] = parse_size(value)
        except VicinalError as error:
            raise VicinalError(f"{file}, line {number}: {error.message}", error.remedy) from error
    return Limits(**values)
