"""What executes a guest's instructions: a name, for whoever asks for it or shows it."""

from enum import StrEnum


class Accelerator(StrEnum):
    """What executes a guest's instructions."""

    KVM = "kvm"
    """The processor itself."""
    TCG = "tcg"
    """An emulator; correct, and slower by an order of magnitude."""

    @property
    def description(self) -> str:
        """What tables and figures have to say about it."""
        if self is Accelerator.KVM:
            return "KVM: the processor's own virtualization"
        return "TCG: emulated CPU, figures say nothing about real hardware"

    @property
    def patience(self) -> float:
        """How much longer than with KVM things may take."""
        return 1.0 if self is Accelerator.KVM else 4.0
