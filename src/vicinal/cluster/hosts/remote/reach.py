"""The ways to reach a job's hosts: ssh, or steps of a Slurm allocation."""

import shlex
from collections.abc import Sequence
from enum import StrEnum

SSH_OPTIONS = ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=4")
"""With these options ssh notices a lost host after about 20 s."""

_SSH_FAILED = 255


class Reach(StrEnum):
    """The program that runs a command on another host."""

    SSH = "ssh"
    SLURM = "srun"

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """Return the command line that runs `words` on a host, with this process's streams."""
        match self:
            case Reach.SSH:
                options = [
                    word for each in ("BatchMode=yes", *SSH_OPTIONS) for word in ("-o", each)
                ]
                return ["ssh", "-x", *options, host, shlex.join(words)]
            case Reach.SLURM:
                # --overlap: the ranks keep their processors. --unbuffered: each answer is a line
                # that the next request waits for.
                step = ["--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
                step += ["--mpi=none", "--cpu-bind=none", "--quiet", "--unbuffered"]
                return ["srun", *step, *words]

    @property
    def package(self) -> str:
        """The package that contains the program."""
        return {Reach.SSH: "openssh-client", Reach.SLURM: "Slurm's commands"}[self]

    def trial(self, host: str) -> str:
        """Return a command by which people can check that the host is reached."""
        match self:
            case Reach.SSH:
                return f"ssh {host} true"
            case Reach.SLURM:
                return f"srun --overlap --nodelist={host} --ntasks=1 true"

    def failed(self, status: int, said: str) -> bool:
        """Whether the connection failed, and not the command.

        `status` is the exit status, and `said` the last line of standard error.
        """
        match self:
            case Reach.SSH:
                return status == _SSH_FAILED
            case Reach.SLURM:
                return said.startswith("srun: error: ") and "task 0" not in said
