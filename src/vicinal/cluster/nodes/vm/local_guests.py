"""Guests of this host and their regions, as the launcher of a job uses them."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.job_nodes import JobGuest
from vicinal.mpi.traffic import JobTraffic, job_traffic, merge_traffic
from vicinal.region import RegionState, inspect
from vicinal.region.detaching import mark_dead


class LocalGuest(JobGuest, Protocol):
    """A guest whose end this host sees at once."""

    @property
    def alive(self) -> bool:
        """Whether the guest runs."""

    def failure(self, what: str) -> VicinalError:
        """Return an error that says what is wrong with the guest."""


_Guest = TypeVar("_Guest", bound=LocalGuest)


class LocalGuests(Generic[_Guest]):
    """The part of JobGuests that the VMs of a cluster and the pair of `vicinal guests` share.

    `regions` are the files of their regions: none, one for all guests, or one for each guest.
    """

    def __init__(self, guests: Sequence[_Guest] = (), regions: Sequence[Path] = ()) -> None:
        self.guests = list(guests)
        self.regions = list(regions)

    def ended_nodes(self) -> list[str]:
        """Names of the guests that do not run."""
        return [guest.name for guest in self.guests if not guest.alive]

    def check(self, names: Container[str] | None = None) -> None:
        """Mark members of ended guests as dead in the regions, and raise VicinalError.

        `names` are the guests that must still run; None means all.
        """
        for guest in self.guests:
            if (names is None or guest.name in names) and not guest.alive:
                for region in self.regions:
                    mark_dead(region, guest.name)
                raise guest.failure("it ended while the job ran")

    def inspect_all(self) -> tuple[RegionState, ...]:
        """The states of the regions now; empty without a region."""
        return tuple(inspect(region, patience=0) for region in self.regions)

    def traffic(self, job: int) -> JobTraffic | None:
        """What the regions count of the job with this number; None without a region."""
        states = self.inspect_all()
        return merge_traffic(job_traffic(each.of_job(job)) for each in states) if states else None
