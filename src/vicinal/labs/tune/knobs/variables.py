"""Variables of MPI and transport libraries: knobs of a job, not of the host.

To set a variable means to start a job with it, without privileges, journal or restoring. A library
ignores variables that it does not know; `reaches` names the library of each variable.
"""

import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.mpi.environment import Progress
from vicinal.mpi.thresholds import THRESHOLDS

UNSET = "unset"
"""The value of a variable that is not set, so that its library uses its default."""


@dataclass(frozen=True)
class Variable:
    """A variable that a library reads at a job's start."""

    name: str
    values: tuple[Value, ...]
    """Values without UNSET, which every variable can have."""
    unit: str
    reaches: str


_YES_NO: tuple[Value, ...] = (0, 1)
_RXM = "libfabric's ofi_rxm, over verbs and tcp"

_THRESHOLD_VALUES: Mapping[str, tuple[Value, ...]] = {
    "short_bytes": (48, 104, 216, 440),
    "eager_bytes": (4096, 8192, 16_384, 65_536),
    "piece_bytes": (8192, 16_384, 32_768, 65_536),
    "pieces_in_flight": (2, 4, 8, 16),
    "single_copy_bytes": (16_384, 65_536, 262_144, 1_048_576),
    "polls_per_read": (8, 64, 256, 1024),
    "reads_before_yield": (64, 500, 2000, 20_000),
    "reads_before_sleep": (2000, 20_000, 200_000),
}
"""Values worth trying. profile.py writes a host's best values into its profile."""

VARIABLES = (
    Variable("VICINAL_PROGRESS", tuple(each.value for each in Progress), "", "ranks that wait"),
    Variable("VICINAL_SINGLE_COPY", ("off", "auto", "on"), "", "messages above 64 KiB"),
    *(
        Variable(each.variable, _THRESHOLD_VALUES[each.key], each.unit, each.reaches)
        for each in THRESHOLDS
    ),
    Variable("MPIR_CVAR_CH4_PROGRESS_THROTTLE", _YES_NO, "", "MPICH: ranks that wait long"),
    Variable("FI_OFI_RXM_USE_SRX", _YES_NO, "", f"{_RXM}: shared receive queues"),
    Variable("FI_OFI_RXM_DATA_AUTO_PROGRESS", _YES_NO, "", f"{_RXM}: progress by a thread"),
    Variable("FI_VERBS_RX_SIZE", (64, 128, 384, 1024), "receives", "libfabric's verbs: queues"),
    Variable("UCX_RNDV_THRESH", (4096, 16_384, 65_536, 262_144), "B", "UCX: rendezvous above it"),
    Variable("UCX_RC_VERBS_RX_QUEUE_LEN", (512, 1024, 4095), "receives", "UCX: receive queues"),
    Variable("MV2_SRQ_LIMIT", (10, 30, 60, 120), "receives", "MVAPICH2: when to post anew"),
    Variable("MV2_SRQ_SIZE", (128, 256, 512, 1024), "receives", "MVAPICH2: receive queues"),
    Variable("MV2_USE_BLOCKING", _YES_NO, "", "MVAPICH2: waiting; 1 turns its fast paths off"),
    Variable("MV2_SPIN_COUNT", (100, 1000, 5000, 20_000), "looks", "MVAPICH2: before it sleeps"),
)


class VariableKnob:
    """One variable of a job."""

    def __init__(self, variable: Variable, job: MutableMapping[str, str]) -> None:
        self._job = job
        self.name = variable.name
        self.unit = variable.unit
        self.reaches = variable.reaches
        self.values: Sequence[Value] = (UNSET, *variable.values)

    def check(self, value: Value) -> Value:
        """The value. Raises VicinalError for text with a line break or a null character."""
        if "\0" in str(value) or "\n" in str(value):
            raise VicinalError(f"{self.name} cannot be {value!r}", "use one line of text")
        return value

    def read(self) -> Value:
        """The value that a job would get."""
        text = self._job.get(self.name)
        if text is None:
            return UNSET
        return int(text) if text.isdecimal() and str(int(text)) == text else text

    def write(self, value: Value) -> None:
        self.check(value)
        if value == UNSET:
            self._job.pop(self.name, None)
        else:
            self._job[self.name] = str(value)


def variable_knobs(job: MutableMapping[str, str]) -> list[VariableKnob]:
    """All variable knobs, for the variables of a job."""
    return [VariableKnob(each, job) for each in VARIABLES]


def as_shell(variables: Mapping[str, str]) -> str:
    """Export lines for a shell, as in `vicinal env`."""
    return "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())
