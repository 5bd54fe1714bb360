"""The check of `vicinal doctor` that starts a guest: KVM or its emulator."""

from collections.abc import Callable, Iterator

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.image.building import build_image, guests_directory, is_fetched
from vicinal.cluster.vm.qemu.accelerator_probe import Choice, choose_accelerator, known_choice
from vicinal.cluster.vm.qemu.choice import QEMU, find_qemu
from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host


def guest_check(start: bool | None, say: Callable[[str], None]) -> Check:
    """The check. It starts a guest if `start`; None: where that takes seconds, and no downloads.

    What was found out since the host was booted is known, and not tried again. `say` is told
    what is being done.
    """

    def examine(host: Host) -> Iterator[Finding]:
        if host.program(QEMU) is None:
            yield skipped("no guest can be started without QEMU")
            return
        qemu = find_qemu()
        choice = known_choice(qemu, guests_directory())
        if choice is None and (start or (start is None and is_fetched())):
            choice = choose_accelerator(qemu, build_image(say), say)
        yield _judge(choice)

    return Check(
        "guests",
        "guests",
        "Whether KVM really runs a guest, by starting one",
        examine,
    )


def _judge(choice: Choice | None) -> Finding:
    if choice is None:
        return warned(
            "whether a guest comes up in KVM was not tried",
            "`vicinal doctor --start-guest` does; it fetches a guest image if there is none",
            accelerator=None,
        )
    facts = {"accelerator": choice.accelerator.value, "reason": choice.reason}
    if choice.accelerator is Accelerator.KVM:
        return passed(f"KVM: {choice.reason}", **facts)
    return warned(
        f"guests are emulated (TCG), which is correct and slow: {choice.reason}",
        "see the line about the processor; where this is a virtual machine itself, KVM needs "
        "nested virtualization that works",
        **facts,
    )
