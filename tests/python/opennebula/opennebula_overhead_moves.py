"""Part of opennebula_overhead.py: actions on VMs with a region or a VF, on fake hosts.

opennebula_fake_process.py lists the fakes. The guest gives up a device at once, and a stand-in for
ssh starts the other host's script: the figures contain neither a guest's time nor a network's. The
driver's own waiting time is listed separately.
"""

import base64
import os
import pickle
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fake_cards import FakeCard, fake_vfs, igb, mlx5
from fake_libvirt_files import domain_file, start_domain
from opennebula_fake_process import HOST, STILL
from opennebula_lab import Rank
from opennebula_support import Host
from test_opennebula_network import document, first_of, nic

from vicinal.integrations.opennebula.deploy import add_region
from vicinal.integrations.opennebula.installation import Installation
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.request import Limits, RegionRequest

VM, OTHER = 7, 8
NAME = f"one-{VM}"
_RUNS = (
    "<domain type='test'><name>one-{vm}</name><memory>8192</memory>"
    "<os><type>hvm</type></os></domain>"
)

_STOCK = """\
#!/bin/bash
# A stand-in that starts and moves nothing: it says that a fake domain is elsewhere.
cat >/dev/null
case $(basename "$0") in
    save) mv "$FAKE_HOST/$1.domain" "$2"; echo "$OTHERS" >"$STAND_IN" ;;
    restore) mv "$1" "$FAKE_HOST/$3.domain"; echo "$ALL" >"$STAND_IN" ;;
    migrate)
        mv "$FAKE_HOST/$1.domain" "$FAKE_HOST/../$2/$1.domain"
        echo "$OTHERS" >"$STAND_IN"
        echo "$ALL" >"$FAKE_HOST/../$2/nodes.xml" ;;
esac
"""
_SSH = """\
#!/bin/bash
# A stand-in that goes nowhere: the other host is a directory beside.
for command do :; done
here={here} other={other}
export FAKE_HOST=$other STAND_IN=$other/nodes.xml VICINAL_OPENNEBULA_STATE=$other/state
exec sh -c "${{command//$here/$other}}"
"""
_PYTHON = """\
#!/bin/sh
exec '{python}' -I '{process}' "$@"
"""


@dataclass
class Took:
    """The times of an action, in seconds."""

    all: float
    stock: float
    """The stock script without the driver."""
    waited: float
    """The part of `all` in which the driver slept until an event."""
    processor: float = 0.0
    """The processor time of the action, without other work of this machine."""


class FakeHosts:
    """Hosts a and b: a runs a VM with a region, and optionally another VM of the job and a rank."""

    def __init__(self, directory: Path, *, others: bool, rank: bool) -> None:
        self.directory, self.others, self.with_rank = directory, others, rank
        self.request = RegionRequest(5, "job42", 8 << 20, 16)
        self.rank: Rank | None = None
        self.checkpoint = directory / "checkpoint"
        for name in "ab":
            (directory / name / "regions").mkdir(parents=True)
        self.hosts = {name: Host(directory / name) for name in "ab"}
        for name, host in self.hosts.items():
            prepare(host)
            other = directory / ("b" if name == "a" else "a")
            ssh = host.directory / "bin/ssh"
            ssh.parent.mkdir()
            ssh.write_text(_SSH.format(here=host.directory, other=other))
            ssh.chmod(0o755)
        self.a = self.hosts["a"]

    def vm_runs(self) -> None:
        """Reset the hosts: the VM runs on a, and nothing is on b."""
        for host in self.hosts.values():
            shutil.rmtree(host.state, ignore_errors=True)
            for file in host.directory.glob("regions/*"):
                file.unlink()
            domain_file(host.directory, NAME).unlink(missing_ok=True)
            host.nodes.write_text("<node></node>")
            (host.directory / STILL).unlink(missing_ok=True)
        self.a.nodes.write_text(self._nodes(VM))
        running = {VM, OTHER} if self.others else {VM}
        records = Records(self.a.state, lambda: running, self.a.directory / "regions")
        for vm in running:
            with records.held(vm, self.request, Limits()):
                pass
        text = f"<domain type='kvm'><name>{NAME}</name></domain>".encode()
        start_domain(self.a.directory, NAME, add_region(text, VM, self.request).decode())
        if self.with_rank:
            self.rank = Rank(self.a.directory / "regions" / self.request.name, 0)

    def _nodes(self, *own: int) -> str:
        vms = (*own, OTHER) if self.others else own
        return f"<node>{''.join(_RUNS.format(vm=vm) for vm in vms)}</node>"

    def act(self, action: str, *arguments: str) -> Took:
        """Run an action on a with the driver."""
        waited = self.a.directory / "waited"
        waited.unlink(missing_ok=True)
        before = _processor()
        done = self._run("vicinal", action, *arguments)
        slept = sum(float(line) for line in waited.read_text().splitlines())
        return Took(done, 0, slept, _processor() - before)

    def stock(self, action: str, *arguments: str) -> float:
        """Run only the stock script."""
        return self._run("kvm", action, *arguments)

    def _run(self, driver: str, action: str, *arguments: str) -> float:
        script = self.a.remotes / "vmm" / driver / action
        environment = {
            **self.a.variables(),
            HOST: str(self.a.directory),
            "ALL": self._nodes(VM),
            "OTHERS": self._nodes(),
            "PATH": f"{self.a.directory}/bin:{os.environ['PATH']}",
        }
        began = time.perf_counter()
        with subprocess.Popen(
            [str(script), *arguments, str(VM), "a"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        ) as process:
            assert process.stdin is not None
            process.stdin.write("x")
            process.stdin.close()
            if self.rank is not None:
                while process.poll() is None:
                    self.rank.still = (self.a.directory / STILL).exists()
                    time.sleep(0.005)
            assert process.stdout is not None
            said = process.stdout.read()
        took = time.perf_counter() - began
        assert process.returncode == 0, said
        assert not said, said
        return took

    def end_rank(self) -> None:
        if self.rank is not None:
            assert not self.rank.is_in
            self.rank.end()
            self.rank = None

    def measure(self, action: str) -> Took:
        """Measure save or migrate of a running VM, or restore of a saved VM."""
        words = {
            "save": (NAME, str(self.checkpoint), "a"),
            "restore": (str(self.checkpoint), "a", NAME),
            "migrate": (NAME, "b", "a"),
        }[action]
        self.vm_runs()
        if action == "restore":
            self.act("save", NAME, str(self.checkpoint), "a")
            self.end_rank()
        took = self.act(action, *words)
        self.end_rank()
        where = self.hosts["b" if action == "migrate" else "a"]
        assert (
            action == "save" or self.request.name in domain_file(where.directory, NAME).read_text()
        )
        self.with_rank, rank = False, self.with_rank
        self.vm_runs()
        if action == "restore":
            self.stock("save", NAME, str(self.checkpoint), "a")
        took.stock = self.stock(action, *words)
        self.with_rank = rank
        return took


class FakeCards:
    """A host with a card; a VM has some of the card's VFs."""

    def __init__(self, directory: Path, card: FakeCard, kind: str, count: int) -> None:
        directory.mkdir()
        self.host = Host(directory)
        prepare(self.host)
        fake, vfs = fake_vfs(directory / "card", card)
        vfs.create(card.address, 4, owner="cloud")
        (directory / "cards.pickle").write_bytes(pickle.dumps(fake))
        nics = [nic(first_of(kind, at), mac=f"02:00:0a:00:00:0{at}") for at in range(count)]
        self.given = base64.b64encode(document(*nics)).decode()

    def measure(self, action: str) -> Took:
        waited = self.host.directory / "waited"
        waited.unlink(missing_ok=True)
        script = self.host.remotes / "vnm/vicinal" / action
        began, before = time.perf_counter(), _processor()
        done = subprocess.run(
            [str(script), "-"],
            input=self.given,
            capture_output=True,
            text=True,
            env={**self.host.variables(), HOST: str(self.host.directory)},
        )
        took = time.perf_counter() - began
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        slept = sum(map(float, waited.read_text().splitlines()))
        return Took(took, 0, slept, _processor() - before)


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def prepare(host: Host) -> None:
    """Install the driver's scripts, which start the fake process."""
    python = host.directory / "python"
    process = Path(__file__).with_name("opennebula_fake_process.py")
    python.write_text(_PYTHON.format(python=sys.executable, process=process))
    python.chmod(0o755)
    for action in ("save", "restore", "migrate"):
        (host.remotes / "vmm/kvm" / action).write_text(_STOCK)
    Installation(host.remotes, python).install()


def trials(directory: Path) -> dict[str, Callable[[], Took]]:
    """The measurements, by name."""
    found: dict[str, Callable[[], Took]] = {}
    kinds = {
        "nobody runs MPI": (False, False),
        "a rank leaves": (False, True),
        "a rank leaves, others stay": (True, True),
    }
    for number, (words, (others, rank)) in enumerate(kinds.items()):
        hosts = FakeHosts(directory / str(number), others=others, rank=rank)
        for action in ("save", "restore", "migrate"):
            if action == "restore" and others:
                continue

            def measure(hosts: FakeHosts = hosts, action: str = action) -> Took:
                return hosts.measure(action)

            found[f"{action}, {words}"] = measure
    for count, words in ((1, "a VF"), (4, "four VFs")):
        for kind, card in (("igb", igb()), ("mlx5", mlx5())):
            cards = FakeCards(directory / f"{kind}-{count}", card, kind, count)
            for action in ("pre", "clean"):

                def measure_network(cards: FakeCards = cards, action: str = action) -> Took:
                    return cards.measure(action)

                found[f"network's {action}, {words} of {kind}"] = measure_network
    return found
