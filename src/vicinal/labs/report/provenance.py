"""How it was measured: the manifest and the design, as names and values for people."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vicinal.labs.study.file.model import Study

_GIB = 1024**3


@dataclass(frozen=True)
class Fact:
    """A line of it."""

    name: str
    value: str


def facts(manifest: Mapping[str, Any], study: Study) -> Iterator[Fact]:
    """The design first, then the machine, versions and variables. All values are text."""
    design = study.design
    trials = f"{design.trials} blocks"
    if design.most_trials is not None:
        trials += (
            f", then more until intervals are within {100 * design.precision:g} % of the ratio,"
            f" at most {design.most_trials}"
        )
    yield Fact(
        "Design",
        f"{trials}; each block has every environment once, in random order; a trial is a fresh"
        " launch",
    )
    yield Fact(
        "Claims",
        f"Wilcoxon's signed-rank test on the blocks' ratios at {design.alpha:g}, corrected by"
        f" {str(design.correction).title()} over the whole study; equivalent is within"
        f" ±{100 * design.margin:g} %",
    )
    yield Fact("Measured", _text(manifest.get("created")))
    yield Fact("Seed", _text(manifest.get("seed")))
    yield from _machine(manifest.get("machine") or {})
    for name, value in (manifest.get("versions") or {}).items():
        yield Fact(f"Version of {name}", _text(value))
    variables = manifest.get("variables") or {}
    yield Fact(
        "Environment",
        " ".join(f"{name}={value}" for name, value in variables.items())
        or "no variables that MPI libraries or Vicinal heed",
    )


def _machine(machine: Mapping[str, Any]) -> Iterator[Fact]:
    virtual = ", a virtual machine itself" if machine.get("virtual") else ""
    yield Fact(
        "Processor",
        f"{_text(machine.get('cpu'))}: {_text(machine.get('cores'))} cores,"
        f" {_text(machine.get('threads'))} threads{virtual}",
    )
    memory = machine.get("memory_bytes")
    if isinstance(memory, int | float):
        yield Fact("Memory", f"{memory / _GIB:.1f} GiB")
    yield Fact("Load at the beginning", _text(machine.get("load")))
    cards = [card for card in machine.get("network") or [] if isinstance(card, Mapping)]
    for card in cards:
        words = [f"{name} {value}" for name, value in card.items() if value and name != "name"]
        yield Fact(f"Network card {_text(card.get('name'))}", ", ".join(words))
    if not cards:
        yield Fact("Network cards", "none that are hardware or a hypervisor's")
    for name, value in (machine.get("hypervisor") or {}).items():
        yield Fact(f"Hypervisor: {name}", _text(value))
    known = {"cpu", "cores", "threads", "virtual", "memory_bytes", "load", "network", "hypervisor"}
    for name in sorted(set(machine) - known):
        yield Fact(name.replace("_", " ").capitalize(), _text(machine[name]))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
