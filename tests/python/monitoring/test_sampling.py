"""Samples of regions: rates, life, faults, and regions that are hostile or torn."""

import json
import os
import random
from pathlib import Path

import pytest
from written_region import WrittenRegion

from vicinal.base.errors import VicinalError
from vicinal.monitoring.as_json import as_json
from vicinal.monitoring.sampling import Counts, Rates, Sampler, change_between, host_regions
from vicinal.region import geometry as layout
from vicinal.region.commands import PATIENCE
from vicinal.region.states import Route

MOST = (1 << 64) - 1


def sampler(*paths: Path) -> Sampler:
    return Sampler(lambda: paths)


def two_ranks(path: Path) -> WrittenRegion:
    region = WrittenRegion(path)
    region.join(0, rank=0, arena_used=4096, collectives=5, collective_bytes=40)
    region.join(1, rank=1, sleeping=17)
    region.connect(0, 1, messages=10, bytes=1000)
    return region


def test_a_sample_sums_up_what_members_did(region_path: Path) -> None:
    region = two_ranks(region_path)
    region.beyond(1, 0, messages=3, bytes=30)
    (job,) = sampler(region_path).take().jobs
    assert (job.name, job.job, job.ranks, job.asleep) == ("written", 7, 2, 1)
    assert job.counts == Counts(10, 1000, 3, 30, 5, 40)
    assert job.arena_used == 4096
    assert job.region.free_slots == 2
    assert job.faults == ()
    assert 2 * layout.PAGE < job.arena_bytes < job.region.region_bytes


def test_a_rank_with_an_idle_endpoint_is_awake(region_path: Path) -> None:
    region = two_ranks(region_path)
    region.join(2, rank=0, endpoint=1, sleeping=17)
    region.join(3, rank=1, endpoint=1, sleeping=17)
    (job,) = sampler(region_path).take().jobs
    assert (job.ranks, job.asleep) == (2, 1)


def test_rates_are_differences_of_two_samples(region_path: Path) -> None:
    region = two_ranks(region_path)
    reader = sampler(region_path)
    before = reader.take()
    region.connect(0, 1, messages=30, bytes=1500)
    region.connect(1, 0, messages=6, bytes=8)
    now = reader.take()
    change = change_between(before, now)
    (job,) = now.jobs
    seconds = now.monotonic - before.monotonic
    assert change.jobs[job.key] == Rates(messages=26 / seconds, message_bytes=508 / seconds)
    assert change.pairs[job.key] == {
        (0, 1, "region"): (20 / seconds, 500 / seconds),
        (1, 0, "region"): (6 / seconds, 8 / seconds),
    }


def test_a_pair_that_moved_has_its_rate_on_its_new_path(region_path: Path) -> None:
    region = two_ranks(region_path)
    reader = sampler(region_path)
    before = reader.take()
    region.connect(0, 1, id=0, messages=12, bytes=1000, route=Route.NETWORK)
    now = reader.take()
    pairs = change_between(before, now).pairs[now.jobs[0].key]
    assert pairs == {(0, 1, "network"): (2 / (now.monotonic - before.monotonic), 0.0)}


def test_counts_that_became_smaller_have_no_rate(region_path: Path) -> None:
    """A member left, and another took its slot: a negative rate would be a lie."""
    region = two_ranks(region_path)
    reader = sampler(region_path)
    before = reader.take()
    region.connect(0, 1, messages=4, bytes=4)
    now = reader.take()
    assert change_between(before, now).jobs[now.jobs[0].key] == Rates()


def test_a_new_job_has_no_rates_yet(region_path: Path) -> None:
    region = WrittenRegion(region_path)
    reader = sampler(region_path)
    before = reader.take()
    region.join(0, rank=0)
    now = reader.take()
    assert before.jobs == ()
    assert change_between(before, now).jobs == {}
    assert as_json(now, change_between(before, now), now.jobs)["jobs"][0]["rates"] is None


def test_jobs_in_one_region_are_told_apart(region_path: Path) -> None:
    region = two_ranks(region_path)
    region.join(2, rank=0, job=9)
    region.connect(2, 0, messages=1, bytes=2)
    first, second = sampler(region_path).take().jobs
    assert (first.job, first.ranks, first.counts.messages) == (7, 2, 10)
    assert (second.job, second.ranks, second.counts.messages) == (9, 1, 1)
    for slot in (0, 1):
        region.leave(slot)
    assert [job.job for job in sampler(region_path).take().jobs] == [9]


def test_life_shows_by_heartbeats_from_sample_to_sample(
    region_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = two_ranks(region_path)
    clock = [100.0]
    monkeypatch.setattr("vicinal.monitoring.sampling.time.monotonic", lambda: clock[0])
    reader = sampler(region_path)

    def conditions() -> list[str]:
        return [member.condition for member in reader.take().jobs[0].members]

    assert conditions() == ["unknown", "unknown"]
    clock[0] += 1
    region.join(0, rank=0, heartbeat=3)
    assert conditions() == ["alive", "unknown"]
    clock[0] += PATIENCE - 1.5
    assert conditions() == ["alive", "unknown"]
    clock[0] += 1
    assert conditions() == ["alive", "dead"]
    clock[0] += 1
    assert conditions() == ["dead", "dead"]
    region.join(1, rank=1, heartbeat=1)
    assert conditions() == ["dead", "alive"]


def test_faults_are_named(region_path: Path) -> None:
    region = two_ranks(region_path)
    region.join(2, rank=2)
    region.condemn(2)
    region.connect(0, 1, id=0, route=Route.ENDED, ended=1)
    region.connect(1, 0, id=0, route=Route.ENDED)
    region.connect(1, 2, messages=1, ended=9)  # of an earlier owner of the slot
    (job,) = sampler(region_path).take().jobs
    assert [(fault.kind, fault.text) for fault in job.faults] == [
        ("dead", "rank 2 is dead (pid 102 on node2)"),
        ("violation", "rank 0 found that rank 1 broke the region's protocol"),
        ("ended", "rank 1 reaches rank 0 no more through the region"),
    ]
    assert job.region.free_slots == 2


def test_an_unreadable_region_is_one_line_beside_the_others(
    region_path: Path, tmp_path: Path
) -> None:
    two_ranks(region_path)
    torn = tmp_path / "torn\x1b[2J"
    torn.write_bytes(region_path.read_bytes()[:9000])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sample = sampler(torn, region_path, pipe, tmp_path / "gone", region_path).take()
    assert len(sample.jobs) == 1, "each file is read once"
    assert len(sample.unreadable) == 2, "a region that is gone belongs to an ended job"
    assert "is truncated" in sample.unreadable[0]
    assert "is not a regular file" in sample.unreadable[1]
    assert all(each.isprintable() for each in sample.unreadable)
    with pytest.raises(VicinalError, match="is truncated"):
        Sampler(lambda: [torn], strict=True).take()


def test_absurd_counts_are_shown_and_do_not_stop_the_reader(region_path: Path) -> None:
    region = WrittenRegion(region_path, label="x\x1b]0;")
    most = {"collectives": MOST, "one_sided_bytes": MOST, "arena_used": (1 << 32) - 1}
    for slot in range(region.members):
        region.join(slot, rank=(1 << 31) - slot, hostname=b"\xff\x1b[2J" * 12, job=slot, **most)
        for other in range(region.members):
            region.connect(slot, other, messages=MOST, bytes=MOST, route=99)
    reader = sampler(region_path)
    before = reader.take()
    now = reader.take()
    text = json.dumps(as_json(now, change_between(before, now), now.jobs))
    assert "\\u001b" not in text
    assert len(now.jobs) == region.members
    assert all(job.arena_used <= job.arena_bytes * job.ranks for job in now.jobs)


@pytest.mark.parametrize("seed", range(30))
def test_no_bytes_of_a_region_raise_anything_else(region_path: Path, seed: int) -> None:
    """Tables are overwritten by random bytes, and by words that are almost right."""
    region = two_ranks(region_path)
    drawn = random.Random(seed)
    end = layout.sections_offset(region.members) + layout.arena_offset(region.members)
    reader = sampler(region_path)
    with region_path.open("r+b", buffering=0) as file:
        for _ in range(20):
            for _ in range(drawn.randrange(1, 40)):
                word = drawn.choice(
                    [drawn.randbytes(8), bytes(8), b"\xff" * 8, b"\1\0\0\0\2\0\0\0"]
                )
                os.pwrite(file.fileno(), word, drawn.randrange(seed % 3 * 64, end) & ~3)
            sample = reader.take()
            assert len(sample.regions) + len(sample.unreadable) == 1
            json.dumps(as_json(sample, change_between(sample, sample), sample.jobs))


def test_hundreds_of_members_are_read_in_one_pass(region_path: Path) -> None:
    """Whatever they say about their jobs: as one job, and as a job for each member."""
    region = WrittenRegion(region_path, members=256)
    for job in (lambda _: 7, lambda slot: slot + 1):
        for slot in range(256):
            region.join(slot, rank=slot, job=job(slot))
            for other in (slot + 1, slot + 5, slot + 77):
                region.connect(slot, other % 256, messages=1, bytes=8)
        sample = sampler(region_path).take()
        assert sum(each.counts.messages for each in sample.jobs) == 3 * 256
        assert sum(each.ranks for each in sample.jobs) == 256


def test_regions_of_this_host_are_files_and_no_links(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, region_path: Path
) -> None:
    shared, slurm = tmp_path / "shm", tmp_path / "slurm"
    shared.mkdir()
    slurm.mkdir()
    user = os.geteuid()
    WrittenRegion(shared / f"vicinal-{user}-cluster")
    WrittenRegion(slurm / "job-12")
    (slurm / "job-12.77").touch()
    (shared / f"vicinal-{user}-link").symlink_to(region_path)
    (shared / f"vicinal-{user}-folder").mkdir()
    monkeypatch.setattr("vicinal.monitoring.sampling._SHARED", shared)
    monkeypatch.setattr("vicinal.monitoring.sampling._WELL_KNOWN", (shared / "none",))
    monkeypatch.setattr("vicinal.monitoring.sampling.DEFAULT_REGIONS", slurm)
    monkeypatch.setattr("vicinal.monitoring.sampling.running_regions", lambda **_: [[region_path]])
    WrittenRegion(region_path)
    assert host_regions() == [region_path, shared / f"vicinal-{user}-cluster", slurm / "job-12"]
