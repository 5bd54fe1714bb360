"""The server as a process.

    python -m vicinal.cluster.vm.qemu.doorbell LISTENER MEMORY VECTORS CLIENTS [CLAIM FILE] READY

The server inherits the descriptors LISTENER, MEMORY and READY. It writes a line to READY when
clients can connect. CLAIM is a descriptor of FILE, for a server that outlives the command; later
commands find it by this file (base/daemon.py).
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
        sys.exit("another server has claimed this file, or the file was removed")
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
        sys.exit("the command that started this server has ended")
    server.serve()


if __name__ == "__main__":
    main()
