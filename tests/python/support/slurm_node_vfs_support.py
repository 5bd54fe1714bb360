"""A Slurm cluster whose hosts' fake cards answer, so that VFs can move into nodes of jobs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_kernel
import fake_kernel_asked
from fake_kernel import NAME, VFS
from slurm_option_support import become
from slurm_vfs_support import FIRST, VfHosts

from vicinal.integrations.slurm.job_vfs import owner_of

USER = 1

_DEVICES = """
set -e
mkdir -p "$1"
mount -t tmpfs none "$1"
for file in null zero full random urandom tty; do
    touch "$1/$file"
    mount --bind "/dev/$file" "$1/$file"
done
for folder in pts shm mqueue net; do
    [ -d "/dev/$folder" ] || continue
    mkdir "$1/$folder"
    mount --rbind "/dev/$folder" "$1/$folder"
done
ln -s pts/ptmx "$1/ptmx"
ln -s /proc/self/fd "$1/fd"
mkdir "$1/infiniband"
for file in uverbs0 uverbs1 umad0 rdma_cm; do
    touch "$1/infiniband/$file"
    chmod 666 "$1/infiniband/$file"
done
mkdir "$1/vfio"
mount --rbind "$1" /dev
"""


class NodeVfHosts(VfHosts):
    """Hosts whose commands ask the fake kernel. All else is as in VfHosts."""

    services = (*VfHosts.services, NAME)

    def prepare(self) -> None:
        for what in ("vicinal", "helper"):
            script = self.directory / what
            words = [sys.executable, fake_kernel_asked.__file__, what]
            script.write_text(f'#!/bin/sh\nexec {" ".join(words)} {self.directory} "$@"\n')
            script.chmod(0o755)
        super().prepare()

    def installation(self, what: str, name: str) -> list[str]:
        options = ["--vfs", "--node", name, *map(str, self.installed())]
        program = str(self.directory / "vicinal")
        return ["env", f"SLURM_CONF={self.slurm_conf}", program, "slurm", what, *options]

    def make_vfs(self, name: str) -> Path:
        devices = ["sh", "-c", _DEVICES, "devices", str(self.directory / f"dev-{name}")]
        self.cluster.run_in(name, devices)
        serve = [sys.executable, fake_kernel.__file__, str(self.directory), name]
        self.cluster.run_in(name, serve)
        return self.directory / f"cards-{name}/sys/bus/pci"

    def interfaces(self, name: str) -> dict[str, int]:
        """The VFs' interfaces in a host's network, and their numbers there."""
        command = ["nsenter", f"--net=/proc/{self.first_process(name)}/ns/net"]
        done = subprocess.run(
            [*command, "ip", "-j", "link", "show"], check=True, stdout=subprocess.PIPE
        )
        return {
            each["ifname"]: each["ifindex"]
            for each in json.loads(done.stdout)
            if each["ifname"].startswith(("eth1", "vf", "dev"))
        }

    @contextmanager
    def with_vlans(self, words: str) -> Iterator[None]:
        """Give jobs VLANs of their own from this range. All hosts read one configuration."""
        name = self.names[0]
        install = self.installation("install", name)
        self.cluster.run_in(name, [*install, "--vlans", words])
        try:
            yield
        finally:
            self.cluster.run_in(name, install)

    def vlans(self, name: str) -> dict[str, str]:
        """The VLANs of the VFs that jobs have, of a host's Ethernet card, by owner."""
        program = str(self.directory / "vicinal")
        said = json.loads(self.cluster.run_in(name, [program, "vf", "list", "--json"]))
        [card] = (each for each in said["cards"] if "eth1" in each["interfaces"])
        return {each["owner"]: each["settings"]["vlan"] for each in card["vfs"] if each["owner"]}

    def set_vlan(self, name: str, vlan: str) -> None:
        """Let a host's card tag the frames of its first VF."""
        script = "import fake_kernel_asked, pathlib; fake_kernel_asked.ask(pathlib.Path("
        script += f"{str(self.directory)!r}), ip='link set dev eth1 vf 0 vlan {vlan}'.split())"
        there = ["env", f"PYTHONPATH={Path(fake_kernel.__file__).parent}", sys.executable]
        self.cluster.run_in(name, [*there, "-c", script])

    def step(self, file: str, gres: str, *options: str, user: int = USER) -> tuple[str, ...]:
        """The beginning of a command line that runs tasks in nodes with VFs."""
        value = f"--vicinal={self.directory}/{file}.yaml"
        name = "--job-name=granted"
        return (*become(user), "srun", value, f"--gres={gres}", "--chdir=/", name, *options)

    def allocate(self, *, user: int = USER) -> str:
        """Start a waiting job on the first host, whose node has a VF. Returns its number."""
        options = ("-wnode0", "-n1", "--gres=vf:eth1:1", f"--vicinal={self.directory}/1.yaml")
        command = ("salloc", "-Q", *options, "--no-shell", "--job-name=waits")
        done = self.at_head(*become(user), *command)
        assert done.returncode == 0, done.stderr
        listed = self.at_head("squeue", "-h", "--name=waits", "--format=%A").stdout.split()
        number = max(listed, key=int)
        done = self.at_head(*become(user), *self.later(number), "true")
        assert done.returncode == 0, done.stderr
        assert self.owners("node0") == {FIRST: owner_of(int(number))}
        return number

    def later(self, number: str) -> tuple[str, ...]:
        """The beginning of a command line that starts another step of the job."""
        return ("srun", f"--vicinal={self.directory}/1.yaml", f"--jobid={number}", "--chdir=/")

    def nothing_left(self) -> bool:
        whole = {f"eth1v{number}" for number in range(VFS)}
        return super().nothing_left() and all(set(self.interfaces(n)) == whole for n in self.names)
