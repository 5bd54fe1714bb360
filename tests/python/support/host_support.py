"""Hosts that ssh reaches, for tests: nodes of an ephemeral cluster, each with an sshd of its own.

The hosts have their own names, networks, processes and /dev/shm, but share the files of this
machine, like hosts with a shared filesystem.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
import pytest
from command_client import CommandServer
from launch_support import GUARD_SECONDS, NOBODY, package_path

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import NODE_DIRECTORY

SSHD = "/usr/sbin/sshd"


def shown_paths(stderr: str) -> dict[tuple[int, int], str]:
    """The table of `vicinal run --paths`: the path from each rank to each other rank."""
    rows = [line.split("│")[1:6] for line in stderr.splitlines() if line.startswith("│")]
    pairs = [row for row in rows if row[2].strip().isdigit()]  # not collectives of communicators
    paths = {(int(row[0]), int(row[2])): row[4].strip() for row in pairs}
    return {pair: path for pair, path in paths.items() if pair[0] != pair[1]}


def check_paths(stderr: str, hosts: Sequence[int]) -> None:
    """Assert that ranks of one host used the region, and ranks of two hosts the network.

    Each rank sends to the next rank. The MPI's collectives decide which other pairs talk, and
    differ between versions. `hosts` has the host of each rank, `stderr` a table of paths.
    """
    paths = shown_paths(stderr)
    count = len(hosts)
    assert {(rank, (rank + 1) % count) for rank in range(count)} <= set(paths), stderr
    right = {
        (sender, receiver): "region" if hosts[sender] == hosts[receiver] else "network"
        for sender, receiver in paths
    }
    assert paths == right, stderr


class Hosts:
    """Hosts node0, node1, ..., and a separate head that reaches them."""

    services: tuple[str, ...] = ("sshd",)
    """Names of the processes that stay on a host."""

    def __init__(self, count: int, directory: Path) -> None:
        if not Path(SSHD).exists() or os.geteuid() != 0:
            pytest.skip("hosts of a test need root, and sshd: apt-get install openssh-server")
        self.cluster = EphemeralCluster(nodes=count)
        self.directory = directory
        self._tools = directory / "bin"
        self._server: CommandServer | None = None

    def __enter__(self) -> Self:
        self.cluster.open()
        try:
            if not self.cluster.network:
                pytest.skip("nodes have no network of their own here")
            self._make_keys()
            for node in self.cluster.nodes:
                self.start_sshd(node.name)
        except BaseException:
            self.cluster.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._server is not None:
                self._server.close()
        finally:
            self.cluster.close()

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.cluster.nodes]

    def start_sshd(self, name: str) -> None:
        # The login shell of this user is not used: it may take long, and the host differs.
        self.cluster.run_in(
            name, ["mount", "--bind", str(self.directory / "passwd"), "/etc/passwd"]
        )
        self.cluster.run_in(name, [SSHD, "-f", str(self.directory / "sshd_config")])

    def entered(self, command: list[str]) -> list[str]:
        """The command line that runs `command` at the head, where all commands are given."""
        return self.cluster.head_command(command, self.directory)

    def command(self, *arguments: object) -> list[str]:
        """The command line that runs `vicinal` at the head."""
        return self.entered([sys.executable, "-m", "vicinal", *map(str, arguments)])

    def environment(self, **variables: str) -> dict[str, str]:
        # A user who is root in a container may be root with Open MPI too.
        allowed = {
            f"{package}_ALLOW_RUN_AS_ROOT{end}": "1"
            for package in ("OMPI", "PRTE")
            for end in ("", "_CONFIRM")
        }
        # These hosts share /tmp. Open MPI's daemons of two hosts would use one directory if they
        # have the same process number, and the first to end would remove it.
        apart = {
            "PRTE_MCA_prte_tmpdir_base": NODE_DIRECTORY,
            "OMPI_MCA_orte_tmpdir_base": NODE_DIRECTORY,
        }
        found = {"PATH": f"{self._tools}:{os.environ['PATH']}", "PYTHONPATH": package_path()}
        return os.environ | allowed | apart | found | {"COLUMNS": "200"} | variables

    def vicinal(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `vicinal` at the head until it ends."""
        if self._server is None:
            self._server = CommandServer(self.directory, self.entered)
        words = [str(argument) for argument in arguments]
        return self._server.run(words, self.directory, self.environment(**variables))

    def at_head(self, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command at the head until it ends."""
        words = [str(word) for word in command]
        return self._ended(self.cluster.head_command(words, self.directory), **variables)

    def _ended(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )

    def leftovers(self) -> dict[str, Sequence[str]]:
        """What a job left on each host: files in /dev/shm, and processes other than services."""
        left: dict[str, Sequence[str]] = {}
        for name in self.names:
            # Killed ranks of MPICH leave files of their own there, with and without Vicinal.
            listed = self.cluster.run_in(name, ["ls", "/dev/shm"]).split()
            files = [file for file in listed if not file.startswith("mpich_shm")]
            processes = []
            for process in self.cluster.processes(name):
                with suppress(psutil.Error):  # it may end at this moment
                    if process.name() not in self.services:
                        processes.append(process.name())
            if files or processes:
                left[name] = [*files, *processes]
        return left

    def _make_keys(self) -> None:
        key, host_key = self.directory / "key", self.directory / "host-key"
        for file in (key, host_key):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        shutil.copy(f"{key}.pub", self.directory / "authorized")
        public = Path(f"{host_key}.pub").read_text()
        (self.directory / "known").write_text(f"{','.join(self.names)} {public}")
        (self.directory / "sshd_config").write_text(
            f"HostKey {host_key}\nAuthorizedKeysFile {self.directory}/authorized\n"
            "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\nPrintMotd no\n"
        )
        (self.directory / "ssh_config").write_text(
            f"Host *\nIdentityFile {key}\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {self.directory}/known\nGlobalKnownHostsFile none\n"
        )
        (self.directory / "passwd").write_text(
            f"root:x:0:0:root:{self.directory}:/bin/sh\n"
            "sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n"
            "daemon:x:1:1::/:/usr/sbin/nologin\n"
            f"nobody:x:{NOBODY}:65534::/:/usr/sbin/nologin\n"
        )
        self._tools.mkdir()
        script = self._tools / "ssh"
        script.write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.directory}/ssh_config "$@"\n'
        )
        script.chmod(0o755)
        # sshd needs this directory. The head's /run is a file system of the cluster.
        self.cluster.run_in("head", ["mkdir", "-p", "/run/sshd"])
