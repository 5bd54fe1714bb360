"""A user's operations on a cluster of virtual machines, only by `vicinal`, from `up` to `down`.

    python vms_scenario.py DIRECTORY PROGRAM...

PROGRAM is `verify` of each MPI library. test_cluster_vms.py runs the scenario, as root and as
an unprivileged user, each with a libvirt of its own. It raises an error if anything is wrong, and
reports on standard output: one JSON object a line, with `step` and facts.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import libvirt
import psutil
from guest_support import GUARD_SECONDS

from vicinal.cluster.vm.libvirt.uri import default_uri
from vicinal.labs.programs import read_records
from vicinal.region import inspect

SLOW = 240.0
NODES = ("vm0", "vm1", "vm2")
FILE = """name: {name}
nodes:
  - {{name: vm, backend: vm, count: {count}, memory: {memory}, cpus: {cpus}}}
placement: {{policy: {policy}}}
region: {{{region}}}
"""


def say(step: str, **facts: object) -> None:
    print(json.dumps({"step": step, **facts}), flush=True)


class Trial:
    """A cluster of this user with a unique name."""

    def __init__(self, directory: Path, nodes: Sequence[str] = NODES) -> None:
        self.nodes = nodes
        self.name = f"v{os.getpid()}-{os.geteuid()}"
        self.owner = f"{os.geteuid()}-{self.name}"
        self.directory = directory
        self.file = directory / "cluster.yaml"
        self.region = Path(f"/dev/shm/vicinal-{self.owner}")
        self.hypervisor = libvirt.open(default_uri())
        self.bridges = {path.name for path in Path("/sys/class/net").glob("vicinal-*")}

    def write(
        self,
        count: int | None = None,
        memory: str = "640M",
        cpus: int = 1,
        policy: str = "none",
        region: str = "members: 16",
    ) -> Path:
        facts = {
            "count": count or len(self.nodes),
            "memory": memory,
            "cpus": cpus,
            "policy": policy,
        }
        self.file.write_text(FILE.format(name=self.name, region=region, **facts))
        return self.file

    def call(
        self, *arguments: str | Path, status: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "vicinal", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
        what = f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert status in (None, done.returncode), what
        assert "Traceback" not in done.stderr, what
        return done

    def refused(self, *arguments: str | Path) -> str:
        """The one line of an error."""
        errors = self.call(*arguments, status=1).stderr.splitlines()
        found = [line for line in errors if "error:" in line]
        assert len(found) == 1, errors
        return found[0]

    def left(self) -> list[str]:
        """What exists of it: domains, the region, bridges, taps, files, processes."""
        found = [
            domain.name()
            for domain in self.hypervisor.listAllDomains()
            if self.name in domain.name()
        ]
        found += [path.name for path in Path("/dev/shm").glob(f"*{self.name}*")]
        found += [
            path.name
            for path in Path("/sys/class/net").glob("vicinal-*")
            if path.name not in self.bridges
        ]
        state = self.directory / "state"
        found += [str(path) for path in state.glob(f"vicinal/clusters/{self.name}/**/*")]
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            if self.name in words and process.info["pid"] != os.getpid():
                found.append(words)
        return found


def refusals(trial: Trial) -> None:
    """Impossible requests are reported before anything is created."""
    say("memory", error=trial.refused("up", trial.write(memory="999G")))
    cores = len(os.sched_getaffinity(0))
    say("cores", error=trial.refused("up", trial.write(cpus=cores + 1, policy="core")))
    theirs = trial.hypervisor.defineXML(
        f"<domain type='qemu'><name>vicinal-{trial.owner}-vm1</name><memory>65536</memory>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    try:
        say("clash", error=trial.refused("up", trial.write()))
        assert [each.name() for each in trial.hypervisor.listAllDomains()] == [theirs.name()]
    finally:
        theirs.undefine()
    assert trial.left() == [], trial.left()


def a_guest_that_never_boots(trial: Trial) -> None:
    """It has too little memory for its file system, and its kernel reports that."""
    say("broken", error=trial.refused("up", trial.write(count=2, memory="128M")))
    assert trial.left() == [], trial.left()


def a_command_that_is_killed(trial: Trial) -> None:
    """`down` knows what the killed `up` had begun."""
    up = subprocess.Popen(
        [sys.executable, "-m", "vicinal", "up", trial.write()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stderr is not None
    for line in up.stderr:
        if f"creating vm/{trial.nodes[-1]}" in line:
            break
    up.send_signal(signal.SIGKILL)
    up.wait()
    before = trial.left()
    assert any(name.endswith("-vm0") for name in before), before
    trial.call("down", trial.name)
    assert trial.left() == [], trial.left()
    say("killed", before=len(before))


def verify(trial: Trial, program: str, nodes: Sequence[str] = NODES) -> None:
    """Check every byte of an MPI job's messages among all VMs, and the use of the region."""
    began = time.monotonic()
    done = trial.call(
        *("run", "--cluster", trial.name, "-n", str(len(nodes)), "--paths", program),
        *("--only", "sizes", "--max-size", "65536", "--rounds", "1"),
    )
    records = read_records(done.stdout)
    assert records, done.stdout
    assert all(record["errors"] == 0 for record in records), records
    assert sum(record["messages"] for record in records) > 0
    for node in nodes:
        assert node in done.stderr, done.stderr
    state = inspect(trial.region)
    names = {member.slot: member.hostname for member in state.members}
    talks = {
        (names[each.sender], names[each.receiver])
        for each in state.connections
        if each.messages > 0 and each.bytes > 0
    }
    assert {(a, b) for a in nodes for b in nodes if a != b} <= talks, talks
    say("verified", seconds=round(time.monotonic() - began, 1))


def a_job_that_takes_too_long(trial: Trial, program: str) -> None:
    """The job ends in all VMs."""
    job = ("run", "--cluster", trial.name, "-n", "3", "--timeout", "6")
    done = trial.refused(*job, program, "--rounds", "999999")
    for node in NODES:
        processes = trial.call("exec", "--cluster", trial.name, node, "ps").stdout
        assert program not in processes, processes
        assert "sshd" in processes, processes
    say("late", error=done)


def live(trial: Trial, programs: list[str], *, whole: bool) -> None:
    """From `up` to `down`; with `whole`, all operations in between."""
    file = trial.write()
    assert "it does not exist" in trial.call("plan", file, status=2).stdout
    began = time.monotonic()
    up = trial.call("up", file)
    say("up", seconds=round(time.monotonic() - began, 1), said=up.stderr.splitlines()[-2:])
    assert "to create" not in trial.call("plan", file, status=0).stdout
    status = json.loads(trial.call("status", "--json", trial.name).stdout)
    say("status", **status)
    assert all(node in trial.call("status", trial.name).stdout for node in trial.nodes)
    for node in trial.nodes:
        assert trial.call("exec", "--cluster", trial.name, node, "hostname").stdout == f"{node}\n"
    assert trial.call("exec", node, "sh", "-c", "exit 7", status=7).stdout == ""
    assert trial.call("ssh", node, "echo $USER; hostname").stdout == f"mpi\n{node}\n"
    # Each VM reaches each other by name.
    others = " && ".join(f"ssh {node} hostname" for node in trial.nodes[1:])
    heard = trial.call("exec", NODES[0], "sh", "-c", others).stdout
    assert heard.split() == [*trial.nodes[1:]], heard
    for program in programs:
        verify(trial, program, trial.nodes)
    if whole:
        a_job_that_takes_too_long(trial, programs[0])
        stop_and_start(trial)
    trial.call("down", trial.name)
    assert trial.left() == [], trial.left()
    assert trial.call("down", trial.name).stderr.endswith(f"{trial.name} does not exist\n")
    say("down")


def stop_and_start(trial: Trial) -> None:
    trial.call("exec", NODES[0], "touch", "/tmp/of-the-last-boot")
    trial.call("stop", trial.name)
    stopped = json.loads(trial.call("status", "--json", trial.name, status=1).stdout)
    assert {node["state"] for node in stopped["nodes"]} == {"stopped"}, stopped
    assert "does not run" in trial.refused("exec", NODES[0], "true")
    trial.call("start", trial.name)
    trial.call("plan", trial.file, status=0)
    trial.call("exec", NODES[0], "test", "!", "-e", "/tmp/of-the-last-boot")
    # `up` starts a VM again that ended by itself, while the others run on.
    trial.call("exec", NODES[1], "touch", "/tmp/kept")
    trial.hypervisor.lookupByName(f"vicinal-{trial.owner}-{NODES[2]}").destroy()
    shown = trial.call("plan", trial.file, status=2).stdout
    assert "> vm/vm2" in shown, shown
    trial.call("up", trial.file)
    trial.call("exec", NODES[1], "test", "-e", "/tmp/kept")
    assert trial.call("exec", NODES[2], "hostname").stdout == f"{NODES[2]}\n"
    say("restarted")


def main() -> None:
    directory, *programs = sys.argv[1:]
    libvirt.registerErrorHandler(lambda *_: None, None)
    root = os.geteuid() == 0
    trial = Trial(Path(directory), NODES if root else NODES[:2])  # three in one run are enough
    try:
        refusals(trial)
        live(trial, programs, whole=root)
        a_command_that_is_killed(trial)
        if root:
            a_guest_that_never_boots(trial)
    finally:
        with suppress(AssertionError, subprocess.TimeoutExpired):
            trial.call("down", trial.name, status=None)


if __name__ == "__main__":
    main()
