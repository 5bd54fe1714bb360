"""Standard input of a job: rank 0 reads it, and no launcher stands in between.

Launchers differ in what they do to it. Open MPI's (PRRTE 3.0) never tells rank 0 where the
input ends, and Hydra leaves the other ranks waiting for theirs. So it goes through a FIFO
that rank 0 opens; the others get nothing to read.
"""

import os
import secrets
import subprocess

from vicinal.cluster.nodes.job_nodes import JobNodes
from vicinal.mpi.started import Stream


class JobInput:
    """Copies a stream into a FIFO in the cluster, from when it is made until close()."""

    def __init__(self, cluster: JobNodes, stream: Stream) -> None:
        name = f"input-{secrets.token_hex(4)}"
        self.path = f"{cluster.places.exchange}/{name}"
        """The FIFO, as nodes see it."""
        self._cluster = cluster
        self._fifo = cluster.exchange / name
        os.mkfifo(self._fifo, 0o600)
        self._copier = subprocess.Popen(
            cluster.head_command(["/bin/sh", "-c", 'exec cat > "$0"', self.path]),
            stdin=stream,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it ends by SIGPIPE where the program reads no more
            start_new_session=True,
        )

    def close(self) -> None:
        """Stop copying and remove the FIFO."""
        self._cluster.end_command(self._copier)
        self._fifo.unlink(missing_ok=True)
