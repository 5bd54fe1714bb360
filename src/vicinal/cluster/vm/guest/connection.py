"""Connects ssh to a guest's virtio port: `python -I -S connection.py SOCKET`.

It is ssh's ProxyCommand with ProxyUseFdpass: it opens QEMU's end of the port, a Unix socket, says
the byte that the guest starts its sshd at (guest_init.sh), hands the open socket over to ssh, and
is gone. It loads nothing of Vicinal, which would take longer than what it does.
"""

import socket
import sys


def main() -> None:
    """Open the socket that is named by the argument and pass it to whom stdout belongs."""
    with socket.socket(socket.AF_UNIX) as port, socket.socket(fileno=1) as ssh:
        port.connect(sys.argv[1])
        port.sendall(b"!")
        socket.send_fds(ssh, [b"\0"], [port.fileno()])
        ssh.detach()


if __name__ == "__main__":
    main()
