"""The driver of libfabric without MPI: its own fi_pingpong, between two nodes."""

import re

from vicinal.errors import VicinalError
from vicinal.mpi.libraries import Mpi
from vicinal.study.file.model import Workload
from vicinal.study.result.layout import Figure
from vicinal.study.workloads.driver import Measured, Program, Tools
from vicinal.study.workloads.installed import debian_program
from vicinal.study.workloads.options import Options
from vicinal.study.workloads.printed import number, refused, same_sizes, single
from vicinal.study.workloads.remote import by_size, client_script, server_script

OPERATIONS = ("latency", "bandwidth")
_SIZES = (64, 4096, 65536)
_MOST = 1 << 26
_HEAD = ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"]
_PORT = 47592
_PROVIDER = re.compile(r"[\w;]{1,64}", re.ASCII)


class Libfabric:
    """Means over all iterations, the program's own: half a round trip, and what that is in MB/s.

    The environment says which provider it uses, by FI_PROVIDER, or the option `provider`.
    """

    name = "libfabric"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the program is there; no MPI is needed."""
        del workload, mpi
        try:
            debian_program(tools, "libfabric", "fi_pingpong", "libfabric-bin")
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """A pair for each size."""
        del mpi
        options = Options(workload, ("provider", "endpoint", "messages", "port"))
        options.operation(OPERATIONS)
        options.ranks(2, 2)
        sizes = workload.sizes or _SIZES
        if any(not 1 <= size <= _MOST for size in sizes):
            raise options.error(
                "has a size that fi_pingpong cannot send", f"sizes are from 1 to {_MOST} bytes here"
            )
        path = str(debian_program(tools, "libfabric", "fi_pingpong", "libfabric-bin"))
        both = [path, "-e", options.choice("endpoint", ("rdm", "msg", "dgram"), "rdm")]
        both += ["-m", options.choice("messages", ("msg", "tagged"), "tagged")]
        if options.given("provider"):
            provider = str(workload.options["provider"])
            if not _PROVIDER.fullmatch(provider):
                raise options.error(f"has provider: {provider!r}", "write a name, such as tcp")
            both += ["-p", provider]
        port = str(options.number("port", _PORT, least=1024, most=65535))
        both += ["-I", str(workload.samples), "-S", "$size"]
        return Program(
            client_script([*both, "-P", port, "{server}"], sizes),
            2,
            server=server_script([*both, "-B", port], sizes),
        )

    def read(self, workload: Workload, stdout: str) -> Measured:
        """A line for each size."""
        found = by_size("fi_pingpong", stdout)
        same_sizes("fi_pingpong", workload, list(found))
        figures = [
            figure
            for size, lines in found.items()
            for figure in _figures(size, lines, workload.samples)
        ]
        return Measured(figures=figures, facts={"program": "fi_pingpong", "clock": "system"})


def _figures(size: int, lines: list[str], sent: int) -> list[Figure]:
    heads = [at for at, line in enumerate(lines) if line.split() == _HEAD]
    at = int(single("fi_pingpong", f"a table of {size} bytes", [str(head) for head in heads]))
    cells = lines[at + 1].split() if at + 1 < len(lines) else []
    if len(cells) != len(_HEAD):
        raise refused("fi_pingpong", f"it has no figures of {size} bytes")
    # From 1024 on it writes about how many there were, such as 1.4k.
    shown = [
        str(value) if value < 1024 else cell for value, cell in ((size, cells[0]), (sent, cells[1]))
    ]
    if cells[:3] != [*shown, f"={shown[1]}"]:
        raise refused("fi_pingpong", f"it did not send {sent} times {size} bytes")
    rate = number("fi_pingpong", cells[5], zero=True)
    microseconds = number("fi_pingpong", cells[6])
    # Both come from one time; a hundredth is the last digit of each.
    if abs(rate - size / microseconds) > 0.006 + 0.006 * rate / microseconds:
        raise refused("fi_pingpong", f"time and rate of {size} bytes do not agree")
    return [
        Figure("mean", microseconds, "µs", size),
        Figure("mean", size / microseconds, "MB/s", size),
    ]
