"""Which CPUs are measured on."""

from vicinal.base.errors import VicinalError
from vicinal.launch.cores import usable_cpus


def choose_cpus() -> list[int]:
    """Two CPUs to pin two ranks to, of different cores where there are two.

    Raises VicinalError where this process may use only one CPU.
    """
    cpus = usable_cpus()[:2]
    if len(cpus) < 2:
        raise VicinalError(
            "only one core is usable here, and two ranks that poll need one each",
            "allow this process two cores (taskset, cpuset), or measure on another machine",
        )
    return cpus
