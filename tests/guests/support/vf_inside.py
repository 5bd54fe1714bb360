"""The steps in the guest of vf_guest.py, as root: each prints a line of JSON.

A step is a call of `vicinal vf` through the real privileged helper, or a query of the
kernel's state. test_guest_vfs.py checks the lines outside.
"""

import base64
import fcntl
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.vf.moderation import read_moderation, set_moderation
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.privileged.requests import PROTOCOL
from vicinal.host.vf.settings import Settings
from vicinal.integrations.slurm.job_vfs import Asked, JobVfs

CARD = "eth0"
USER = 1000
MAC = "52:54:00:aa:bb:01"
vfs = Vfs()
# linux/vfio.h: these are _IO(';', 100 + n).
VFIO_GROUP_GET_DEVICE_FD, VFIO_GROUP_SET_CONTAINER, VFIO_SET_IOMMU = 0x3B6A, 0x3B68, 0x3B66
VFIO_TYPE1 = 1


def say(step: str, **found: object) -> None:
    """Print one line for the test outside."""
    print(json.dumps({"step": step, **found}), flush=True)


def run(step: str, *command: str) -> None:
    """Run a program, and return its outcome."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    say(step, status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def attempt(step: str, action: Callable[[], object]) -> None:
    """Call a function, and report how it ended and how long it took."""
    began = time.monotonic()
    try:
        action()
        error = ""
    except VicinalError as refused:
        error = str(refused)
    say(step, error=error, seconds=round(time.monotonic() - began, 2))


def card(step: str) -> dict[str, Any]:
    """The card in the output of `vicinal vf list --json`."""
    found = asdict(vfs.cards()[0])
    say(step, card=found)
    return found


def settings(step: str) -> None:
    """What the card's driver reports about its VFs."""
    run(step, "ip", "-j", "link", "show", "dev", CARD)


def wait_for_link() -> None:
    """Wait a limited time until the card has a link."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if Path(f"/sys/class/net/{CARD}/carrier").read_text().strip() == "1":
            return
        time.sleep(0.2)


class OpenedDevice:
    """A VF that this process has open through vfio-pci, as QEMU would."""

    def __init__(self, group: str, address: str) -> None:
        self._files = [
            os.open("/dev/vfio/vfio", os.O_RDWR),
            os.open(f"/dev/vfio/{group}", os.O_RDWR),
        ]
        fcntl.ioctl(self._files[1], VFIO_GROUP_SET_CONTAINER, struct.pack("i", self._files[0]))
        fcntl.ioctl(self._files[0], VFIO_SET_IOMMU, VFIO_TYPE1)
        device = fcntl.ioctl(
            self._files[1], VFIO_GROUP_GET_DEVICE_FD, bytearray(address.encode() + b"\0")
        )
        self._files.append(device)

    def close(self) -> None:
        """Close it."""
        for each in reversed(self._files):
            os.close(each)


def helper(step: str, user: int, operation: str, **fields: object) -> dict[str, Any]:
    """One request to the privileged helper, as sudo runs it for a user."""
    source = "/vicinal/vicinal/host/vf/privileged"
    request = {"protocol": PROTOCOL, "operation": operation, **fields}
    done = subprocess.run(
        [sys.executable, "-I", source],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={"SUDO_UID": str(user)},
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    say(step, answer=answer, errors=done.stderr)
    return answer


def make() -> tuple[str, str]:
    """VFs are created, and invalid requests are refused."""
    card("fresh")
    attempt("assign without VFs", lambda: vfs.assign(CARD, owner="demo"))
    attempt("create too many", lambda: vfs.create(CARD, 9, owner="demo"))
    attempt("create", lambda: vfs.create(CARD, 2, owner="demo"))
    time.sleep(1)  # their driver is bound by then; no check depends on it
    first, second = (vf["address"] for vf in card("created")["vfs"])
    return first, second


def ethernet(first: str, second: str) -> None:
    """A VF stays on the host, and is configured."""
    settings("before")
    wanted = Settings(mac=MAC, spoof_check=False, trust=True, max_rate=100)
    # The card's driver accepts rates only when it knows its own rate.
    attempt("assign without a link", lambda: vfs.assign(first, owner="demo", settings=wanted))
    settings("undone")
    run("card up", "ip", "link", "set", CARD, "up")
    wait_for_link()
    attempt("assign", lambda: vfs.assign(first, owner="demo", settings=wanted))
    settings("configured")
    name = next(Path(f"/sys/bus/pci/devices/{first}/net").iterdir()).name
    say("address", address=Path(f"/sys/class/net/{name}/address").read_text().strip())
    same = Settings(mac=MAC)
    attempt("a taken address", lambda: vfs.assign(second, owner="demo", settings=same))
    attempt("another's VF", lambda: vfs.assign(first, owner="other"))
    run("up", "ip", "link", "set", name, "up")
    attempt("release while up", lambda: vfs.release([first]))
    say("moderation", found=read_moderation(vfs.host, name))
    attempt("moderate", lambda: set_moderation(vfs.host, name, {"rx-usecs": "10"}))
    run("moderated", "ethtool", "-c", name)
    frames = {"rx-usecs": "20", "rx-frames": "10"}
    attempt("moderate by frames", lambda: set_moderation(vfs.host, name, frames))
    run("down", "ip", "link", "set", name, "down")


def namespace(second: str) -> None:
    """A VF's interface is moved into a network namespace, as container runtimes do."""
    name = next(Path(f"/sys/bus/pci/devices/{second}/net").iterdir()).name
    with subprocess.Popen(["unshare", "-n", "sleep", "600"]) as container:
        own, its = Path("/proc/self/ns/net"), Path(f"/proc/{container.pid}/ns/net")
        while its.readlink() == own.readlink():
            time.sleep(0.05)
        run("moved", "ip", "link", "set", name, "netns", str(container.pid))
        card("away")
        attempt("assign while away", lambda: vfs.assign(second, owner="demo"))
        container.kill()
    directory = Path(f"/sys/bus/pci/devices/{second}/net")
    while not directory.is_dir() or not any(directory.iterdir()):
        time.sleep(0.05)  # the kernel returns it when the namespace ends


def granted(second: str) -> None:
    """A job of Slurm has a VF for its nodes, and hides it in a process's namespace."""
    jobs = JobVfs(Path("/run/jobs"))
    give = partial(jobs.give, 7, [Asked(1, CARD)], for_nodes=True)
    attempt("grant without a VLAN", give)
    run("VLAN", "ip", "link", "set", CARD, "vf", "1", "vlan", "5")
    settings("before granting")
    attempt("grant", give)
    settings("granted")
    with subprocess.Popen(["unshare", "-n", "sleep", "600"]) as thief:
        own, its = Path("/proc/self/ns/net"), Path(f"/proc/{thief.pid}/ns/net")
        while its.readlink() == own.readlink():
            time.sleep(0.05)
        hide(second, thief.pid)
        there = ("nsenter", f"--net={its}", "ip", "link")
        run("another address", *there, "set", "vf0", "address", "02:00:00:00:00:99")
        for words in ("set vf0 mtu 1400", "set vf0 promisc on", "set vf0 up"):
            run(f"as root there: {words}", *there, *words.split())
        tagged = "add link vf0 name tagged type vlan id 9"
        run("VLAN there", *there, *tagged.split())
        card("hidden")
        attempt("release what is hidden", lambda: say("notes", notes=jobs.release(7)))
        say("what the thief has", text=Path(f"/proc/{thief.pid}/net/dev").read_text())
        card("back")
        name = next(Path(f"/sys/bus/pci/devices/{second}/net").iterdir()).name
        run("as its driver makes it", "ip", "-j", "-d", "link", "show", "dev", name)
        settings("after granting")
        # Like an epilog that is killed after its first request.
        attempt("grant again", give)
        hide(second, thief.pid)
        helper("recall", 0, "recall", vf=second, owner="slurm-7")
        card("recalled")
        attempt("release what was recalled", lambda: jobs.release(7))
        card("back again")
        thief.kill()
    run("no VLAN", "ip", "link", "set", CARD, "vf", "1", "vlan", "0")
    say("jobs", files=[each.name for each in Path("/run/jobs").iterdir()])


def hide(vf: str, process: int) -> None:
    """Move a VF's interface into the network namespace of a process."""
    name = next(Path(f"/sys/bus/pci/devices/{vf}/net").iterdir()).name
    words = ("dev", name, "netns", str(process), "name", "vf0")
    subprocess.run(["ip", "link", "set", *words], check=True)


def vfio(second: str) -> None:
    """A VF is bound to vfio-pci, opened as by a virtual machine, and returned."""
    attempt("assign to vfio", lambda: vfs.assign(second, owner="vm", vfio=True))
    vf = card("on vfio")["vfs"][1]
    opened = OpenedDevice(vf["group"], second)
    card("opened")
    attempt("release while open", lambda: vfs.release([second]))
    attempt("remove while open", lambda: vfs.remove(CARD))
    try:
        Path(f"/sys/class/net/{CARD}/device/sriov_numvfs").write_text("3")
        say("kernel", error=0)
    except OSError as error:
        say("kernel", error=error.errno)
    opened.close()
    attempt("release from vfio", lambda: vfs.release([], owner="vm"))
    card("back from vfio")


def crash(first: str, second: str) -> None:
    """What a killed command of an unprivileged user leaves can be released."""
    one = {"vf": second, "owner": "killed"}
    free = {"vf": second, "fresh": True, "settings": {}, "binding": ""}
    helper("claim", USER, "assign", owner="killed", vfs=[free])
    helper("bind", USER, "bind", **one, binding="vfio-pci")
    vf = card("killed")["vfs"][1]
    say("node", owner=(Path("/dev/vfio") / vf["group"]).stat().st_uid)
    for user in (USER, USER + 1):
        command = [sys.executable, __file__, "open", vf["group"], second]
        done = subprocess.run(command, user=user, capture_output=True, text=True, check=False)
        say(f"open as {user}", status=done.returncode, stderr=done.stderr)
    again = {**free, "fresh": False}
    helper("claim of another user", USER + 1, "assign", owner="killed", vfs=[again])
    attempt("remove what is assigned", lambda: vfs.remove(CARD))
    attempt("release what was killed", lambda: vfs.release([], owner="killed"))
    attempt("release", lambda: vfs.release([first]))
    settings("after")


def opennebula(second: str) -> None:
    """A hook of OpenNebula's drivers gives a rate to a VF that stays on vfio-pci."""
    directory = Path(f"/sys/bus/pci/devices/{second}")
    (directory / "driver_override").write_text("vfio-pci\n")
    (directory / "driver/unbind").write_text(second)
    Path("/sys/bus/pci/drivers_probe").write_text(second)
    wanted = Settings(mac=MAC)
    attempt("assign what is on vfio", lambda: vfs.assign(second, owner="x", settings=wanted))
    attempt("release to vfio", lambda: vfs.release([second]))
    card("released to vfio")
    node = Path("/dev/vfio") / (directory / "iommu_group").readlink().name
    os.chown(node, USER, USER)  # as a udev rule does
    settings("before hooks")
    hook("pre", second)
    settings("hooked")
    records = json.loads(Path("/run/vicinal-vfs/records.json").read_text())
    say("owner of what is hooked", owner=records["vfs"][second]["owner"])
    # The work of OpenNebula's drivers in post.
    words = f"vlan 5 mac {MAC} spoofchk off trust on".split()
    run("post", "ip", "link", "set", CARD, "vf", "1", *words)
    settings("after post")
    hook("clean", second)
    settings("after hooks")
    card("after clean")
    say("node after hooks", owner=node.stat().st_uid)


def hook(action: str, vf: str) -> None:
    """Call a hook as a driver does, for a VM with one VF."""
    nic = f"<ADDRESS>{vf[:-2]}:{vf[-1]}</ADDRESS><VN_MAD>bridge</VN_MAD>"
    nic += "<MAX_TX_RATE>200</MAX_TX_RATE>"
    text = f"<VM><ID>7</ID><TEMPLATE><PCI>{nic}</PCI></TEMPLATE></VM>"
    script = f"/remotes/vnm/bridge/{action}.d/vicinal"
    done = subprocess.run(
        [sys.executable, "-m", "vicinal.integrations.opennebula.network", script],
        input=base64.b64encode(text.encode()),
        capture_output=True,
        check=False,
    )
    say(f"hook's {action}", status=done.returncode, said=(done.stdout + done.stderr).decode())


def main() -> None:
    """Run all steps in order."""
    say("kernel version", release=os.uname().release, uptime=Path("/proc/uptime").read_text())
    first, second = make()
    ethernet(first, second)
    namespace(second)
    granted(second)
    vfio(second)
    crash(first, second)
    opennebula(second)
    attempt("remove", lambda: vfs.remove(CARD))
    card("removed")
    say("records", text=Path("/run/vicinal-vfs/records.json").read_text())
    say("end", uptime=Path("/proc/uptime").read_text())


if __name__ == "__main__":
    if sys.argv[1:2] == ["open"]:
        OpenedDevice(*sys.argv[2:]).close()
    else:
        main()
