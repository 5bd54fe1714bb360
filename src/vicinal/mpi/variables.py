"""Checks the variables that users set for Vicinal before a job starts.

The provider warns about a malformed value and uses the default: an MPI library that got an error
instead would use another network. But each rank prints the warning somewhere in a job's output, and
the provider does not notice a misspelt name. So the command that starts a job checks first.
"""

import difflib
import re
import secrets
from collections.abc import Callable, Mapping

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import WINDOWS, Progress
from vicinal.mpi.libraries import Mpi, mpi_variable
from vicinal.mpi.preloading import COLLECTIVES
from vicinal.mpi.thresholds import THRESHOLDS

_PREFIX = "VICINAL_"
_LIBFABRIC_PREFIX = "FI_"
"""Prefix of libfabric's form of the provider's variables: FI_VICINAL_REGION and so on."""

_LONGEST_TIMEOUT = 86400


JOB = "VICINAL_JOB"
"""Number of a rank's job, which the rank writes into its regions."""


def new_job_number() -> int:
    """Return a random number for JOB, so that jobs in one region can be told apart."""
    return 1 + secrets.randbelow(2**32 - 2)


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def fault(text: str) -> str | None:
        return None if text in choices else f"is none of {', '.join(choices)}"

    return fault


def _timeout_fault(text: str) -> str | None:
    try:
        good = 0 < float(text) <= _LONGEST_TIMEOUT
    except ValueError:
        good = False
    return None if good else f"is not a number of seconds above 0 and up to {_LONGEST_TIMEOUT}"


def _size_fault(text: str) -> str | None:
    good = re.fullmatch(r"\d{1,15}[KMG]?", text, re.IGNORECASE) and text.strip("0KMGkmg")
    return None if good else "is not a size such as 65536, 64K or 1M"


def _count_fault(text: str) -> str | None:
    fault = "is not a number from 1K to 1G, such as 65536, 64K or 4M"
    if _size_fault(text):
        return fault
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1].upper(), 1)
    return None if 1 << 10 <= int(text.rstrip("KMGkmg")) * factor <= 1 << 30 else fault


def _anything(_text: str) -> str | None:
    return None


_OF_THE_PROVIDER: dict[str, Callable[[str], str | None]] = {
    "VICINAL_REGION": _anything,  # a job sets its own region
    "VICINAL_PEER_TIMEOUT": _timeout_fault,
    "VICINAL_PROGRESS": _one_of(*Progress),
    "VICINAL_ALLOW_SLOW": _anything,
    "VICINAL_HEAP_THRESHOLD": _size_fault,
    "VICINAL_SEND_QUEUE": _size_fault,
    "VICINAL_UNEXPECTED": _count_fault,
    "VICINAL_SINGLE_COPY": _one_of("auto", "on", "off"),
    "VICINAL_NET": _anything,
    "VICINAL_NET_INTERFACE": _anything,
    "VICINAL_RANK": _anything,
    JOB: _anything,  # as VICINAL_REGION
    "VICINAL_PROFILE": _anything,
    **{each.variable: each.fault for each in THRESHOLDS},
}
"""The variables of fi_vicinal(7), each with a function that returns a value's fault as a phrase."""

_OF_ONE_HOST = {
    *("VICINAL_REGION", "VICINAL_RANK", JOB, "VICINAL_NET_INTERFACE", "VICINAL_PROFILE")
}
"""Variables of the provider that do not carry over to another host, or that its launcher sets."""

VFS = "VICINAL_VFS"
VF_INTERFACES = "VICINAL_VF_INTERFACES"
VF_DEVICES = "VICINAL_VF_DEVICES"
"""Variables that tell the tasks of Slurm's jobs about their SR-IOV VFs."""

_OF_LIBRARIES = {each: _one_of("on", "off") for each in (COLLECTIVES, WINDOWS)}
"""The variables of preloaded libraries, as _OF_THE_PROVIDER."""

_OF_THE_COMMAND = {
    *("VICINAL_PROVIDER_DIR", VFS, VF_INTERFACES, VF_DEVICES),
    *(mpi_variable(mpi) for mpi in Mpi),
}


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise VicinalError for an unknown variable of Vicinal, and for an invalid value."""
    for variable, text in environment.items():
        name = variable.removeprefix(_LIBFABRIC_PREFIX)
        if not name.startswith(_PREFIX):
            continue
        checked = _OF_THE_PROVIDER if name in _OF_THE_PROVIDER else _OF_LIBRARIES
        if name not in checked and variable not in _OF_THE_COMMAND:
            known = {
                each.removeprefix(_PREFIX)
                for each in (*_OF_THE_PROVIDER, *_OF_LIBRARIES, *_OF_THE_COMMAND)
            }
            close = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
            meant = f"did you mean {_PREFIX}{close[0]}? " if close else ""
            raise VicinalError(
                f"Vicinal has no variable {variable}",
                f"{meant}unset the variable; vicinal(1) and fi_vicinal(7) list all variables",
            )
        fault = checked.get(name, _anything)(text) if text else None
        if fault is not None:
            raise VicinalError(
                f"{variable}={text} {fault}", "correct the value, or unset the variable"
            )


def portable_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ranks that mean the same on another host, in either form."""
    portable = (_OF_THE_PROVIDER.keys() | _OF_LIBRARIES.keys()) - _OF_ONE_HOST
    return {
        variable: text
        for variable, text in environment.items()
        if text and variable.removeprefix(_LIBFABRIC_PREFIX) in portable
    }
