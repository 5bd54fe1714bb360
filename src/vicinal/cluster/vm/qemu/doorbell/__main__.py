"""The server as a process.

    python -m vicinal.cluster.vm.qemu.doorbell LISTENER MEMORY VECTORS CLIENTS

The first two are descriptors that it inherits. When it is ready it writes a line on stdout.
With `CLAIM FILE` behind them, a third descriptor and the path of the file that it is of, it is
one that nobody waits for: doorbell/lasting.py says how it is found again.
"""

import socket
import sys
from pathlib import Path

from vicinal.base.claim import claim
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.qemu.doorbell.server import DoorbellServer


def main() -> None:
    """Serve until killed."""
    listener, memory, vectors, clients = map(int, sys.argv[1:5])
    if len(sys.argv) > 5 and not claim(int(sys.argv[5]), Path(sys.argv[6])):
        sys.exit("another one serves there, or nobody wants it any more")
    try:
        server = DoorbellServer(
            socket.socket(fileno=listener), memory, vectors=vectors, clients=clients
        )
    except VicinalError as error:
        sys.exit(str(error))
    try:
        sys.stdout.write("ready\n")
        sys.stdout.close()
    except BrokenPipeError:
        sys.exit("nobody waits for it any more")
    server.serve()


if __name__ == "__main__":
    main()
