"""PMIx for tasks in virtual machines: connections from a guest, and variables of its programs.

A script instead of ssh stands for the guest's sshd, and says on which port the sshd would listen.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.integrations.slurm.guest_pmix import GuestPmix, boot_commands, moved

PATIENCE = 60.0


class FakeShell:
    """The shell of a guest node1, where `ssh` is a script that records its arguments."""

    name = "node1"

    def __init__(self, directory: Path, script: str) -> None:
        self._ssh = directory / "ssh"
        self._ssh.write_text(f'#!/bin/sh\necho "$*" >>{directory}/asked\n{script}\n')
        self._ssh.chmod(0o755)

    def command(self, command: list[str], environment: dict[str, str]) -> list[str]:
        return [str(self._ssh), "-T", self.name, "--", *command, *environment]

    def failure(self, what: str) -> VicinalError:
        return VicinalError(what, "start the job again")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(PATIENCE)
        yield found


def way(directory: Path, server: socket.socket, script: str) -> GuestPmix:
    shell = cast("GuestShell", FakeShell(directory, script))
    return GuestPmix(shell, server.getsockname()[1], directory, Path("/supervisor"))


def test_what_connects_in_the_guest_reaches_the_server(
    tmp_path: Path, server: socket.socket
) -> None:
    pmix = way(tmp_path, server, "echo 4711")
    assert pmix.open() == 4711
    name = f"node1.pmix-{os.getpid()}"
    guests = []
    for number in range(3):
        guest = socket.socket(socket.AF_UNIX)
        guest.settimeout(PATIENCE)
        guest.connect(str(tmp_path / name))
        taken = server.accept()[0]
        guest.sendall(b"from %d" % number)
        assert taken.recv(100) == b"from %d" % number
        taken.sendall(b"to %d" % number)
        assert guest.recv(100) == b"to %d" % number
        guests.append((guest, taken))
    for number, (guest, taken) in enumerate(guests):
        if number:  # either end may close first
            guest.close()
            assert taken.recv(1) == b""
            taken.close()
        else:
            taken.close()
            assert guest.recv(1) == b""
            guest.close()
    pmix.close()
    spec = f"127.0.0.1:0:/supervisor/{name}"
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"-T -O forward -R {spec} node1",
        f"-T -O cancel -R {spec} node1",
    ]
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("script", ["echo sorry >&2; exit 255", "echo none; echo sorry >&2"])
def test_a_guest_that_does_not_listen_is_told(
    tmp_path: Path, server: socket.socket, script: str
) -> None:
    with pytest.raises(VicinalError, match="no socket for PMIx"):
        way(tmp_path, server, script).open()


def test_a_program_finds_the_server_in_its_guest() -> None:
    variables = {
        "PMIX_SERVER_URI2": "pmix-server.16;tcp4://127.0.0.1:5872",
        "PMIX_SERVER_URI9": "own;tcp4://127.0.0.1:22",
        "PMIX_SERVER_TMPDIR": "/var/spool/slurmd/pmix.1.0",
        "PMIX_DSTORE_21_BASE_PATH": "/var/spool/slurmd/pmix.1.0/ds21",
        "PMIX_RANK": "1",
        "PMIX_HOSTNAME": "host",
        "OWN": "tcp4://127.0.0.1:5872",
    }
    assert moved(variables, "node1", 5872, 4711) == {
        "PMIX_SERVER_URI2": "pmix-server.16;tcp4://127.0.0.1:4711",
        "PMIX_SERVER_URI9": "own;tcp4://127.0.0.1:22",
        "PMIX_RANK": "1",
        "PMIX_HOSTNAME": "node1",
        "PMIX_MCA_gds": "hash",
        "VICINAL_GUEST_USER": f"{os.geteuid()}:{os.getegid()}",
        "OWN": "tcp4://127.0.0.1:5872",
    }


@pytest.mark.parametrize(
    ("slurm", "mpi", "commands"),
    [
        ("", None, ""),
        ("TmpFS=/tmp\n", "PMIxDebug=1\n", ""),
        ("TmpFS=/scratch\n", None, "mkdir -p -m 1777 /scratch || :\n"),
        ("TmpFS=/s\n", "pmixclitmpdirbase = /run/a;b\n", "mkdir -p -m 1777 '/run/a;b' || :\n"),
        ("TmpFS=/scratch/%h\n", None, ""),
    ],
)
def test_a_guest_has_a_directory_instead_of_the_steps_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: str, mpi: str | None, commands: str
) -> None:
    """The guest gets the host's directory, unless that is /tmp or contains a pattern."""
    configuration = tmp_path / "slurm.conf"
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    assert boot_commands() == ""
    configuration.write_text(slurm)
    if mpi is not None:
        (tmp_path / "mpi.conf").write_text(mpi)
    assert boot_commands() == commands
