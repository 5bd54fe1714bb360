"""KVM or not: found out by starting a guest in it, since /dev/kvm alone proves nothing."""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from vicinal.cluster.accelerator import Accelerator
from vicinal.cluster.guest_console import console_lines, consoles_directory
from vicinal.cluster.guest_qemu import guest_command
from vicinal.cluster.guest_qemu_choice import Qemu
from vicinal.cluster.image import GuestImage, guests_directory
from vicinal.cluster.image_layout import USER_SPACE_LINE

_DEVICE = Path("/dev/kvm")
_CACHE = "accelerator.json"
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
    conditions = {**_conditions(qemu), "guest": image.kernel_version}
    own = image.files.parent
    if not os.access(own, os.W_OK):  # the image is root's
        own = guests_directory()
        with suppress(OSError):
            own.mkdir(parents=True, exist_ok=True)
    cache = own / _CACHE
    kept, choice = _read(cache)
    if choice is not None and kept == conditions:
        return choice
    say("finding out whether KVM works here")
    choice = _probe(qemu, image)
    found = json.dumps({"conditions": conditions, "choice": asdict(choice)}, indent=1)
    with suppress(OSError):  # who has no place of his own finds out each time
        cache.write_text(found)
    return choice


def known_choice(qemu: Qemu, directory: Path) -> Choice | None:
    """What is known without a guest, or was found out before by one of the images in a directory.

    Whichever image that was: another kernel in the guest may fare differently, and seldom does.
    """
    closed = _closed()
    if closed is not None:
        return closed
    kept, choice = _read(directory / _CACHE)
    kept.pop("guest", None)
    return choice if kept == _conditions(qemu) else None


def _conditions(qemu: Qemu) -> dict[str, object]:
    return {
        "host": f"{platform.release()} {_boot_id()}",
        "user": os.geteuid(),
        "qemu": qemu.version,
    }


def _read(cache: Path) -> tuple[dict[str, object], Choice | None]:
    """What was kept: the conditions that it holds for, and the choice; None where it is nothing."""
    try:
        kept = json.loads(cache.read_text())
        found = Choice(Accelerator(kept["choice"]["accelerator"]), kept["choice"]["reason"])
        return dict(kept["conditions"]), found
    except (OSError, ValueError, KeyError, TypeError):
        return {}, None


def _closed() -> Choice | None:
    """The choice where KVM cannot even be opened."""
    if os.access(_DEVICE, os.R_OK | os.W_OK):
        return None
    why = "may not be opened by this user" if _DEVICE.exists() else "is not there"
    return Choice(Accelerator.TCG, f"{_DEVICE} {why}")


def _probe(qemu: Qemu, image: GuestImage) -> Choice:
    closed = _closed()
    if closed is not None:
        return closed
    console = consoles_directory() / "kvm-probe.log"
    console.unlink(missing_ok=True)
    command = guest_command(qemu, "kvm-probe", image, Accelerator.KVM, console, None)
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
