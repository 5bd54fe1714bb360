"""A user's operations with keys of a cluster file that concern the host, with virtual machines.

    unshare --net --mount python keys_scenario.py DIRECTORY

test_cluster_keys.py runs it, in a network namespace that represents the host: with a bridge that
leads to this process, and with taps. It raises an error if anything is wrong.
"""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from domain_support import ordinary_user, private_daemon
from guest_support import GUARD_SECONDS
from test_cluster_vms import lend_image

from vicinal.cluster.nodes.network import find_tool
from vicinal.cluster.nodes.vm.links import ALLOWED, HELPERS
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

BRIDGE, TAP, USERS_TAP = "site0", "site1", "site2"
HOST = "10.9.0.254"
IP = find_tool("ip") or "ip"

LINKED = """name: {name}
nodes:
  - name: a
    backend: vm
    memory: 640M
    network: {{bridge: site0, address: 10.9.0.1/24}}
    image:
      packages: [tree]
      files: {{tools: /opt/tools, note: /home/mpi/note, note2: /bin/note}}
    first_boot:
      - /opt/tools/hello
      - echo "user $(id -u)"; ip address show dev lan0 | grep -o "10.9.0.1/24" && touch /etc/first
      - |
        test -e /etc/first &&
        echo the second one
    each_boot: [touch /etc/each]
  - {{name: b, backend: vm, memory: 640M, network: {{tap: site1, address: 10.9.0.2/24}}}}
  - {{name: c, backend: vm, memory: 640M, network: none}}
region: {{members: 8}}
"""
# An unprivileged user's file, at a tap, and by QEMU's helper. The second command fails in both.
FAILING = """name: {name}
nodes:
  - {{name: d, backend: vm, memory: 640M, network: {{tap: site2, address: 10.9.0.4/24}}}}
  - {{name: e, backend: vm, memory: 640M, network: {{bridge: site0, address: 10.9.0.5/24}}}}
first_boot:
  - ping -c 1 -w 60 10.9.0.254 | grep "1 packets received"
  - echo "not all of it"; false
region: none
"""


def ip(*arguments: str) -> str:
    done = subprocess.run([IP, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def make_network() -> None:
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{HOST}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for tap, user in ((TAP, "root"), (USERS_TAP, "nobody")):
        ip("tuntap", "add", tap, "mode", "tap", "user", user)
        ip("link", "set", tap, "master", BRIDGE, "up")


def ports() -> set[str]:
    return {each["ifname"] for each in json.loads(ip("-j", "link", "show", "master", BRIDGE))}


class Trial:
    """One user's commands for one cluster."""

    def __init__(
        self, directory: Path, before: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self.name = f"v{os.getpid()}-keys"
        self.directory = directory
        self.file = directory / "cluster.yaml"
        self.before = before
        self.variables = {
            **os.environ,
            **variables,
            "XDG_STATE_HOME": str(directory / "state"),
        }

    @property
    def vms(self) -> Path:
        return self.directory / "state/vicinal/clusters" / self.name / "vms"

    def call(self, *arguments: str | Path, status: int | None = 0) -> str:
        """The output of a command, whose exit status must be `status`."""
        done = subprocess.run(
            [*self.before, "-m", "vicinal", *map(str, arguments)],
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
        what = f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert status in (None, done.returncode), what
        assert "Traceback" not in done.stderr, what
        return done.stdout + done.stderr

    def up(self, text: str) -> None:
        self.file.write_text(text.format(name=self.name))
        began = time.monotonic()
        self.call("up", self.file)
        print(f"up: {time.monotonic() - began:.1f} s", flush=True)

    def inside(self, node: str, *command: str, status: int = 0) -> str:
        return self.call("exec", "-c", self.name, node, *command, status=status)


def lend_tun(directory: Path) -> None:
    """Let all users open their own taps, as is usual on hosts, but not on this machine."""
    device = directory / "tun"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    device.chmod(0o666)
    subprocess.run(["mount", "--bind", str(device), "/dev/net/tun"], check=True)


def lend_helper(directory: Path) -> None:
    """Let unprivileged users use the bridge by QEMU's helper, as an administrator may."""
    helper = next(each for each in HELPERS if each.exists())
    own = directory / helper.name
    shutil.copy(helper, own)
    own.chmod(0o4755)
    subprocess.run(["mount", "--bind", str(own), str(helper)], check=True)
    for name in ("upper", "work"):
        (directory / name).mkdir()
    layers = f"lowerdir=/etc,upperdir={directory}/upper,workdir={directory}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, "/etc"], check=True)
    ALLOWED.parent.mkdir(exist_ok=True)
    ALLOWED.write_text(f"allow {BRIDGE}\n")


def check_reach(trial: Trial) -> None:
    """Both linked VMs reach each other's sshd through the host's network; so does the host."""
    for node, address in (("a", "10.9.0.2"), ("b", "10.9.0.1")):
        heard = trial.inside(node, "sh", "-c", f"nc -w 20 {address} 22 </dev/null | head -c 4")
        assert heard == "SSH-", heard
        with socket.create_connection((address, 22), timeout=60) as connection:
            assert connection.recv(4) == b"SSH-"


def links(trial: Trial) -> None:
    """VMs at a bridge, at a tap, and without any network."""
    before = ports()
    (trial.directory / "tools").mkdir()
    for file, text in (("tools/hello", "echo hello from a file"), ("note2", "exit 0")):
        (trial.directory / file).write_text(f"#!/bin/sh\n{text}\n")
        (trial.directory / file).chmod(0o755)
    (trial.directory / "note").write_text("a note\n")
    trial.up(LINKED)
    assert len(ports() - before) == 1, ports()
    assert "10.9.0.1/24" in trial.inside("a", "ip", "address", "show", "dev", "lan0")
    check_reach(trial)
    assert "lan0" not in trial.inside("c", "ip", "link")
    assert "eth" not in trial.inside("c", "ip", "link")
    trial.inside("a", "test", "-e", "/etc/first", "-a", "-e", "/etc/each")
    console = (trial.vms / "a.console").read_text()
    for line in ("hello from a file", "user 0", "10.9.0.1/24", "the second one"):
        assert line in console.splitlines(), console
    # Packages and files exist with the image's owners, and in no other VM.
    assert trial.inside("a", "tree", "-ifn", "--noreport", "/opt").split() == [
        *("/opt", "/opt/tools", "/opt/tools/hello")
    ]
    trial.inside("b", "test", "!", "-e", "/usr/bin/tree", "-a", "!", "-e", "/opt/tools")
    trial.inside("a", "sh", "-c", "echo more >>~/note && touch ~/new /tmp/new && note")
    # The job uses the VMs' own network and the region, as if there were no other network.
    program = mpi_program(Mpi.MPICH, "verify")
    job = ("run", "-c", trial.name, "--paths", "-n")
    said = trial.call(*job, "2", program, "--only", "sizes", "--max-size", "4096", "--rounds", "1")
    assert "region" in said
    assert "c has no network: place" in trial.call(*job, "3", program, status=1)
    # The launcher of its job needs no other VM.
    launcher = f"{Path(program).parents[3]}/build/mpi/mpich/bin/mpiexec"
    assert trial.inside("c", launcher, "-n", "2", "hostname").split() == ["c", "c"]
    # It is saved as it is, although its next boot runs other commands than its first boot.
    trial.call("save", trial.name)
    assert ports() == before
    trial.call("restore", trial.name)
    check_reach(trial)
    trial.inside("a", "test", "-e", "/etc/first")
    trial.call("stop", trial.name)
    assert ports() == before
    trial.call("start", trial.name)
    check_reach(trial)
    trial.inside("a", "tree", "--version")
    (trial.directory / "note").write_text("another\n")
    assert "vms/main  (the file changes it)\n    additions" in trial.call(
        "plan", trial.file, status=2
    )
    # Its file system is new, and only the commands of each boot have run in it.
    trial.inside("a", "test", "!", "-e", "/etc/first", "-a", "-e", "/etc/each")
    assert "the second one" not in (trial.vms / "a.console").read_text()
    trial.call("down", trial.name)
    assert ports() == before
    assert "UP" in ip("link", "show", "dev", TAP)


def a_first_boot_that_fails(trial: Trial) -> None:
    """`up` fails, shows the command's output, and leaves nothing."""
    trial.file.write_text(FAILING.format(name=trial.name))
    before = ports()
    said = trial.call("up", "--quiet", trial.file, status=1)
    print(said, flush=True)
    assert "1 packets received" in said
    assert "not all of it | vicinal-guest: error: first_boot: this command ended" in said
    kept = Path(said.split()[-1])
    assert "not all of it" in kept.read_text()
    kept.unlink()
    assert ports() == before
    assert not trial.vms.exists()
    assert trial.call("down", trial.name).endswith(f"{trial.name} does not exist\n")


def main() -> None:
    directory = Path(sys.argv[1])
    make_network()
    lend_tun(directory)
    lend_helper(directory)
    directory.chmod(0o711)  # for the unprivileged user, who owns a part of it
    users = directory / "user"
    users.mkdir()
    before, variables = ordinary_user(users)
    lend_image(users)
    a_first_boot_that_fails(Trial(users, before, variables))
    with private_daemon() as uri:
        trial = Trial(directory, [sys.executable], {"LIBVIRT_DEFAULT_URI": uri})
        try:
            links(trial)
        finally:
            trial.call("down", trial.name, status=None)


if __name__ == "__main__":
    main()
