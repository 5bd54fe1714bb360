"""The content of a result's folder, and its units: the same as docs/reference/results.md."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

SCHEMA = 1
"""Version of everything below; a reader refuses newer ones."""

MANIFEST = "manifest.json"
SUMMARY = "summary.json"
TRIALS = "trials"
SAMPLES = "samples"
OUTPUTS = "outputs"
REPORT = "report"
PART = ".part"
"""What the names of files end in that are not whole yet."""

UNITS = {
    "nanoseconds": "ns, one iteration of one rank",
    "size": "bytes",
    "seconds": "s, the whole launch",
}


TOTAL_TIME = "time"
"""Name of the figure that is the time of a whole run, in s."""

COMMUNICATION_TIME = "communication"
"""And of what of that went to communication; other figures in s beside it are other parts of it."""


class Condition(StrEnum):
    """Names in a trial's `conditions` that the analysis reads; there may be others."""

    LOAD = "load"
    """Load average of one minute, right before the launch."""
    STEAL = "steal"
    """Part, 0 to 1, of this machine's processor time that its hypervisor kept for others."""
    EMULATED = "emulated"
    """True where ranks ran on processors that QEMU emulates."""
    PROGRAM = "program"
    """What the program said of itself, as Measured.facts has it."""


class ProgramFact(StrEnum):
    """Names in Condition.PROGRAM that the analysis reads; there may be others."""

    CLOCK = "clock"
    """What times were taken with: `counter`, `system`, or in the program's own words."""
    RECORDING = "recording_ns"
    """What recording added to a sample: the most of all ranks."""
    APART = "apart"
    """Whether a barrier was before each sample, so that all ranks begin it together."""


@dataclass(frozen=True)
class Figure:
    """A value that a workload itself gave: GFLOPS, or the part of its time in communication."""

    name: str
    """Of a statistic (`mean`, `P99`) where the program gives one of its samples alone; TOTAL_TIME,
    COMMUNICATION_TIME; or what the program calls it. The first one in a unit that the workload's
    quantity can have is what is compared."""
    value: float
    unit: str
    size: int | None = None
    """Bytes, where it is of one size."""


@dataclass(frozen=True)
class Trial:
    """One fresh launch of a workload in an environment."""

    environment: str
    workload: str
    block: int
    """In which each environment was once."""
    started: str
    """UTC, as ISO 8601 has it."""
    seconds: float
    """From the launch to its end."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """What the machine was like meanwhile: load, steal time, interrupts, frequency: Condition."""
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class SeriesFacts:
    """What is known of a series without reading its samples."""

    size: int
    rank: int
    messages: int
    samples: int


@dataclass(frozen=True)
class StoredTrial:
    """A trial as it is in the folder."""

    number: int
    """From 1, in the order in which they were made."""
    trial: Trial
    failure: str | None = None
    """Why there are no samples."""
    series: tuple[SeriesFacts, ...] = ()
    samples_crc32: int | None = None
    """Of the samples' file, as zlib has it; None where there is none."""
    outputs: tuple[str, ...] = ()
    """Names of files in outputs/."""

    def to_json(self) -> dict[str, Any]:
        """As its file in trials/ has it."""
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
        """Of values that fit the schema."""
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
    """What makes trial `number` count: it is written last."""
    return folder / TRIALS / f"{number:06}.json"


def samples_file(folder: Path, number: int) -> Path:
    """The samples of trial `number`."""
    return folder / SAMPLES / f"{number:06}.parquet"
