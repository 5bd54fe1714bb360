"""Kill a command that applies, tries or restores a setting at each step, for test_tune_killed.py.

    tune_killed.py HOST STATE

HOST is the directory of a fake host, or `kernel`, which means this network namespace. A step
is the moment before, in the middle of or after each journal line, and before or after each change
of a value. Each line of output is JSON: the action, the step of the kill, and the values after the
kill, after the next command's recovery, and after `restore`.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_knobs import same_tuned_host

from vicinal.base.journal import LineJournal
from vicinal.labs.tune.knobs.catalogue import knob_named
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.state_directory import sole_command

HOST, STATE = sys.argv[1], Path(sys.argv[2])
SETTING: dict[str, int | str] = {"va/channels-rx": 1, "tap0/rx-frames": 40}
if HOST != "kernel":
    SETTING = {"eth0/channels-combined": 2, "eth0/rx-usecs": 10, "eth0/adaptive-rx": "off"}
MOST = 100


def host() -> TunedHost:
    return TunedHost() if HOST == "kernel" else same_tuned_host(Path(HOST))


def new_applier() -> Applier:
    return Applier(host(), STATE / "journal")


def values() -> dict[str, int | str]:
    return {name: knob_named(host(), name).read() for name in SETTING}


def act(action: str) -> None:
    """Run the action that the kill interrupts."""
    with sole_command(STATE):
        applier = new_applier()
        applier.recover()
        if action == "apply":
            with applier.lasting() as work:
                work.apply(SETTING)
        elif action == "try":
            with applier.temporarily() as work:
                work.apply(SETTING)
                work.apply({name: 1 for name, value in SETTING.items() if isinstance(value, int)})
        elif action == "restore":
            applier.restore()


def kill_at(number: int) -> None:
    """Make this process kill itself at step `number`."""
    real_write, left = os.write, [number]

    def step() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(action: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> None:
            step()
            action(*arguments)
            step()

        return run

    def torn_write(file: int, text: bytes) -> int:
        """A write that a power failure can interrupt in the middle of a line."""
        half = len(text) // 2
        real_write(file, text[:half])
        step()
        return half + real_write(file, text[half:])

    def append(journal: LineJournal, record: Any) -> None:
        os.write = torn_write  # type: ignore[assignment]
        real_append(journal, record)
        os.write = real_write

    real_append = LineJournal.append
    LineJournal.append = stepping(append)  # type: ignore[method-assign]
    cards = type(host().ethtool)
    for name in ("set_coalescing", "set_channels"):
        setattr(cards, name, stepping(getattr(cards, name)))


def killed_at(number: int, action: str) -> bool:
    """Whether the action has that many steps; nothing except the kill may end it."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(number)
            act(action)
        finally:
            os._exit(int(sys.exc_info()[0] is not None))
    _, status = os.waitpid(child, 0)
    if status not in (0, signal.SIGKILL):
        raise SystemExit(f"{action} ended with {status} at step {number}")
    return status != 0


def after(action: Callable[[Applier], object]) -> dict[str, int | str]:
    with sole_command(STATE):
        action(new_applier())
    return values()


def say(**found: object) -> None:
    print(json.dumps(found), flush=True)


say(action="nothing", found=values(), journal=(STATE / "journal").exists())
for each in ("apply", "try", "restore"):
    for at in range(1, MOST):
        if each == "restore":
            act("apply")
        was_killed = killed_at(at, each)
        found = values()
        if at % 2 == 0 and was_killed:
            killed_at(3, "recover")  # kill the recovery as well
        recovered = after(Applier.recover)
        restored = after(Applier.restore)
        left = (STATE / "journal").exists()
        say(action=each, step=at, killed=was_killed, found=found, recovered=recovered)
        say(action="restored", found=restored, journal=left)
        if not was_killed:
            break
