"""KVM or not: found out by starting a guest in it, since /dev/kvm alone proves nothing."""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from vicinal.cluster.guest_console import console_lines, consoles_directory
from vicinal.cluster.guest_qemu import Accelerator, guest_command
from vicinal.cluster.guest_qemu_choice import Qemu
from vicinal.cluster.image import GuestImage
from vicinal.cluster.image_layout import USER_SPACE_LINE

_DEVICE = Path("/dev/kvm")
_PROBE_SECONDS = 30
"""With KVM a guest's user space runs after a second or two."""


@dataclass(frozen=True)
class Choice:
    """The accelerator for guests on this host, and why."""

    accelerator: Accelerator
    reason: str


def choose_accelerator(
    qemu: Qemu, image: GuestImage, say: Callable[[str], None] = lambda _: None
) -> Choice:
    """KVM where a guest really comes up in it, else TCG.

    The answer is kept until the host is booted anew or QEMU or the guests' kernel change.
    """
    conditions = {
        "host": f"{platform.release()} {_boot_id()}",
        "user": os.geteuid(),
        "qemu": qemu.version,
        "guest": image.kernel_version,
    }
    cache = image.files.parent / "accelerator.json"
    try:
        kept = json.loads(cache.read_text())
        if kept["conditions"] == conditions:
            return Choice(Accelerator(kept["choice"]["accelerator"]), kept["choice"]["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing kept that could be read: find out
    say("finding out whether KVM works here")
    choice = _probe(qemu, image)
    cache.write_text(json.dumps({"conditions": conditions, "choice": asdict(choice)}, indent=1))
    return choice


def _probe(qemu: Qemu, image: GuestImage) -> Choice:
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        why = "may not be opened by this user" if _DEVICE.exists() else "is not there"
        return Choice(Accelerator.TCG, f"{_DEVICE} {why}")
    console = consoles_directory() / "kvm-probe.log"
    console.unlink(missing_ok=True)
    command = guest_command(qemu, "kvm-probe", 0, image, Accelerator.KVM, console, None)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"a guest did not come up in KVM within {_PROBE_SECONDS} s"
        return Choice(Accelerator.TCG, reason)
    if USER_SPACE_LINE in console_lines(console):
        return Choice(Accelerator.KVM, "a guest came up in it")
    last = done.stderr.strip().splitlines()
    detail = f" ({last[-1]})" if last else ""
    return Choice(Accelerator.TCG, f"a guest died in KVM before its user space ran{detail}")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
