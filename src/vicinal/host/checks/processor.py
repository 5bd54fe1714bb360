"""Whether the processor can run guests. Only a guest that starts proves this."""

import os
import re
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host

KVM = "dev/kvm"
_EXTENSIONS = {"vmx": "Intel VT-x", "svm": "AMD-V"}


def check_processor(host: Host) -> Iterator[Finding]:
    """Report virtualization extensions and /dev/kvm: both are necessary, and neither is a proof."""
    flags = re.search(r"^flags\s*:(.*)$", host.text("proc/cpuinfo") or "", re.M)
    words = flags[1].split() if flags else []
    extension = next((name for flag, name in _EXTENSIONS.items() if flag in words), None)
    facts = {"extension": extension, "virtual_machine": host.is_virtual, "kvm": host.exists(KVM)}
    kind = "this host is a virtual machine" if host.is_virtual else "this host is a real machine"
    shown = f"{kind}, its processor shows {extension or 'no virtualization extensions'}"
    if not host.exists(KVM):
        if extension is None:
            yield skipped(
                f"{shown}, and there is no /dev/kvm: guests are emulated (TCG)",
                "for KVM, turn on nested virtualization for this virtual machine on its host"
                if host.is_virtual
                else "for KVM, turn on VT-x or AMD-V (SVM) in the firmware's set-up",
                **facts,
            )
            return
        module = "kvm_intel" if "vmx" in words else "kvm_amd"
        yield warned(
            f"{shown}, but there is no /dev/kvm",
            f"load the module: `modprobe {module}`; if that fails, turn on virtualization in the "
            "firmware's set-up",
            **facts,
        )
    elif not host.may(KVM, os.R_OK | os.W_OK):
        yield warned(
            f"{shown}, and this user may not open /dev/kvm",
            "assign /dev/kvm to the group kvm (`chgrp kvm /dev/kvm; chmod 0660 /dev/kvm`, as udev "
            "does), run `usermod --append --groups kvm USER`, and log in again",
            **facts,
        )
    elif words and extension is None:
        yield warned(
            f"{shown}, and yet there is a /dev/kvm: only a guest that starts proves KVM",
            "see the line about guests",
            **facts,
        )
    else:
        yield passed(
            f"{shown}, and this user may open /dev/kvm (see `guests` for a proof)", **facts
        )


PROCESSOR = Check(
    "processor",
    "processor",
    "Virtualization extensions of the processor, and whether this user may open /dev/kvm",
    check_processor,
)
