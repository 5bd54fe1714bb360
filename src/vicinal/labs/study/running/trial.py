"""One trial: a fresh launch, and what it printed read."""

from dataclasses import dataclass

from vicinal.base.errors import VicinalError
from vicinal.labs.study.environments.launched import Launched
from vicinal.labs.study.environments.opened import OpenEnvironment
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Condition, Trial
from vicinal.labs.study.result.manifest import now
from vicinal.labs.study.running.conditions import Conditions
from vicinal.labs.study.running.plan import Planned
from vicinal.labs.study.workloads.driver import Driver, Measured, Tools


@dataclass(frozen=True)
class Tried:
    """What became of it."""

    trial: Trial
    measured: Measured | None
    """None where it failed."""
    failure: str = ""
    launched: Launched | None = None


def run_trial(
    planned: Planned,
    workload: Workload,
    driver: Driver,
    environment: OpenEnvironment,
    tools: Tools,
    seconds: float,
) -> Tried:
    """Launch it, for so many seconds at most. Whatever goes wrong with it is a failed trial."""
    started, conditions = now(), Conditions()
    program = driver.program(workload, environment.environment.mpi, tools)
    launched = environment.launch(program, seconds)
    found = conditions.end() | {Condition.EMULATED.value: environment.emulated}

    def made(measured: Measured) -> Trial:
        return Trial(
            environment=planned.named,
            workload=planned.workload,
            block=planned.block,
            started=started,
            seconds=launched.seconds,
            conditions=found
            | ({Condition.PROGRAM.value: measured.facts} if measured.facts else {}),
            figures=tuple(measured.figures),
        )

    failure = launched.trouble
    if failure is None:
        try:
            measured = driver.read(workload, launched.stdout.decode(errors="replace"))
            failure = _lacking(measured) or environment.spread_trouble(measured.facts, program)
            if failure is None:
                return Tried(made(measured), measured)
        except VicinalError as error:
            failure = str(error)
    return Tried(made(Measured()), None, failure, launched)


def _lacking(measured: Measured) -> str | None:
    if not measured.series and not measured.figures:
        return "the program ended well and printed nothing that was measured"
    return None
