"""The time of the driver's actions next to the stock ones: python opennebula_overhead.py [TIMES]

The stock scripts do next to nothing, so the difference is the driver's own time. The region has 8
MiB. libvirt is the library with its test driver, which answers at once.
opennebula_overhead_moves.py measures on fakes what the test driver and this host cannot do.
"""

import base64
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# pytest sets this path for tests; a user starts this program by hand.
sys.path.append(str(Path(__file__).parents[1] / "support"))

from opennebula_overhead_moves import Took, trials
from opennebula_support import Host, asks, deployment_file, vm_document

from vicinal.integrations.opennebula.installation import Installation


def seconds(run: Callable[[], "subprocess.CompletedProcess[str]"]) -> float:
    began = time.perf_counter()
    done = run()
    took = time.perf_counter() - began
    assert done.returncode in (0, 1), done.stderr
    return took


def main(times: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        host = Host(Path(directory))
        for action in ("pre", "clean"):  # a plain driver, which calls its hooks
            driver = host.remotes / "vnm/bridge" / action
            driver.parent.mkdir(exist_ok=True)
            driver.write_text("run_hooks")
        Installation(host.remotes, Path(sys.executable), ("bridge",)).install()
        for action in ("deploy", "cancel", "shutdown", "save", "migrate"):
            usual = host.remotes / "vmm/kvm" / action
            usual.write_text("#!/bin/bash\ncat >/dev/null\n")

        def network(
            action: str, driver: str = "vicinal", asked: str = ""
        ) -> "subprocess.CompletedProcess[str]":
            script = str(host.remotes / "vnm" / driver / action)
            text = base64.b64encode(vm_document(1, host.owner, asked).encode()).decode()
            return subprocess.run([script], input=text, capture_output=True, text=True)

        def stock() -> "subprocess.CompletedProcess[str]":
            script = str(host.remotes / "vmm/kvm/deploy")
            text = deployment_file(1)
            return subprocess.run([script], input=text, capture_output=True, text=True)

        # A running VM holds this region, so that other VMs find it.
        host.nodes.write_text(
            "<node><domain type='test'><name>one-9</name><memory>8192</memory>"
            "<os><type>hvm</type></os></domain></node>"
        )
        host.deploy(9)
        runs: dict[str, Callable[[], subprocess.CompletedProcess[str]]] = {
            "stock script": stock,
            "deploy, nothing asked for": lambda: host.deploy(1, ""),
            "cancel, no region": lambda: host.end(1),
            "deploy, makes and removes a region": lambda: host.deploy(2, asks("new")),
            "deploy, region is there": lambda: host.deploy(3),
            "cancel, of a VM with a region": lambda: host.end(9),
            "save, no region": lambda: host.end(1, "save"),
            "snapshot_create, refused": lambda: host.end(9, "snapshot_create"),
            "network's pre, no VFs": lambda: network("pre"),
            "network's post, no VFs": lambda: network("post"),
            "network's clean, no VFs": lambda: network("clean"),
            "hook's pre, no rates": lambda: network("pre.d/vicinal", "bridge"),
            "hook's pre, rates elsewhere": lambda: network(
                "pre.d/vicinal", "bridge", "<MAX_TX_RATE>8</MAX_TX_RATE>"
            ),
            "hook's clean, no rates": lambda: network("clean.d/vicinal", "bridge"),
        }
        took: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(times):
            for name, run in runs.items():
                took[name].append(seconds(run))
        print(f"load of {os.getloadavg()[0]:.1f}")
        base = statistics.median(took["stock script"])
        for name, values in took.items():
            median, worst = statistics.median(values), max(values)
            print(f"{name:36} {(median - base) * 1e3:6.0f} ms more, at most {worst * 1e3:6.0f} ms")
        host.nodes.write_text("<node></node>")
        host.end(9)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        moves(Path(directory), times)


def moves(directory: Path, times: int) -> None:
    measured = trials(directory)
    found: dict[str, list[Took]] = {name: [] for name in measured}
    for _ in range(times):
        for name, measure in measured.items():
            found[name].append(measure())
    print(f"\nload of {os.getloadavg()[0]:.1f}; on fake hosts")
    for name, each in found.items():
        own = [took.all - took.stock - took.waited for took in each]
        median, worst = statistics.median(own), max(own)
        waited = statistics.median(took.waited for took in each)
        processor = statistics.median(took.processor for took in each)
        line = f"{name:36} {median * 1e3:6.0f} ms more, at most {worst * 1e3:6.0f} ms"
        print(f"{line} ({processor * 1e3:4.0f} of a processor), {waited * 1e3:5.0f} ms of waiting")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
