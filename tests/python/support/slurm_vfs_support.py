"""A Slurm cluster whose hosts have SR-IOV VFs of fake cards, as GRES.

Each host's PCI devices are a tree of fake_cards.py instead of the kernel's, and nothing answers
writes to it. The cards have already done what a kernel does for such writes. A VF's interface
is real. Slurm, the plugin, the commands and their records are real.
"""

import json
from pathlib import Path
from typing import Any

from fake_cards import FakeHost, igb, mlx5
from slurm_option_support import REGIONS, VICINAL, OptionHosts
from slurm_support import CPUS

VFS = 2
"""Virtual functions of each card."""
FIRST, SECOND = "0000:01:08.0", "0000:01:08.1"
INFINIBAND = "0000:02:08.0"
RECORDS = "/run/vicinal-vfs"
_GUID = "0000:02ff:fe00:0001"


class VfHosts(OptionHosts):
    """Two hosts with a card of each kind. GRES are set by the lines that `install` prints."""

    def prepare(self) -> None:
        told: dict[str, list[str]] = {"gres": [], "node": []}
        for name in self.names:
            cards = self.make_vfs(name)
            mounts = f"mount --bind {cards} /sys/bus/pci && mkdir -p {RECORDS}"
            mounts += f" && mount -t tmpfs none {RECORDS}"
            self.cluster.run_in(name, ["sh", "-c", mounts])
            self.assign(name, "nobody")
            install = self.installation("install", name)
            said = [line.strip() for line in self.cluster.run_in(name, install).splitlines()]
            told["gres"] += [line for line in said if line.startswith(f"NodeName={name} ")]
            told["node"] = [line for line in said if line.startswith("Gres=")]
        text = self.slurm_conf.read_text()
        [gres] = told["node"]  # both hosts have it
        text = text.replace(f"CPUs={CPUS}", f"CPUs={CPUS} {gres}")
        self.slurm_conf.write_text(f"{text}GresTypes=vf\n")
        (self.slurm_conf.parent / "gres.conf").write_text("\n".join(told["gres"]) + "\n")

    def installation(self, what: str, name: str) -> list[str]:
        """The command line of `vicinal slurm install` or `check` on a host."""
        options = ["--vfs", "--directory", REGIONS, "--node", name]
        return ["env", f"SLURM_CONF={self.slurm_conf}", VICINAL, "slurm", what, *options]

    def assign(self, name: str, owner: str, *addresses: str, kept: bool = False) -> None:
        """Write records, as the helper does, that give these VFs of Ethernet cards to an
        owner.

        The records replace all others, or join them if `kept`.
        """
        record = {"owner": owner, "user": 0, "driver": "igbvf", "before": {}}
        found = self._records(name) if kept else {}
        records = {"physical": {}, "vfs": found | dict.fromkeys(addresses, record)}
        (self.root(name) / f"{RECORDS}/records.json".lstrip("/")).write_text(json.dumps(records))

    def owners(self, name: str) -> dict[str, str]:
        """The owners of a host's VFs, by its records."""
        return {address: record["owner"] for address, record in self._records(name).items()}

    def _records(self, name: str) -> dict[str, dict[str, Any]]:
        text = (self.root(name) / f"{RECORDS}/records.json".lstrip("/")).read_text()
        found: dict[str, dict[str, Any]] = json.loads(text)["vfs"]
        return found

    def nothing_left(self) -> bool:
        return super().nothing_left() and not any(self.owners(name) for name in self.names)

    def guid(self, name: str) -> str:
        """The GUID of the first VF of a host's InfiniBand card."""
        file = self.directory / f"cards-{name}/sys/bus/pci/devices/0000:02:00.0/sriov/0/port"
        return file.read_text().strip()

    def make_vfs(self, name: str) -> Path:
        """Make a host's cards and its VFs' interfaces. Returns its future /sys/bus/pci."""
        for number in range(VFS):
            self.cluster.run_in(name, ["ip", "tuntap", "add", f"eth1v{number}", "mode", "tap"])
        host = FakeHost(self.directory / f"cards-{name}", igb(), mlx5())
        for card in host.cards.values():
            host.write(host.device(card.address) / "sriov_numvfs", str(VFS))
        bus = host.sysfs / "bus/pci"
        host.files(bus, drivers_probe="")
        for driver in (bus / "drivers").iterdir():
            host.files(driver, unbind="")
        for number in range(VFS):  # the state after a GUID is set and a driver has read it
            port = host.device(f"{INFINIBAND[:-1]}{number}") / f"infiniband/mlx5_0v{number}"
            gid = f"fe80:0000:0000:0000:{_GUID}{number}"[: 4 * 10 - 1]
            host.files(port, ports__1__state="4: ACTIVE", ports__1__gids__0=gid)
        return bus
