"""The variables that users set for Vicinal, checked before a job starts.

The provider says of a malformed value what is wrong, and goes on with the default: an MPI
library that it left alone would take another network instead. But that is said by each rank,
somewhere in a job's output, and a misspelt name is not noticed at all. So who starts a job
looks first.
"""

import difflib
import re
import secrets
from collections.abc import Callable, Mapping

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import Progress
from vicinal.mpi.libraries import Mpi, mpi_variable
from vicinal.mpi.thresholds import THRESHOLDS

_PREFIX = "VICINAL_"
_LIBFABRIC_PREFIX = "FI_"
"""libfabric's form of the provider's variables: FI_VICINAL_REGION and so on."""

_LONGEST_TIMEOUT = 86400


JOB = "VICINAL_JOB"
"""Number of the job that a rank belongs to, which it writes into its regions."""


def new_job_number() -> int:
    """A number for JOB: another one for each job, so that jobs in one region are told apart."""
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


def _anything(_text: str) -> str | None:
    return None


_OF_THE_PROVIDER: dict[str, Callable[[str], str | None]] = {
    "VICINAL_REGION": _anything,  # a job has a region of its own
    "VICINAL_PEER_TIMEOUT": _timeout_fault,
    "VICINAL_PROGRESS": _one_of(*Progress),
    "VICINAL_ALLOW_SLOW": _anything,
    "VICINAL_HEAP_THRESHOLD": _size_fault,
    "VICINAL_SEND_QUEUE": _size_fault,
    "VICINAL_SINGLE_COPY": _one_of("auto", "on", "off"),
    "VICINAL_NET": _anything,
    "VICINAL_NET_INTERFACE": _anything,
    "VICINAL_RANK": _anything,
    JOB: _anything,  # as VICINAL_REGION
    "VICINAL_PROFILE": _anything,
    **{each.variable: each.fault for each in THRESHOLDS},
}
"""What fi_vicinal(7) lists, and what is wrong with a value, as a phrase."""

_OF_ONE_MACHINE = {
    *("VICINAL_REGION", "VICINAL_RANK", JOB, "VICINAL_NET_INTERFACE", "VICINAL_PROFILE")
}
"""Of those, what another machine has to be told anew, or its launcher says."""

FUNCTIONS = "VICINAL_FUNCTIONS"
FUNCTION_INTERFACES = "VICINAL_FUNCTION_INTERFACES"
FUNCTION_DEVICES = "VICINAL_FUNCTION_DEVICES"
"""What tasks of Slurm's jobs are told of their SR-IOV functions."""

_OF_THE_COMMAND = {
    *("VICINAL_PROVIDER_DIR", FUNCTIONS, FUNCTION_INTERFACES, FUNCTION_DEVICES),
    *(mpi_variable(mpi) for mpi in Mpi),
}


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise VicinalError for a variable of Vicinal that does not exist, or a value that is none."""
    for variable, text in environment.items():
        name = variable.removeprefix(_LIBFABRIC_PREFIX)
        if not name.startswith(_PREFIX):
            continue
        if name not in _OF_THE_PROVIDER and variable not in _OF_THE_COMMAND:
            known = {each.removeprefix(_PREFIX) for each in (*_OF_THE_PROVIDER, *_OF_THE_COMMAND)}
            close = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
            meant = f"you may mean {_PREFIX}{close[0]}; " if close else ""
            raise VicinalError(
                f"Vicinal knows no variable {variable}",
                f"{meant}unset it: vicinal(1) and fi_vicinal(7) list all that there are",
            )
        fault = _OF_THE_PROVIDER.get(name, _anything)(text) if text else None
        if fault is not None:
            raise VicinalError(f"{variable}={text} {fault}", "correct it, or unset it")


def portable_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the provider's variables that say the same on another machine, in either form."""
    portable = _OF_THE_PROVIDER.keys() - _OF_ONE_MACHINE
    return {
        variable: text
        for variable, text in environment.items()
        if text and variable.removeprefix(_LIBFABRIC_PREFIX) in portable
    }
