"""What guests print on their consoles: kept, since it tells why one did not come up."""

from pathlib import Path

_TAIL_LINES = 12
_LINES_BEFORE = 3
"""What a program of the guest said before we said that it failed."""
_TELLING = ("vicinal-guest: error", "Kernel panic")
"""What lines have in them that say why a guest did not come up."""


def consoles_directory() -> Path:
    """Directory of the consoles of the guests that ran last."""
    from vicinal.cluster.vm.image.building import (
        guests_directory,
    )  # long to load, and who reads has a console

    directory = guests_directory() / "consoles"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def console_lines(console: Path) -> list[str]:
    """What a guest printed, without control characters and empty lines."""
    try:
        text = console.read_text(errors="replace")
    except OSError:
        return []
    lines = ["".join(filter(str.isprintable, line)) for line in text.splitlines()]
    return [line for line in lines if line.strip()]


def console_tail(console: Path) -> list[str]:
    """The last lines of a console, or those about the line that says what went wrong."""
    lines = console_lines(console)
    telling = [n for n, line in enumerate(lines) if any(word in line for word in _TELLING)]
    if not telling:
        return lines[-_TAIL_LINES:]
    return lines[max(0, telling[0] - _LINES_BEFORE) :][:_TAIL_LINES]
