"""The check of `vicinal doctor` that starts a guest: whether KVM works, or only TCG."""

from collections.abc import Callable, Iterator

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.image.building import build_image, guests_directory, is_fetched
from vicinal.cluster.vm.qemu.accelerator_probe import Choice, choose_accelerator, known_choice
from vicinal.cluster.vm.qemu.choice import QEMU, find_qemu
from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host


def guest_check(start: bool | None, say: Callable[[str], None]) -> Check:
    """The check, which starts a guest if `start` is True.

    With None it starts a guest only if that takes seconds and downloads nothing. An answer that is
    known since the host's boot is not tested again. `say` receives each step.
    """

    def examine(host: Host) -> Iterator[Finding]:
        if host.program(QEMU) is None:
            yield skipped("guests cannot start without QEMU")
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
            "it was not tested whether a guest boots with KVM",
            "run `vicinal doctor --start-guest`, which fetches a guest image if there is none",
            accelerator=None,
        )
    facts = {"accelerator": choice.accelerator.value, "reason": choice.reason}
    if choice.accelerator is Accelerator.KVM:
        return passed(f"KVM: {choice.reason}", **facts)
    return warned(
        f"guests are emulated (TCG), which is correct and slow: {choice.reason}",
        "see the line about the processor; in a virtual machine, KVM needs working nested "
        "virtualization",
        **facts,
    )
