"""The names of the accelerators, which execute a guest's instructions."""

from enum import StrEnum


class Accelerator(StrEnum):
    """What executes a guest's instructions."""

    KVM = "kvm"
    """The processor executes them."""
    TCG = "tcg"
    """An emulator executes them: correct, and slower by an order of magnitude."""

    @property
    def description(self) -> str:
        """What tables and figures say about the accelerator."""
        if self is Accelerator.KVM:
            return "KVM: the processor's own virtualization"
        return "TCG: emulated CPU, figures say nothing about real hardware"

    @property
    def patience(self) -> float:
        """Factor for time limits, which are chosen for KVM."""
        return 1.0 if self is Accelerator.KVM else 4.0
