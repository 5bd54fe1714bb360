"""Commands of a cluster's file that a machine's guest runs when it boots, as root.

The guest knows of no earlier boot: its file system is in its memory. So what it is told at its next
one changes when the first has succeeded.
"""

import shlex

from vicinal.cluster.file.model import Commands
from vicinal.cluster.nodes.vm.machine import Machine


def write_commands(machine: Machine, *, first: bool) -> None:
    """Write what a machine runs at its next boot, which is its first or a later one."""
    if not machine.commands:
        return
    file = machine.files.commands(machine.name)
    fresh = file.with_suffix(".part")
    fresh.touch(mode=0o600)
    fresh.write_text(commands_text(machine.commands, first=first))
    fresh.replace(file)


def commands_text(commands: Commands, *, first: bool) -> str:
    """What a guest runs at a boot, as its first process reads it."""
    lines = [("first_boot", line) for line in commands.first_boot if first]
    lines += [("each_boot", line) for line in commands.each_boot]
    # `run` is a function of guest_init.sh, which reads this.
    script = "".join(f"run {key} {shlex.quote(line)}\n" for key, line in lines)
    return f"# commands of the cluster's file\n{script}"
