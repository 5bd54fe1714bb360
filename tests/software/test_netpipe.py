"""NetPIPE: messages of every size between two ranks, and a check of each message.

The test uses two ranks. As Debian builds NetPIPE, more ranks all stop after the first size, in Open
MPI's own shared memory as well.
"""

from pathlib import Path

import pytest
from answers import netpipe_integrity, netpipe_times
from software_support import Record, check_region, check_success, vicinal_run

PROGRAM = "/usr/bin/NPopenmpi"

MODES = {
    "ping-pong": (),
    "preposted": ("-a",),
    "synchronous": ("-S",),
    "any-source": ("-z",),
    "stream": ("-s",),
    "both-ways": ("-2", "-a"),
}


@pytest.mark.parametrize("mode", MODES)
def test_integrity(mode: str, directory: Path, record: Record) -> None:
    upper = 4 << 20 if mode == "ping-pong" else 1 << 18
    program = [PROGRAM, "-i", "-u", upper, "-n", 10, "-p", 3, *MODES[mode]]
    done = vicinal_run(program, ranks=2, directory=directory, name="netpipe")
    check_success(done)
    moved = netpipe_integrity(done.stderr, upper)
    check_region(done, ranks=2, nodes=2, least_bytes=moved)
    record(done, "every size passed the integrity check")


def test_times(directory: Path, record: Record) -> None:
    """The test checks that the values are plausible. Other load may affect the speed."""
    upper = 1 << 20
    program = [PROGRAM, "-u", upper, "-n", 30, "-o", "np.out"]
    done = vicinal_run(program, ranks=2, directory=directory, name="netpipe")
    check_success(done)
    times = netpipe_times(done.stderr, upper)
    rows = [line.split() for line in (directory / "np.out").read_text().splitlines()]
    assert len(rows) == done.stderr.count("-->")
    check_region(done, ranks=2, nodes=2, least_bytes=2 * times.bytes)
    record(done, f"from {times.latency:.2f} us, to {times.bandwidth:,.0f} Mbit/s")
