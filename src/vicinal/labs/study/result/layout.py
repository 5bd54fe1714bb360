"""The content of a result's folder and its units, as docs/reference/results.md describes them."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

SCHEMA = 1
"""Version of all formats below; readers refuse newer versions."""

MANIFEST = "manifest.json"
SUMMARY = "summary.json"
TRIALS = "trials"
SAMPLES = "samples"
OUTPUTS = "outputs"
REPORT = "report"
PART = ".part"
"""Suffix of the names of incomplete files."""

UNITS = {
    "nanoseconds": "ns, one iteration of one rank",
    "size": "bytes",
    "seconds": "s, the whole launch",
}


TOTAL_TIME = "time"
"""Name of the figure for the time of a whole run, in s."""

COMMUNICATION_TIME = "communication"
"""Name of the figure for the time in communication. Other figures in s are other parts of the
total."""


class Condition(StrEnum):
    """Keys of a trial's `conditions` that the analysis reads; there may be others."""

    LOAD = "load"
    """Load average of one minute, directly before the launch."""
    STEAL = "steal"
    """The share, 0 to 1, of this machine's processor time that its hypervisor gave to others."""
    EMULATED = "emulated"
    """True if ranks ran on processors that QEMU emulates."""
    PROGRAM = "program"
    """What the program printed about itself: Measured.facts."""


class ProgramFact(StrEnum):
    """Keys of Condition.PROGRAM that the analysis reads; there may be others."""

    CLOCK = "clock"
    """The clock of the measurement: `counter`, `system`, or the program's own name for it."""
    RECORDING = "recording_ns"
    """What recording added to a sample; the maximum of all ranks."""
    APART = "apart"
    """Whether a barrier preceded each sample, so that all ranks begin it together."""


@dataclass(frozen=True)
class Figure:
    """A value that a workload itself reports: GFLOPS, or its time in communication."""

    name: str
    """A statistic (`mean`, `P99`) if the program reports only this statistic of its samples;
    TOTAL_TIME or COMMUNICATION_TIME; or the program's own name. The first figure in a unit that
    fits the workload's quantity is compared."""
    value: float
    unit: str
    size: int | None = None
    """Bytes, if the figure belongs to one size."""


@dataclass(frozen=True)
class Trial:
    """One fresh launch of a workload in an environment."""

    environment: str
    workload: str
    block: int
    """The block, which contains each environment once."""
    started: str
    """UTC, in ISO 8601."""
    seconds: float
    """From the launch to its end."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """The machine's condition during the trial: load, steal time, interrupts, frequency. Keys:
    Condition."""
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class SeriesFacts:
    """Facts about a series that are known without reading its samples."""

    size: int
    rank: int
    messages: int
    samples: int


@dataclass(frozen=True)
class StoredTrial:
    """A trial as the folder stores it."""

    number: int
    """From 1, in the order of the launches."""
    trial: Trial
    failure: str | None = None
    """Why there are no samples; None after success."""
    series: tuple[SeriesFacts, ...] = ()
    samples_crc32: int | None = None
    """CRC-32 of the samples' file, as zlib computes it; None without samples."""
    outputs: tuple[str, ...] = ()
    """Names of files in outputs/."""

    def to_json(self) -> dict[str, Any]:
        """The content of the trial's file in trials/."""
        return {
            "schema": SCHEMA,
            "number": self.number,
            **asdict(self.trial),
            "figures": [asdict(each) for each in self.trial.figures],
            "failure": self.failure,
            "series": [asdict(each) for each in self.series],
            "samples_crc32": self.samples_crc32,
            "outputs": list(self.outputs),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "StoredTrial":
        """The trial of values that fit the schema."""
        return cls(
            number=values["number"],
            trial=Trial(
                environment=values["environment"],
                workload=values["workload"],
                block=values["block"],
                started=values["started"],
                seconds=values["seconds"],
                conditions=values["conditions"],
                figures=tuple(_figure(each) for each in values["figures"]),
            ),
            failure=values["failure"],
            series=tuple(_facts(each) for each in values["series"]),
            samples_crc32=values["samples_crc32"],
            outputs=tuple(values["outputs"]),
        )


def _figure(values: dict[str, Any]) -> Figure:
    return Figure(values["name"], values["value"], values["unit"], values["size"])


def _facts(values: dict[str, Any]) -> SeriesFacts:
    return SeriesFacts(values["size"], values["rank"], values["messages"], values["samples"])


def trial_file(folder: Path, number: int) -> Path:
    """The file that makes trial `number` count; it is written last."""
    return folder / TRIALS / f"{number:06}.json"


def samples_file(folder: Path, number: int) -> Path:
    """The samples of trial `number`."""
    return folder / SAMPLES / f"{number:06}.parquet"
