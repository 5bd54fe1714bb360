"""Connects ssh to a guest's virtio port: `python -I -S connection.py SOCKET`.

This is ssh's ProxyCommand with ProxyUseFdpass. It opens QEMU's end of the port, a Unix socket, and
sends the byte at which the guest starts its sshd (guest_init.sh). Then it passes the open socket to
ssh and ends. It imports nothing of Vicinal, because that would take longer than its work.
"""

import socket
import sys


def main() -> None:
    """Open the socket that the argument names, and pass it to the process behind stdout."""
    with socket.socket(socket.AF_UNIX) as port, socket.socket(fileno=1) as ssh:
        port.connect(sys.argv[1])
        port.sendall(b"!")
        socket.send_fds(ssh, [b"\0"], [port.fileno()])
        ssh.detach()


if __name__ == "__main__":
    main()
