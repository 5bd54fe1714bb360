"""The server as a process.

    python -m vicinal.cluster.vm.qemu.doorbell LISTENER MEMORY VECTORS CLIENTS [CLAIM FILE] READY

LISTENER and MEMORY are descriptors that it inherits, and so is READY, where it writes a line when
it is ready. With CLAIM, a descriptor of FILE, nobody waits for its end: base/daemon.py says how it
is found again.
"""

import os
import socket
import sys
from pathlib import Path

from vicinal.base.daemon import claim
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.qemu.doorbell.server import DoorbellServer


def main() -> None:
    """Serve until killed."""
    *words, ready = sys.argv[1:]
    listener, memory, vectors, clients = map(int, words[:4])
    if len(words) > 4 and not claim(int(words[4]), Path(words[5])):
        sys.exit("another one serves there, or nobody wants it any more")
    try:
        server = DoorbellServer(
            socket.socket(fileno=listener), memory, vectors=vectors, clients=clients
        )
    except VicinalError as error:
        sys.exit(str(error))
    try:
        os.write(int(ready), b"ready\n")
        os.close(int(ready))
    except BrokenPipeError:
        sys.exit("nobody waits for it any more")
    server.serve()


if __name__ == "__main__":
    main()
