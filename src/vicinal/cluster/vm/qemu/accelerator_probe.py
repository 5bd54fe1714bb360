"""Whether KVM works, found out by booting a guest with it, because /dev/kvm proves nothing.

A guest that hangs in KVM costs half a minute. So the answer is kept until the host reboots: in the
user's own directory, and root's answer also for all other users.
"""

import json
import os
import platform
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.base.files import Durability, write_atomically
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.console import console_lines, consoles_directory
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.building import (
    GuestImage,
    guests_directory,
    is_roots,
    shared_directory,
)
from vicinal.cluster.vm.image.layout import USER_SPACE_LINE
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB, QemuGuest

_DEVICE = Path("/dev/kvm")
_CACHE = "accelerator.json"
_CACHE_BYTES = 1 << 20
_PROBE_SECONDS = 30
"""With KVM a guest's user space runs after one or two seconds."""


@dataclass(frozen=True)
class Choice:
    """The accelerator for guests on this host, and the reason."""

    accelerator: Accelerator
    reason: str


def choose_accelerator(
    qemu: Qemu, image: GuestImage, say: Callable[[str], None] = lambda _: None
) -> Choice:
    """KVM if a guest really boots with it, otherwise TCG.

    The answer is kept until the host reboots, for this QEMU, and in the case of KVM for the guests'
    kernel. If KVM fails with one kernel, other kernels are not tried, because TCG runs them all.
    """
    known = _closed() or _kept(qemu, guests_directory(), image.kernel_version)
    if known is not None:
        return known
    say("testing whether KVM works on this host")
    choice = _probe(qemu, image)
    with suppress(OSError):  # without a writable directory the test runs each time
        _keep(qemu, image, choice)
    return choice


def known_choice(qemu: Qemu, directory: Path) -> Choice | None:
    """The choice if it is known without a guest, or was kept in a user's directory.

    The guest's kernel is ignored: KVM seldom works with one kernel and fails with another.
    """
    return _closed() or _kept(qemu, directory)


def _kept(qemu: Qemu, own: Path, kernel: str | None = None) -> Choice | None:
    """The answer of this user or root for a guest's kernel; None as the kernel matches any."""
    for directory in dict.fromkeys((own, shared_directory())):
        for answer in _read(directory / _CACHE):
            try:
                choice = Choice(Accelerator(answer["accelerator"]), str(answer["reason"]))
                of_qemu = answer["qemu"] == qemu.version
                of_kernel = kernel in (None, answer["kernel"])
            except (KeyError, TypeError, ValueError):
                continue
            if of_qemu and (of_kernel or choice.accelerator is Accelerator.TCG):
                return choice
    return None


def _keep(qemu: Qemu, image: GuestImage, choice: Choice) -> None:
    """Add an answer to the answers of this boot. Of two concurrent writers the last one wins."""
    directory = guests_directory()
    directory.mkdir(parents=True, exist_ok=True)
    answer = {
        "qemu": qemu.version,
        "kernel": image.kernel_version,
        "accelerator": choice.accelerator.value,
        "reason": choice.reason,
    }
    answers = [*_read(directory / _CACHE), answer]
    found = json.dumps({"boot": _boot(), "answers": answers}, indent=1)
    # Other users read root's answer.
    write_atomically(directory / _CACHE, found, Durability.NONE, mode=0o644, by_several=True)


def _read(cache: Path) -> list[Any]:
    """The answers in a file, if it is of this boot, and no other user could have written it."""
    try:
        # O_NONBLOCK, because another user may have created a pipe there.
        file = os.open(cache, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if not _is_trusted(cache.parent, os.fstat(file)):
            return []
        found = json.loads(os.read(file, _CACHE_BYTES))
        return list(found["answers"]) if found["boot"] == _boot() else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
    finally:
        os.close(file)


def _is_trusted(directory: Path, status: os.stat_result) -> bool:
    """Whether a file is this user's own, or root's in a directory of root."""
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022:
        return False
    return status.st_uid == os.geteuid() or (status.st_uid == 0 and is_roots(directory))


def _boot() -> str:
    """A string that identifies this boot of this host."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = "unknown"
    return f"{platform.release()} {boot}"


def _closed() -> Choice | None:
    """The choice if KVM cannot be opened, otherwise None."""
    if os.access(_DEVICE, os.R_OK | os.W_OK):
        return None
    why = "cannot be opened by this user" if _DEVICE.exists() else "does not exist"
    return Choice(Accelerator.TCG, f"{_DEVICE} {why}")


def _probe(qemu: Qemu, image: GuestImage) -> Choice:
    console = consoles_directory() / "kvm-probe.log"
    console.unlink(missing_ok=True)
    # The guest powers off as soon as its user space runs.
    guest = QemuGuest(
        name="kvm-probe",
        boot=DirectBoot(image.kernel, image.files, ("vicinal.probe=1",)),
        console=console,
        accelerator=Accelerator.KVM,
        memory_mib=MEMORY_MIB,
    )
    try:
        done = subprocess.run(
            guest.command(qemu),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"a guest did not boot with KVM within {_PROBE_SECONDS} s"
        return Choice(Accelerator.TCG, reason)
    if USER_SPACE_LINE in console_lines(console):
        return Choice(Accelerator.KVM, "a guest booted with it")
    last = done.stderr.strip().splitlines()
    detail = f" ({last[-1]})" if last else ""
    return Choice(Accelerator.TCG, f"a guest ended in KVM before its user space ran{detail}")
