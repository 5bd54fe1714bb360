"""A trial: what one start of a program measured."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.bench.metric import FACTS, Metric
from vicinal.labs.programs import read_records


@dataclass(frozen=True)
class Trial:
    """One start of a measuring program: every repetition of every size."""

    hosts: list[str]
    """Host name of each rank: what shows whether they were on one node."""
    mpi: str
    """The MPI library's own description of itself."""
    repetitions: dict[int, list[float]]
    """Size in bytes, and one value for each repetition, in the metric's unit."""

    def value(self, size: int) -> float:
        """The trial's value for one size: the median of its repetitions."""
        return float(np.median(self.repetitions[size]))


def read_trial(text: str, metric: Metric, sizes: Iterable[int]) -> Trial:
    """What a measuring program printed. Raises VicinalError if a size is missing."""
    facts = FACTS[metric]
    records = read_records(text)
    head = next((record for record in records if "program" in record), None)
    repetitions: dict[int, list[float]] = {size: [] for size in sizes}
    for record in records:
        if "size" in record and record.get("operation") == facts.operation:
            repetitions.setdefault(record["size"], []).append(float(record[facts.field]))
    missing = [size for size, values in repetitions.items() if not values]
    if head is None or head["program"] != facts.program or missing:
        raise VicinalError(
            f"the program {facts.program} ended without all of its results",
            "run it again with fewer sizes; its output is incomplete",
        )
    return Trial(hosts=head["hosts"], mpi=head["mpi"], repetitions=repetitions)
