"""Workloads: the programs that studies measure, one driver a file."""

from vicinal.labs.study.workloads.driver import Driver


def drivers() -> dict[str, Driver]:
    """All drivers, by their names in study files."""
    from vicinal.labs.study.workloads.graph500 import Graph500
    from vicinal.labs.study.workloads.hpcc import Hpcc
    from vicinal.labs.study.workloads.imb import Imb
    from vicinal.labs.study.workloads.lammps import Lammps
    from vicinal.labs.study.workloads.libfabric import Libfabric
    from vicinal.labs.study.workloads.npb import Npb
    from vicinal.labs.study.workloads.osu import Osu
    from vicinal.labs.study.workloads.perftest import Perftest
    from vicinal.labs.study.workloads.pgas import Pgas
    from vicinal.labs.study.workloads.record import Record
    from vicinal.labs.study.workloads.sockets import Sockets
    from vicinal.labs.study.workloads.spec import Spec
    from vicinal.labs.study.workloads.transform import Transform

    known: list[Driver] = [
        *(Record(), Perftest(), Libfabric(), Sockets()),
        *(Osu(), Imb(), Pgas()),
        *(Transform(), Hpcc(), Lammps(), Npb(), Graph500(), Spec()),
    ]
    return {driver.name: driver for driver in known}
