"""The command `vicinal`: runs a command line, and turns each error into one clear line.

Commands that other programs call often run without typer, because loading typer takes longer than
most of these commands (plain_commands.py). This module imports only modules that every command
needs; `vicinal --version` loads nothing else.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import vicinal
from vicinal.base.errors import VicinalError, complain, describe_os_error, fail
from vicinal.base.signals import Ended, signals_raise

_EXTRAS = {
    "study": ("jinja2", "matplotlib", "numpy", "pyarrow", "scipy"),
    "tune": ("pyroute2",),
    "guests": ("libvirt",),
    "metrics": ("prometheus_client",),
}
"""The libraries that pyproject.toml's optional dependencies install."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 success, 1 an error, 2 a wrong call, 130 interrupted."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; each error is one line on standard error."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with signals_raise():
            status = _call(words)
            sys.stdout.flush()
    except VicinalError as error:
        return complain(error)
    except Ended as ended:
        return ended.status
    except ModuleNotFoundError as error:
        # The libraries of some commands are not installed, for instance in the appliance.
        library = (error.name or "").partition(".")[0]
        extra = next((name for name, each in _EXTRAS.items() if library in each), None)
        wanted = "vicinal" if extra is None else f"vicinal[{extra}]"
        return fail(
            f"this command needs the Python library {library}, which is not installed: "
            f"install it, by pip as {wanted}, or in Debian as the package "
            f"python3-{library.replace('_', '-')}"
        )
    except BrokenPipeError:
        # The reader, such as `head`, has ended: not an error of this command. Python would print an
        # error when it flushes stdout at exit, so stdout becomes /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if not error.filename and _is_directory_gone():
            return fail("the current directory no longer exists: change to another directory")
        prefix = f"{error.filename}: " if error.filename else ""
        return fail(f"{prefix}{describe_os_error(error)}: check the file and its permissions")
    except Exception as error:  # a bug of Vicinal; a traceback would not help the user
        from vicinal.base.crash_report import report_crash

        return fail(report_crash(error, words))
    return status


def _call(words: list[str]) -> int:
    if words == ["--version"]:
        sys.stdout.write(f"vicinal {vicinal.__version__}\n")
        return 0
    from vicinal.plain_commands import plain_call

    if (plain := plain_call(words)) is not None:
        return plain() or 0
    from vicinal.base.waiting import told

    # On a busy machine the libraries of a command take seconds to load. A program that reads
    # standard error gets no notice.
    with told("loading the command", quiet=not sys.stderr.isatty()):
        from vicinal import command_app

        app = command_app.build_app(words[0] if words else None)
    return command_app.call(app, words)


def _is_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False
