"""The commands that start quickly, and how they run without typer: see base/plain_call.py."""

import importlib
from collections.abc import Callable, Sequence

from vicinal.base.plain_call import NotInOrderError, values_of

PLAIN = {
    ("plan",): "vicinal.cluster.plan_command:plan",
    ("study", "list"): "vicinal.labs.study_commands.list_command:list_",
    ("slurm", "region"): "vicinal.integrations.slurm.plugin_commands:region",
    ("slurm", "sweep"): "vicinal.integrations.slurm.plugin_commands:sweep",
    ("slurm", "vfs"): "vicinal.integrations.slurm.plugin_commands:vfs",
    ("slurm", "grant"): "vicinal.integrations.slurm.plugin_commands:grant",
    ("slurm", "release"): "vicinal.integrations.slurm.plugin_commands:release",
    ("slurm", "network"): "vicinal.integrations.slurm.plugin_commands:network",
}
"""Commands and their functions, each as MODULE:FUNCTION. A function may return an exit status."""


def plain_call(words: Sequence[str]) -> Callable[[], int | None] | None:
    """Return a function that runs the command line; None if typer must parse the words."""
    for length in (1, 2):
        if target := PLAIN.get(tuple(words[:length])):
            break
    else:
        return None
    module, _, name = target.partition(":")
    vf = getattr(importlib.import_module(module), name)
    try:
        values = values_of(vf, words[length:])
    except NotInOrderError:
        return None
    return lambda: vf(**values)
