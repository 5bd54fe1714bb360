"""Cluster files as text, and the processors of a fake host."""

from pathlib import Path

from vicinal.cluster.file.model import Cluster
from vicinal.cluster.file.reading import read_cluster
from vicinal.host.topology import Cpu, NumaNode


def read(tmp_path: Path, text: str) -> Cluster:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    return read_cluster(file)


def host(sockets: int, cores: int, threads: int) -> tuple[list[Cpu], list[NumaNode]]:
    """A host whose hardware threads have Linux's numbers: first the first threads of all cores."""
    count = sockets * cores
    cpus = [
        Cpu(
            number=thread * count + core,
            core=core % cores,
            socket=core // cores,
            siblings=tuple(other * count + core for other in range(threads)),
        )
        for thread in range(threads)
        for core in range(count)
    ]
    numa = [
        NumaNode(
            number=socket,
            cpus=tuple(cpu.number for cpu in cpus if cpu.socket == socket),
            memory_bytes=0,
            available_bytes=0,
            distances=(),
            huge_pages=(),
        )
        for socket in range(sockets)
    ]
    return cpus, numa
