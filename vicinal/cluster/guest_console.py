"""What guests print on their consoles: kept, since it tells why one did not come up."""

from pathlib import Path

from vicinal.cluster.image import guests_directory

_TAIL_LINES = 12
_TAIL_BYTES = 4096


def consoles_directory() -> Path:
    """Directory of the consoles of the guests that ran last."""
    directory = guests_directory() / "consoles"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def console_tail(console: Path) -> str:
    """The last lines of a console, without control characters; empty if there are none."""
    try:
        content = console.read_bytes()[-_TAIL_BYTES:]
    except OSError:
        return ""
    text = content.decode(errors="replace").replace("\r", "")
    lines = ["".join(c for c in line if c.isprintable()) for line in text.splitlines()]
    return "\n".join([line for line in lines if line.strip()][-_TAIL_LINES:])
