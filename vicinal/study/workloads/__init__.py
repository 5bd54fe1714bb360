"""Workloads: what is run to be measured, one driver a file."""

from vicinal.study.workloads.driver import Driver


def drivers() -> dict[str, Driver]:
    """All drivers, by the names that study files know them by."""
    from vicinal.study.workloads.graph500 import Graph500
    from vicinal.study.workloads.hpcc import Hpcc
    from vicinal.study.workloads.imb import Imb
    from vicinal.study.workloads.lammps import Lammps
    from vicinal.study.workloads.libfabric import Libfabric
    from vicinal.study.workloads.npb import Npb
    from vicinal.study.workloads.osu import Osu
    from vicinal.study.workloads.perftest import Perftest
    from vicinal.study.workloads.pgas import Pgas
    from vicinal.study.workloads.record import Record
    from vicinal.study.workloads.sockets import Sockets
    from vicinal.study.workloads.spec import Spec
    from vicinal.study.workloads.transform import Transform

    known: list[Driver] = [
        *(Record(), Perftest(), Libfabric(), Sockets()),
        *(Osu(), Imb(), Pgas()),
        *(Transform(), Hpcc(), Lammps(), Npb(), Graph500(), Spec()),
    ]
    return {driver.name: driver for driver in known}
