"""Whether the processor can run guests. That it really does, only a guest that starts can tell."""

import os
import re
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host

KVM = "dev/kvm"
_EXTENSIONS = {"vmx": "Intel VT-x", "svm": "AMD-V"}


def check_processor(host: Host) -> Iterator[Finding]:
    """Virtualization extensions and /dev/kvm: necessary, and no proof."""
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
                "for KVM turn on nested virtualization for this machine where it is hosted"
                if host.is_virtual
                else "for KVM turn on VT-x or AMD-V (SVM) in the firmware's set-up",
                **facts,
            )
            return
        module = "kvm_intel" if "vmx" in words else "kvm_amd"
        yield warned(
            f"{shown}, but there is no /dev/kvm",
            f"load the module: `modprobe {module}`; if it refuses, turn on virtualization in the "
            "firmware's set-up",
            **facts,
        )
    elif not host.may(KVM, os.R_OK | os.W_OK):
        yield warned(
            f"{shown}, and /dev/kvm may not be opened by this user",
            "let the group kvm have it (`chgrp kvm /dev/kvm; chmod 0660 /dev/kvm`, as udev does), "
            "and `usermod --append --groups kvm USER`; log in anew",
            **facts,
        )
    elif words and extension is None:
        yield warned(
            f"{shown}, and yet there is a /dev/kvm: only a guest that starts can tell",
            "go by the line about guests",
            **facts,
        )
    else:
        yield passed(f"{shown}, and this user may open /dev/kvm (see `guests` for proof)", **facts)


PROCESSOR = Check(
    "processor",
    "processor",
    "Virtualization extensions of the processor, and whether this user may open /dev/kvm",
    check_processor,
)
