"""How long a launch may take before it counts as hanging, and how many failures end a cell."""

from dataclasses import dataclass

from vicinal.labs.study.file.model import Workload


@dataclass(frozen=True)
class Limits:
    """Bounds of what a study puts up with."""

    least_seconds: float = 60.0
    """That every launch is given, however little it is to do: machines may be busy."""
    times_expected: float = 10.0
    """So many times as long as its workload says may it take on top of that."""
    given_seconds: float | None = None
    """By the user, for every launch, in place of what the two above make."""
    failures: int = 3
    """In a row, after which a workload is given up in an environment."""

    def seconds(self, workload: Workload, patience: float) -> float:
        """For one launch; `patience` is the environment's."""
        if self.given_seconds is not None:
            return self.given_seconds
        return (self.least_seconds + self.times_expected * expected_seconds(workload)) * patience


def expected_seconds(workload: Workload) -> float:
    """What a launch takes, about, as long as none was measured."""
    return workload.seconds * max(1, len(workload.sizes)) * 1.25 + 1.0
