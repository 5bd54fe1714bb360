"""The consoles of guests, which are kept because they tell why a guest did not boot."""

from pathlib import Path

from vicinal.base.errors import VicinalError

_TAIL_LINES = 12
_LINES_BEFORE = 3
"""Lines before the telling line: the output of the program in the guest that failed."""
_TELLING = ("vicinal-guest: error", "Kernel panic")
"""Parts of lines that say why a guest did not boot."""


def consoles_directory() -> Path:
    """The directory with the consoles of the guests that ran last."""
    from vicinal.cluster.vm.image.building import (
        guests_directory,
    )  # slow to import, and readers of consoles do not need it

    directory = guests_directory() / "consoles"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def console_lines(console: Path) -> list[str]:
    """The lines that a guest printed, without control characters and empty lines."""
    try:
        text = console.read_text(errors="replace")
    except OSError:
        return []
    lines = ["".join(filter(str.isprintable, line)) for line in text.splitlines()]
    return [line for line in lines if line.strip()]


def console_tail(console: Path) -> list[str]:
    """The last lines of a console, or the lines around the one that says why the boot failed."""
    lines = console_lines(console)
    telling = [n for n, line in enumerate(lines) if any(word in line for word in _TELLING)]
    if not telling:
        return lines[-_TAIL_LINES:]
    return lines[max(0, telling[0] - _LINES_BEFORE) :][:_TAIL_LINES]


def guest_error(what: str, console: Path, remedy: str = "") -> VicinalError:
    """An error that says what is wrong with a guest, and how its console ends.

    Without a remedy, the remedy names the console's file, which then has to stay.
    """
    tail = " | ".join(console_tail(console)) or "nothing"
    return VicinalError(
        f"{what}; its console ends with: {tail}", remedy or f"see the whole console in {console}"
    )
