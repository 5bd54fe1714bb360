"""Two virtual machines for what is measured between such, started when the first job wants them."""

from vicinal.cluster.vm.qemu.pair import GuestPair
from vicinal.launch.guest_job import run_in_guests
from vicinal.mpi.job import CompletedJob, Job


class GuestStage:
    """The guests, one rank in each."""

    def __init__(self) -> None:
        self._pair: GuestPair | None = None

    def run(self, job: Job, timeout: float) -> CompletedJob:
        """Run a job to its end; see run_in_guests(). The guests are started if need be."""
        if self._pair is None:
            pair = GuestPair()
            pair.open()
            self._pair = pair
        return run_in_guests(job, self._pair, timeout=timeout)

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures has to know about the guests that ran."""
        if self._pair is None:
            return []
        return [f"guests by {self._pair.choice.accelerator.description}"]

    def close(self) -> None:
        """End the guests; may be called again."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()
