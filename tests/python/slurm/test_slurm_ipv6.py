"""Whole jobs of a real Slurm on hosts that reach each other only by IPv6."""

import json
from collections.abc import Iterator

import pytest
from slurm_option_support import VICINAL, OptionHosts, become
from slurm_support import CPUS

from vicinal.cluster.nodes.layout import HEAD
from vicinal.cluster.nodes.network import BRIDGE, INTERFACE
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

pytestmark = pytest.mark.long

USER = 1
FILE = "name: lab\nnodes:\n  - {name: inner, count: 4}\nregion: {members: 16}\n"


class Ipv6Hosts(OptionHosts):
    """Two hosts and a head, whose interfaces each have an IPv6 address and no IPv4 address."""

    def node_addresses(self) -> dict[str, str]:
        """The address of each host."""
        return {name: f"fd00::{number}" for number, name in enumerate((HEAD, *self.names), 1)}

    def prepare(self) -> None:
        for name, address in self.node_addresses().items():
            device = BRIDGE if name == HEAD else INTERFACE
            script = (
                f"ip -4 address flush dev {device} && cd /proc/sys/net/ipv6/conf && "
                f"echo 0 >lo/disable_ipv6 && echo 0 >{device}/disable_ipv6 && "
                f"ip -6 address add {address}/64 dev {device} nodad"
            )
            self.cluster.run_in(name, ["sh", "-c", script])
        lines = "\n".join(f"{address} {name}" for name, address in self.node_addresses().items())
        self.cluster.run_in(HEAD, ["sh", "-c", f"echo '127.0.0.1 localhost\n{lines}' >/etc/hosts"])
        super().prepare()
        self.cluster_file("four.yaml", FILE)

    def _configure(self) -> None:
        super()._configure()
        *lines, nodes, partition = self.slurm_conf.read_text().splitlines()
        assert nodes.startswith("NodeName=")
        lines += ["CommunicationParameters=EnableIPv6,DisableIPv4"]
        for name in self.names:
            lines += [
                f"NodeName={name} NodeAddr={self.node_addresses()[name]} CPUs={CPUS} State=UNKNOWN"
            ]
        self.slurm_conf.write_text("\n".join([*lines, partition, ""]))


@pytest.fixture(scope="module")
def hosts() -> Iterator[Ipv6Hosts]:
    with Ipv6Hosts.opened() as opened:
        yield opened


@pytest.fixture
def clean(hosts: Ipv6Hosts) -> Iterator[Ipv6Hosts]:
    """Hosts without traces of jobs before and after the test."""
    with hosts.clean():
        yield hosts


def good_checks(text: str) -> list[dict[str, object]]:
    """The records that the program verify prints, none of which may have errors."""
    checks = [json.loads(line) for line in text.splitlines() if line.startswith('{"')]
    assert not [each for each in checks if each["errors"]]
    return checks


def test_hosts_have_no_way_to_each_other_in_ipv4(clean: Ipv6Hosts) -> None:
    """Without this, the other tests would prove nothing. `check` finds the IPv6 addresses."""
    result = clean.at_head("srun", "-N2", "ip", "-4", "-o", "address")
    assert result.returncode == 0, result.stderr
    assert {line.split()[1] for line in result.stdout.splitlines()} == {"lo"}
    assert "ok: all hosts have addresses" in clean.at_head(VICINAL, "slurm", "check").stdout


@pytest.mark.parametrize(("mpi", "way"), [(Mpi.MPICH, "pmi2"), (Mpi.OPENMPI, "pmix")])
@pytest.mark.parametrize("value", ["region", "four.yaml"])
def test_mpi_over_both_hosts(clean: Ipv6Hosts, mpi: Mpi, way: str, value: str) -> None:
    """Two ranks on each host use the host's region, and the network between hosts."""
    if value != "region":
        value = f"{clean.directory}/{value}"
    program = (mpi_program(mpi, "verify"), "--max-size", "65536")
    step = ("srun", f"--vicinal={value}", f"--mpi={way}", "--chdir=/", "-N2", "--ntasks-per-node=2")
    result = clean.at_head(*become(USER), *step, *program)
    assert result.returncode == 0, result.stderr
    assert len(good_checks(result.stdout)) > 10


def test_frames_of_nodes_fit_into_those_of_their_hosts(clean: Ipv6Hosts) -> None:
    """The nodes themselves reach each other by IPv4, as on other hosts."""
    step = (
        "srun",
        f"--vicinal={clean.directory}/four.yaml",
        "--chdir=/",
        "-N2",
        "--ntasks-per-node=2",
    )
    result = clean.at_head(*become(USER), *step, "ip", "-j", "address", "show", "dev", "eth0")
    links = [json.loads(line)[0] for line in result.stdout.splitlines()]
    assert [link["mtu"] for link in links] == [1500 - 70] * 4, result.stderr
    addresses = [each["local"] for link in links for each in link["addr_info"]]
    assert sorted(addresses) == [f"10.0.0.{number}" for number in range(1, 5)]
