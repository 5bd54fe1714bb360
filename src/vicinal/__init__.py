"""Vicinal: MPI between the containers and virtual machines of one host, at memory speed."""

__version__ = "0.1.0"
