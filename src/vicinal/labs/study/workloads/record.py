"""The driver of Vicinal's own program record: every iteration's time of one MPI operation."""

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import ProgramFact
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.recording import Clock, Recording, read_recording
from vicinal.mpi.libraries import Mpi, installation

PAIRS = ("latency", "bandwidth", "bidirectional")
"""Between a rank of the first half and one of the second each."""
REMOTE = ("put", "get", "accumulate", "put-bidirectional")
"""One-sided, between such pairs."""
COLLECTIVES = ("barrier", "bcast", "allgather", "allreduce", "alltoall")
"""Of all ranks, each of which records."""

_SYNCHRONIZATIONS = ("flush", "lock", "pscw", "fence")
_WINDOWS = ("bandwidth", "bidirectional", *REMOTE)
_NUMBERS = ("allreduce", "accumulate")
_NUMBER_BYTES = 8
_SIZES_MAX = 64
_BYTES_MAX = 2**31 - 1
_SAMPLES_MAX = 100_000_000


class Record:
    """Times of single iterations, in nanoseconds."""

    name = "record"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the program and that MPI are there."""
        del workload, tools
        try:
            installation(mpi)
            mpi_program(mpi, "record")
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """One start of it for all sizes."""
        del tools
        options = Options(workload, ("window", "synchronization", "clock"))
        operation = options.operation((*PAIRS, *REMOTE, *COLLECTIVES))
        paired = operation not in COLLECTIVES
        ranks = options.ranks(2 if paired else 1, multiple=2 if paired else 1)
        _check_sizes(options, operation)
        if not 1 <= workload.samples <= _SAMPLES_MAX or not workload.seconds > 0:
            raise options.error(
                f"asks for {workload.samples} samples in {workload.seconds} s",
                f"ask for 1 to {_SAMPLES_MAX} samples in more than 0 s",
            )
        arguments = [operation]
        if workload.sizes:
            arguments += ["--sizes", ",".join(map(str, workload.sizes))]
        arguments += ["--samples", str(workload.samples), "--seconds", f"{workload.seconds:g}"]
        if options.given("window"):
            _only_for(options, "window", operation, _WINDOWS)
            arguments += ["--window", str(options.number("window", 64, most=1 << 20))]
        if operation in REMOTE:
            default = "pscw" if operation == "put-bidirectional" else "flush"
            arguments += [
                "--synchronization",
                options.choice("synchronization", _synchronizations(operation), default),
            ]
        elif options.given("synchronization"):
            _only_for(options, "synchronization", operation, REMOTE)
        arguments += ["--clock", options.choice("clock", ("auto", "counter", "system"), "auto")]
        return Program([str(mpi_program(mpi, "record")), *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """All of its samples, of the operation, ranks and sizes that were asked for."""
        recording = read_recording(stdout)
        _check_answer(workload, recording)
        facts: dict[str, object] = {
            "program": "record",
            "sample": recording.sample,
            ProgramFact.APART.value: recording.apart,
            ProgramFact.CLOCK.value: ", ".join(sorted({each.name for each in recording.clocks})),
            ProgramFact.RECORDING.value: max(each.recording_ns for each in recording.clocks),
            "synchronization": recording.synchronization,
            "mpi": recording.mpi,
            "hosts": recording.hosts,
            "clocks": [_clock_facts(clock) for clock in recording.clocks],
        }
        return Measured(series=recording.series, facts=facts)


def _synchronizations(operation: str) -> tuple[str, ...]:
    if operation == "put-bidirectional":
        return ("pscw", "fence")
    return _SYNCHRONIZATIONS


def _only_for(options: Options, name: str, operation: str, operations: tuple[str, ...]) -> None:
    if operation not in operations:
        raise options.error(
            f"has the option {name}, and {operation} has none",
            f"leave it out: it is for {', '.join(operations)}",
        )


def _check_sizes(options: Options, operation: str) -> None:
    sizes = options.workload.sizes
    if operation == "barrier":
        options.no_sizes()
    if len(sizes) > _SIZES_MAX or len(set(sizes)) < len(sizes):
        raise options.error(
            f"has {len(sizes)} sizes, {len(set(sizes))} of them different",
            f"give it at most {_SIZES_MAX}, each once",
        )
    least = 1 if operation in REMOTE else 0
    if any(not least <= size <= _BYTES_MAX for size in sizes):
        raise options.error(
            f"has a size that {operation} cannot have", f"sizes are from {least} to {_BYTES_MAX}"
        )
    if operation in _NUMBERS and any(size % _NUMBER_BYTES for size in sizes):
        raise options.error(
            f"has a size that is no multiple of {_NUMBER_BYTES} bytes",
            f"{operation} adds numbers of {_NUMBER_BYTES} bytes: give it multiples of that",
        )


def _check_answer(workload: Workload, recording: Recording) -> None:
    """Raise VicinalError where it is whole, and the answer to another question."""
    operation, ranks = workload.operation, workload.ranks
    recording_ranks = range(ranks) if operation in COLLECTIVES else range(ranks // 2)
    sizes = list(workload.sizes)
    if operation == "barrier":
        sizes = [0]
    elif not sizes:
        sizes = list(dict.fromkeys(each.size for each in recording.series))
    wanted = [(size, rank) for size in sizes for rank in recording_ranks]
    found = [(each.size, each.rank) for each in recording.series]
    if recording.operation != operation:
        problem = f"{recording.operation} and not {operation}"
    elif len(recording.hosts) != ranks:
        problem = f"{len(recording.hosts)} ranks and not {ranks}"
    elif not found or found != wanted:
        problem = "other sizes or ranks than were asked for"
    else:
        return
    raise VicinalError(
        f"the program record of the workload {workload.name} measured {problem}",
        "see whether something else wrote to the job's standard output, and run it again",
    )


def _clock_facts(clock: Clock) -> dict[str, object]:
    return {
        "clock": clock.name,
        "nanoseconds_per_tick": clock.nanoseconds_per_tick,
        "calibrated_seconds": clock.calibrated_seconds,
        "recording_ns": clock.recording_ns,
        "iteration_ns": clock.iteration_ns,
    }
