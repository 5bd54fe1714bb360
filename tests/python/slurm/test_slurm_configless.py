"""The option --vicinal on hosts whose slurmd fetches its configuration from a real slurmctld.

Each host has an /etc/slurm of its own, which is empty on hosts with a slurmd.
"""

import signal
import subprocess
from pathlib import Path

import pytest
from process_support import signal_all
from slurm_option_support import REGIONS, VICINAL, OptionHosts, become, wait_until

from vicinal.cluster.nodes.layout import HEAD

USER = 1
FILE = "name: lab\nnodes:\n  - {name: inner, count: 2}\n"
CONFIGURATION = "/etc/slurm"
FETCHED = "/run/slurm"
MUNGE = "/run/munge"


class ConfiglessHosts(OptionHosts):
    """Two hosts without Slurm's files, and a head with them, where the option is installed."""

    def environment(self, **variables: str) -> dict[str, str]:
        found = super().environment(**variables)
        del found["SLURM_CONF"]
        return found

    def _configure(self) -> None:
        super()._configure()
        with self.slurm_conf.open("a") as file:
            file.write("SlurmctldParameters=enable_configless\n")

    def own_configuration(self, name: str) -> Path:
        """The directory /etc/slurm of a host or of the head."""
        return self.slurm_conf.parent if name == HEAD else self.directory / f"{name}-etc"

    def prepare(self) -> None:
        # Without a slurm.conf, clients find munge only by this path.
        socket = self.slurm_conf.parent / "munge.socket"
        self.on(HEAD, f"mkdir -p {MUNGE} && ln -s {socket} {MUNGE}/munge.socket.2")
        for name in (HEAD, *self.names):
            own = self.own_configuration(name)
            own.mkdir(exist_ok=True)
            self.on(name, f"mount --bind {own} {CONFIGURATION}")
        for name in self.names:
            self.on(name, f"mkdir -p {FETCHED} && mount -t tmpfs -o mode=755 none {FETCHED}")
        # At slurmctld's host, the option is installed when all daemons run.

    def start_slurmd(self, name: str) -> None:
        self.on(name, f"unset SLURM_CONF; slurmd -N {name} --conf-server {HEAD}")

    def on(self, name: str, script: str) -> str:
        """The output of a script on a host. The script must succeed."""
        return self.cluster.run_in(name, ["sh", "-c", script])

    def is_told(self, name: str) -> bool:
        """Whether the host's slurmd has a plugstack.conf that includes Vicinal's file."""
        return "vicinal.conf" in self.on(name, f"cat {FETCHED}/conf/plugstack.conf || true")

    def vicinal_on(self, name: str, command: str) -> subprocess.CompletedProcess[str]:
        """Run `vicinal slurm` on a host, as an administrator does."""
        words = (VICINAL, "slurm", command)
        options = self.installed() if command != "remove" else ()
        return self.at_head("ssh", name, *words, *options)


@pytest.mark.long
def test_hosts_that_fetch_their_configuration() -> None:
    """Hosts fetch plugstack.conf only. Each host needs the files that plugstack.conf includes."""
    task = ("sh", "-c", "echo $SLURMD_NODENAME $VICINAL_REGION")
    step = (*become(USER), "srun", "--vicinal", "-N2", "--chdir=/", *task)
    with ConfiglessHosts.opened() as hosts, hosts.clean():
        advice = "run `vicinal slurm install` where slurmctld is, and `scontrol reconfigure`"
        assert advice in hosts.vicinal_on("node0", "check").stdout
        OptionHosts.prepare(hosts)
        assert hosts.at_head("scontrol", "reconfigure").returncode == 0
        wait_until(lambda: all(map(hosts.is_told, hosts.names)))
        without = hosts.at_head(*step)
        assert sorted(without.stdout.splitlines()) == ["node0", "node1"], without.stderr
        for name in hosts.names:
            before = hosts.vicinal_on(name, "check")
            assert before.returncode == 1
            assert f"ok: {FETCHED}/conf/plugstack.conf includes {CONFIGURATION}" in before.stdout
            assert "vicinal.variables lacks the expected contents: run" in before.stdout
            done = hosts.vicinal_on(name, "install")
            assert [line for line in done.stdout.splitlines() if line.startswith("wrote ")] == [
                f"wrote {CONFIGURATION}/vicinal.variables",
                f"wrote {CONFIGURATION}/plugstack.conf.d/vicinal.conf",
            ], done.stderr
            # The epilog works as on other hosts: slurmd looks for it when it starts.
            signal_all(hosts.running(name, "slurmd"), signal.SIGKILL)
            hosts.start_slurmd(name)
            after = hosts.vicinal_on(name, "check")
            assert after.returncode == 0, after.stdout
        wait_until(lambda: hosts.at_head("sinfo", "-h", "-t", "idle", "-o", "%D").stdout == "2\n")
        region = hosts.at_head(*step)
        said = sorted(line.split() for line in region.stdout.splitlines())
        assert [name for name, _ in said] == hosts.names, region.stderr
        assert all(region.startswith(f"file:{REGIONS}/job-") for _, region in said)
        value = f"--vicinal={hosts.cluster_file('two.yaml', FILE)}"
        nodes = hosts.at_head(*become(USER), "srun", value, "-N2", "--chdir=/", "hostname")
        assert sorted(nodes.stdout.split()) == ["inner0", "inner1"], nodes.stderr
        wait_until(hosts.nothing_left)
        for name in hosts.names:
            assert hosts.vicinal_on(name, "remove").returncode == 0
            assert not any(hosts.own_configuration(name).iterdir())
            assert hosts.is_told(name)
