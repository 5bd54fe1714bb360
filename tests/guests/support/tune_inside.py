"""The steps in the guest of test_tune_knobs.py, as root: each prints a line of JSON.

Its interfaces are cards that QEMU emulates, igb and e1000e, a virtio-net, and netdevsim, which
exists only in the kernel. The test outside checks the lines.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Setting
from vicinal.labs.tune.knobs.catalogue import devices
from vicinal.labs.tune.knobs.coalescing import PARTS
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.knobs.netlink import KernelEthtool
from vicinal.labs.tune.outputs.parts import parts_of, script
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.capability import Ability, Finding, try_knob
from vicinal.labs.tune.settings.state_directory import sole_command

STATE = Path("/run/tune")


def say(step: str, **found: object) -> None:
    """Print one line for the test outside."""
    print(json.dumps({"step": step, **found}), flush=True)


def attempt(step: str, action: Callable[[], object]) -> None:
    """Call a function, and report how it ended."""
    try:
        action()
        error = ""
    except VicinalError as refused:
        error = str(refused)
    say(step, error=error)


def by_ethtool(interface: str) -> str:
    """The same settings as another program reports them."""
    done = subprocess.run(["ethtool", "-c", interface], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def values(interface: str) -> dict[str, Any]:
    """The readable knobs of an interface."""
    (device,) = devices(TunedHost(), [interface])
    return {knob.part: knob.read() for knob in device.knobs}


def names() -> dict[str, str]:
    """Interfaces by their drivers."""
    found = {}
    for each in TunedHost().network.links():
        driver = Path(f"/sys/class/net/{each.name}/device/driver")
        if driver.exists():
            found[driver.resolve().name] = each.name
    return found


def apply(setting: Setting) -> None:
    with sole_command(STATE):
        applier = Applier(TunedHost(), STATE / "journal")
        applier.recover()
        with applier.lasting() as work:
            work.apply(setting)


def restore() -> list[str]:
    with sole_command(STATE):
        return Applier(TunedHost(), STATE / "journal").restore()


def exported(interface: str, wanted: Setting) -> None:
    """Run the scripts of `vicinal tune export`: they set, verify and restore."""
    before = values(interface)
    found = {name: before[name.partition("/")[2]] for name in wanted}
    files = {"set": script("Sets:", parts_of(wanted).turns)}
    files["restore"] = script("Restores:", parts_of(found).turns, action="restore")
    steps = []
    for name, action in (("set", "set"), ("set", "verify"), ("restore", "restore")):
        file = Path("/run") / f"{name}.sh"
        file.write_text(files[name])
        done = subprocess.run(
            ["sh", file, action], capture_output=True, text=True, timeout=600, check=False
        )
        steps.append([done.returncode, done.stdout + done.stderr, values(interface)])
    say("exported", before=before, steps=steps, text=by_ethtool(interface))


def tried(interface: str) -> dict[str, Ability]:
    """Each knob is tried, and restored."""
    before = values(interface)
    found: dict[str, Finding] = {}
    (device,) = devices(TunedHost(), [interface])
    with sole_command(STATE):
        applier = Applier(TunedHost(), STATE / "journal")
        applier.recover()
        for knob in device.knobs:
            found[knob.part] = try_knob(applier, knob)
    told = {part: [each.ability, each.why, each.taken] for part, each in found.items()}
    say(f"try {interface}", before=before, found=told, after=values(interface))
    return {part: each.ability for part, each in found.items()}


def killed(interface: str, wanted: Setting, after: int) -> None:
    """A command is killed after it has set a number of knobs, and the next restores them."""
    before = values(interface)
    child = os.fork()
    if child == 0:
        kernel, left = KernelEthtool.set_coalescing, [after]

        def set_some(self: KernelEthtool, interface: str, name: str, value: int) -> None:
            kernel(self, interface, name, value)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        KernelEthtool.set_coalescing = set_some  # type: ignore[method-assign]
        apply(wanted)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    between = values(interface)
    with sole_command(STATE):
        said = Applier(TunedHost(), STATE / "journal").recover()
    changed = sum(before[part] != between[part] for part in before)
    say(
        f"killed after {after}",
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        changed=changed,
        said=said,
        before=before,
        after=values(interface),
    )


def all_at_once(interface: str, abilities: dict[str, Ability]) -> None:
    """Each part of coalescing that its driver keeps gets a value of its own; then one more."""
    kept = [part for part in PARTS if abilities[part] is Ability.SETTABLE]
    ignored = next(part for part in PARTS if abilities[part] is Ability.IGNORED)
    before = values(interface)
    wanted: Setting = {
        f"{interface}/{part}": "on" if before[part] == "off" else 100 + number
        for number, part in enumerate(kept)
    }
    attempt("apply all", lambda: apply(wanted))
    say("all applied", wanted=wanted, after=values(interface), text=by_ethtool(interface))
    say("all restored", said=restore(), before=before, after=values(interface))
    more = {**wanted, f"{interface}/{ignored}": "on" if before[ignored] == "off" else 8}
    attempt("one is ignored", lambda: apply(more))
    say("none applied", ignored=ignored, before=before, after=values(interface))
    killed(interface, wanted, len(wanted) // 2)


def main() -> None:
    """Run all steps."""
    Path("/sys/bus/netdevsim/new_device").write_text("1 1")
    found = names()
    say("kernel", version=os.uname().release)
    say("names", names=found)
    card = found["igb"]
    # Its interrupts exist only while it is up.
    subprocess.run(["ip", "link", "set", card, "up"], check=True)
    abilities = {}
    for driver, name in found.items():
        (device,) = devices(TunedHost(), [name])
        say(f"lacks {name}", missing=device.missing, lacks=device.lacks)
        abilities[driver] = tried(name)
    all_at_once(found["netdevsim"], abilities["netdevsim"])
    before = values(card)
    wanted: Setting = {f"{card}/rx-usecs": 20, f"{card}/irq-affinity": "1"}
    attempt("by frames", lambda: apply({f"{card}/rx-usecs": 20, f"{card}/rx-frames": 10}))
    attempt(
        "out of range", lambda: apply({f"{card}/irq-affinity": "1", f"{card}/rx-usecs": 99_999})
    )
    say("refused", before=before, after=values(card))
    attempt("apply", lambda: apply(wanted))
    say("applied", after=values(card), text=by_ethtool(card))
    say("restored", said=restore(), before=before, after=values(card))
    exported(card, wanted)
    killed(card, wanted, 1)
    attempt("before it goes", lambda: apply({f"{card}/rx-usecs": 30}))
    pci_device = Path(f"/sys/class/net/{card}/device")
    (pci_device / "driver/unbind").write_text(pci_device.resolve().name)
    say("gone", said=restore(), journal=(STATE / "journal").exists())
    say("end")


main()
