"""The jobs on this host as metrics, named by the conventions of OpenMetrics.

The series are by region and by job, never by pair or member, so their number is bounded. A region
may hold members that lie about their job: at most MOST_JOBS jobs of a region have series of their
own, and all others together are the job OTHER.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import vicinal
from vicinal.monitoring.sampling import Counts, JobSample, RegionSample, Sample, Sampler
from vicinal.mpi.traffic import NETWORK_PATH, REGION_PATH

MOST_JOBS = 16
OTHER = "other"

_CONDITIONS = ("alive", "dead", "holding", "joining", "unknown")
_FAULTS = ("dead", "violation", "ended")
_JOB = ("region", "job_id")
"""Not `job`, because that is the label of Prometheus for what it scrapes."""


@dataclass(frozen=True)
class _Job:
    """A job's series: the jobs of which the figures are summed up, and their labels."""

    labels: tuple[str, str]
    name: str
    parts: Sequence[JobSample]

    @property
    def counts(self) -> Counts:
        rows = zip(*(astuple(each.counts) for each in self.parts), strict=True)
        return Counts(*map(sum, rows))


class JobsCollector(Collector):
    """Takes a sample for each scrape, in any thread."""

    def __init__(self, sampler: Sampler, first: Sample | None = None) -> None:
        """`first` is what the first scrape tells, if it was taken already."""
        self._sampler = sampler
        self._first = first
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Read the regions, and return all metrics."""
        with self._lock:
            sample, self._first = self._first or self._sampler.take(), None
        yield from _of_host(sample)
        yield from _of_regions(sample.regions)
        jobs = list(_jobs(sample))
        yield from _of_jobs(jobs)
        yield from _counters(jobs)


def _jobs(sample: Sample) -> Iterator[_Job]:
    """The jobs by region; of more than MOST_JOBS, those with the most ranks by themselves."""
    for region in sample.regions:
        jobs = [job for job in sample.jobs if job.region is region]
        jobs.sort(key=lambda job: (-job.ranks, job.job))
        for job in jobs[:MOST_JOBS]:
            yield _Job((region.path, str(job.job)), job.name, [job])
        if rest := jobs[MOST_JOBS:]:
            yield _Job((region.path, OTHER), rest[0].name, rest)


def _of_host(sample: Sample) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "vicinal_build",
        "Version of Vicinal that read the regions.",
        {"version": vicinal.__version__},
    )
    yield GaugeMetricFamily(
        "vicinal_unreadable_regions",
        "Regions that could not be read: damaged, of another version, or not permitted.",
        value=len(sample.unreadable),
    )
    yield GaugeMetricFamily(
        "vicinal_read_seconds",
        "Time that reading all regions took.",
        sample.seconds,
        unit="seconds",
    )


def _of_regions(regions: Sequence[RegionSample]) -> Iterator[Metric]:
    figures = (
        ("region_size", "Bytes of the region.", "bytes", "region_bytes"),
        ("region_reserved", "Bytes of the region that have memory.", "bytes", "reserved_bytes"),
        ("region_heap", "Bytes of all heaps of the region.", "bytes", "heap_bytes"),
        (
            *("region_heap_reserved", "Bytes of all heaps that have memory.", "bytes"),
            "heap_reserved_bytes",
        ),
        ("region_slots", "Member slots of the region.", "", "slots"),
        ("region_free_slots", "Slots that a new member can take.", "", "free_slots"),
    )
    for name, text, unit, attribute in figures:
        family = GaugeMetricFamily(f"vicinal_{name}", text, labels=["region"], unit=unit)
        for region in regions:
            family.add_metric([region.path], getattr(region, attribute))
        yield family


def _of_jobs(jobs: Sequence[_Job]) -> Iterator[Metric]:
    info = InfoMetricFamily(
        "vicinal_job", "Name of the program or cluster, from the region's label.", labels=_JOB
    )
    figures = (
        ("ranks", "Ranks that have not left.", "", "ranks"),
        ("asleep_ranks", "Ranks that may sleep until a peer wakes them.", "", "asleep"),
        ("arena", "Bytes for the messages of the members.", "bytes", "arena_bytes"),
        ("arena_used", "Used bytes for the messages of the members.", "bytes", "arena_used"),
    )
    for job in jobs:
        info.add_metric(job.labels, {"name": job.name})
    yield info
    for name, text, unit, attribute in figures:
        family = GaugeMetricFamily(f"vicinal_job_{name}", text, labels=_JOB, unit=unit)
        for job in jobs:
            family.add_metric(job.labels, sum(getattr(each, attribute) for each in job.parts))
        yield family
    yield from _by_kind(jobs)


def _by_kind(jobs: Sequence[_Job]) -> Iterator[Metric]:
    """Gauges with a label of a few fixed values."""
    families = {
        name: GaugeMetricFamily(f"vicinal_job_{name}", text, labels=(*_JOB, label))
        for name, text, label in (
            ("members", "Endpoints that have not left, by condition.", "condition"),
            ("pairs", "Pairs of ranks with messages in the region, by current path.", "path"),
            ("faults", "Faults that the region shows.", "kind"),
        )
    }
    for job in jobs:
        seen = {
            "members": (_CONDITIONS, [m.condition for each in job.parts for m in each.present]),
            "pairs": (
                (REGION_PATH, NETWORK_PATH),
                [pair.path for each in job.parts for pair in each.traffic.pairs],
            ),
            "faults": (_FAULTS, [fault.kind for each in job.parts for fault in each.faults]),
        }
        for name, (kinds, found) in seen.items():
            for kind in kinds:
                families[name].add_metric((*job.labels, kind), found.count(kind))
    yield from families.values()


def _counters(jobs: Sequence[_Job]) -> Iterator[Metric]:
    """Counters of what jobs did; they begin again if members of a job leave and come."""
    messages = CounterMetricFamily(
        "vicinal_messages",
        "Messages sent, to members of the region or over the network to peers outside.",
        labels=(*_JOB, "peers"),
    )
    volume = CounterMetricFamily(
        "vicinal_message_bytes", "Bytes of these messages.", labels=(*_JOB, "peers"), unit="bytes"
    )
    direct = {
        attribute: CounterMetricFamily(f"vicinal_{name}", text, labels=_JOB, unit=unit)
        for attribute, name, text, unit in (
            ("collectives", "collectives", "Collectives without messages, at each rank.", ""),
            ("collective_bytes", "collective", "Bytes that ranks wrote for others.", "bytes"),
            ("one_sided", "one_sided_operations", "One-sided operations without messages.", ""),
            ("one_sided_bytes", "one_sided", "Bytes that ranks read and wrote there.", "bytes"),
        )
    }
    for job in jobs:
        counts = job.counts
        for peers, number, count in (
            ("members", counts.messages, counts.message_bytes),
            ("outside", counts.outside_messages, counts.outside_bytes),
        ):
            messages.add_metric((*job.labels, peers), number)
            volume.add_metric((*job.labels, peers), count)
        for attribute, family in direct.items():
            family.add_metric(job.labels, getattr(counts, attribute))
    yield messages
    yield volume
    yield from direct.values()
