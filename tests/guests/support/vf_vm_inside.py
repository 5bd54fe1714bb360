"""The steps in the guest of test_vf_vm.py: a job's VF goes to a VM.

Root does the work of Slurm's plugin, and another user that of the supervisor of a job's VMs.
Each step prints a line of JSON, which the test outside checks.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.identity import Identity, write_archives, write_keys
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.snapshot.hardware import PassedVf, SnapshotHardware, with_vfs
from vicinal.cluster.vm.snapshot.store import Snapshot
from vicinal.cluster.vm.snapshot.waiting import Plugged, WaitingGuest
from vicinal.host.vf.operations import Vfs
from vicinal.integrations.slurm.granted_vfs import GrantedVf
from vicinal.integrations.slurm.job_vfs import Asked, JobVfs

CARD, USER, JOB = "eth0", 1000, 7
VM, OWN = Path("/vm"), Path("/run/user")
CONSOLE = OWN / "node0.console"
MEMORY_MIB = 128
NEAR, FAR = "10.9.0.2/24", "10.9.0.1"
COMMANDS = f"""run look 'ip address show dev eth1; ls -l /sys/class/net/eth1/device/driver'
run ping 'until ping -c 1 -W 5 {FAR}; do :; done'
"""
_KEYS = ("user-key", "user-key.pub", "host-key", "host-key.pub")
_SECONDS = 1000.0  # prevents hanging
vfs = Vfs()


def say(step: str, **found: object) -> None:
    """Print one line for the test outside."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    print(json.dumps({"step": step, "uptime": uptime, **found}), flush=True)


def ip(*words: str) -> None:
    """Configure something with iproute2."""
    subprocess.run(["ip", *words], check=True)


def card(step: str) -> None:
    """The card in the output of `vicinal vf list --json`."""
    say(step, card=asdict(vfs.cards()[0]))


def vm(line: str) -> None:
    """As the job's user, start the VM, tell it about this VF, and wait."""
    vf = GrantedVf.parse(line)
    passed = PassedVf(vf.address, vf.driver, vf.mac, "eth1", NEAR)
    environment = ("LD_LIBRARY_PATH=/vm/lib", "QEMU_MODULE_DIR=/vm/modules")
    qemu = Qemu(("env", *environment, "/vm/qemu", "-L", "/vm/data"))
    kernel, files = VM / "kernel", VM / "files"
    write_keys(OWN, dict.fromkeys(_KEYS, "none"))  # the VM has no sshd
    identity = with_vfs(Identity(0, "node0", "10.1.0.1", ()), (passed,))
    keys = write_archives(OWN, [identity], {"node0": COMMANDS})
    hardware = SnapshotHardware(qemu, Accelerator.TCG, kernel, files, MEMORY_MIB, 1)
    guest = WaitingGuest("node0", OWN, keys, hardware)
    with (VM / "memory").open("rb") as memory, (VM / "state").open("rb") as state:
        guest.restore(Snapshot(memory.fileno(), state.fileno()))
    try:
        guest.tell(Plugged(None, [], None, (passed,)))
    except VicinalError as error:
        sys.exit(str(error))
    print(guest.process, flush=True)
    signal.pause()


def start_vm(step: str, line: str, locked: int) -> subprocess.Popen[str]:
    """The same in a process of the user with this limit of locked memory; returns its output."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, resource.RLIM_INFINITY))
    supervisor = subprocess.Popen(
        [sys.executable, __file__, "vm", line],
        **_as_user(USER),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    assert supervisor.stderr is not None
    said = supervisor.stdout.readline().strip()
    say(step, said=said, error="" if said else supervisor.stderr.read())
    if said:
        OWN.joinpath("process").write_text(said)
    return supervisor


def use_vm(supervisor: subprocess.Popen[str]) -> None:
    """Wait until the VM has finished its work, and kill it."""
    deadline = time.monotonic() + _SECONDS
    while "vicinal-guest: ready" not in CONSOLE.read_text(errors="replace"):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    process = Path("/proc") / OWN.joinpath("process").read_text()
    say("vm", console=CONSOLE.read_text(errors="replace"))
    say("QEMU", status=process.joinpath("status").read_text())
    card("in use")
    os.kill(int(process.name), signal.SIGKILL)
    supervisor.kill()
    supervisor.wait()
    while process.exists():
        time.sleep(0.02)


def grant(jobs: JobVfs) -> tuple[str, Path]:
    """Give the job its VF; returns what the supervisor is told, and its group's file."""
    jobs.give(JOB, [Asked(1, CARD)], for_nodes=True)
    jobs.grant(JOB, USER)
    lines = Path(f"/run/jobs/vfs-{JOB}.nodes").read_text().splitlines()
    return lines[0], Path("/dev/vfio") / vfs.find(lines[0].split()[0]).group


def hold(jobs: JobVfs) -> None:
    """Another process of the user has the group open when the job ends."""
    _line, group = grant(jobs)
    command = ["sh", "-c", f"exec 3<>{group} && echo opened && exec sleep 600"]
    with subprocess.Popen(command, **_as_user(USER), stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        say("held", said=holder.stdout.readline().decode())
        say("notes of what was held", notes=jobs.release(JOB))
        say("holder", status=holder.wait(_SECONDS))
    card("after it was held")


class _User(TypedDict):
    """The user of a process."""

    user: int
    group: int
    extra_groups: list[int]


def _as_user(user: int) -> _User:
    return {"user": user, "group": user, "extra_groups": []}


def main() -> None:
    """Run all steps in order."""
    vfs.create(CARD, 2, owner="demo")
    while not all(vf.interfaces for vf in vfs.cards()[0].vfs):
        time.sleep(0.1)
    ip("link", "set", CARD, "up")
    for number in ("0", "1"):
        ip("link", "set", CARD, "vf", number, "vlan", "5")
    (far,) = vfs.cards()[0].vfs[1].interfaces
    ip("address", "add", f"{FAR}/24", "dev", far)
    ip("link", "set", far, "up")
    card("before")
    jobs = JobVfs(Path("/run/jobs"))
    line, group = grant(jobs)
    card("granted")
    status = group.stat()
    say("group", user=status.st_uid, mode=status.st_mode & 0o777)
    other = ["sh", "-c", f"exec 3<>{group}"]
    done = subprocess.run(other, **_as_user(USER + 1), stderr=subprocess.PIPE, text=True)
    say("another user", errors=done.stderr)
    OWN.mkdir()
    for each in (OWN, VM / "memory", VM / "state"):
        os.chown(each, USER, USER)
    start_vm("too little memory to lock", line, 8 << 20).wait()
    use_vm(start_vm("enough", line, resource.RLIM_INFINITY))
    card("killed")
    say("notes", notes=jobs.release(JOB))
    card("after")
    hold(jobs)
    say("end")


if __name__ == "__main__":
    if sys.argv[1:2] == ["vm"]:
        vm(sys.argv[2])
    else:
        main()
