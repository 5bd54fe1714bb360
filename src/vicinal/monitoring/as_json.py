"""A sample of jobs as plain values, for JSON."""

import socket
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vicinal.monitoring.sampling import Change, JobSample, Sample

FORMAT = 1
"""Number of the JSON's format; it grows if a key goes or changes its meaning."""


def as_json(sample: Sample, change: Change, jobs: Iterable[JobSample]) -> dict[str, Any]:
    """A sample as plain values: sizes in bytes, rates a second, times in ISO 8601."""
    return {
        "format": FORMAT,
        "host": socket.gethostname(),
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "seconds": round(change.seconds, 6),
        "regions": [asdict(region) for region in sample.regions],
        "jobs": [_job(change, job) for job in jobs],
        "unreadable": list(sample.unreadable),
    }


def _job(change: Change, job: JobSample) -> dict[str, Any]:
    rates, pairs = change.jobs.get(job.key), change.pairs.get(job.key, {})
    return {
        "name": job.name,
        "job": job.job,
        "region": job.region.path,
        "ranks": job.ranks,
        "asleep": job.asleep,
        "arena_used": job.arena_used,
        "arena_bytes": job.arena_bytes,
        "counts": asdict(job.counts),
        "rates": None if rates is None else asdict(rates),
        "faults": [asdict(fault) for fault in job.faults],
        "members": [
            {
                "slot": member.slot,
                "rank": member.rank,
                "pid": member.pid,
                "host": member.hostname,
                "endpoint": member.endpoint,
                "condition": member.condition,
                "asleep": member.sleeping != 0,
                "arena_used": member.arena_used,
                "direct": asdict(member.direct),
            }
            for member in job.members
        ],
        "pairs": [
            asdict(pair)
            | dict(
                zip(
                    ("messages_per_second", "bytes_per_second"),
                    pairs.get((pair.sender, pair.receiver, pair.path), (None, None)),
                    strict=True,
                )
            )
            for pair in job.traffic.pairs
        ],
    }
