"""How the hosts of a job are reached: by ssh, or by steps inside of a Slurm allocation."""

import shlex
from collections.abc import Sequence
from enum import StrEnum

SSH_OPTIONS = ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=4")
"""With these ssh misses a host that is gone after some 20 seconds."""

_SSH_FAILED = 255


class Reach(StrEnum):
    """What runs a command on a host."""

    SSH = "ssh"
    SLURM = "srun"

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """The command line that runs `words` on a host, with our input and output."""
        match self:
            case Reach.SSH:
                options = [
                    word for each in ("BatchMode=yes", *SSH_OPTIONS) for word in ("-o", each)
                ]
                return ["ssh", "-x", *options, host, shlex.join(words)]
            case Reach.SLURM:
                # --overlap: the processors stay the ranks'. --unbuffered: an answer is a line, and
                # the next question waits for it.
                step = ["--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
                step += ["--mpi=none", "--cpu-bind=none", "--quiet", "--unbuffered"]
                return ["srun", *step, *words]

    @property
    def package(self) -> str:
        """What has to be installed for it."""
        return {Reach.SSH: "openssh-client", Reach.SLURM: "Slurm's commands"}[self]

    def trial(self, host: str) -> str:
        """A command for people, that shows whether a host is reached."""
        match self:
            case Reach.SSH:
                return f"ssh {host} true"
            case Reach.SLURM:
                return f"srun --overlap --nodelist={host} --ntasks=1 true"

    def failed(self, status: int, said: str) -> bool:
        """Whether it is the reason why a command ended, and not the command itself."""
        match self:
            case Reach.SSH:
                return status == _SSH_FAILED
            case Reach.SLURM:
                return said.startswith("srun: error: ") and "task 0" not in said
