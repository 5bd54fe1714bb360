"""A user's operations on domains: two guests that share a region, from definition to removal.

    python domain_scenario.py URI DIRECTORY KERNEL INITRD ACCELERATOR PROGRAM HOLDS...

test_domains.py runs it, as root and as an unprivileged user, each with a libvirt of its own. It
raises an error if anything is wrong, and reports on standard output: one JSON object a line, with
`step` and facts.
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import libvirt
import psutil
from guest_support import BOUND
from guest_verify import Pair, verify

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.pair import pair_identities
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import FileRegion, NvdimmRegion, SharedRegion, Wire
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.identity import Keys, card_address, make_keys
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.building import GuestImage
from vicinal.cluster.vm.image.layout import IDENTITY_FILE
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_devices import attach_region, detach_region, has_region
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml
from vicinal.cluster.vm.libvirt.leftovers import remove_leftover
from vicinal.cluster.vm.libvirt.lifecycle import (
    DomainState,
    define,
    find,
    observe,
    remove,
    restore,
    save,
    start,
    stop,
    wait_until_booted,
)
from vicinal.region import create

DEVICES = "cat /sys/bus/pci/devices/*/device"
IVSHMEM = "0x1110"
# The last available processor is for the guests, and the first for QEMU's other threads.
PLACEMENT = Placement(
    processors=(frozenset({max(os.sched_getaffinity(0))}),),
    emulator=frozenset({min(os.sched_getaffinity(0))}),
    memory_nodes=frozenset({0}),
)
STOP_SECONDS = 120.0  # prevents hanging: the power button takes a guest a second


def say(step: str, **facts: object) -> None:
    print(json.dumps({"step": step, **facts}), flush=True)


def two_vms(
    directory: Path, image: GuestImage, keys: Keys, accelerator: Accelerator, region: SharedRegion
) -> list[DomainSpec]:
    """Two guests with one region and a wire; the cluster has the directory's name."""
    cluster = directory.name
    return [
        DomainSpec(
            name=f"vicinal-{cluster}-{guest.name}",
            cluster=cluster,
            node=guest.name,
            boot=DirectBoot(image.kernel, image.files),
            console=directory / f"console{number}",
            control=directory / f"{guest.name}.port",
            firmware_files=((IDENTITY_FILE, keys.archive(guest.name)),),
            accelerator=accelerator,
            placement=PLACEMENT,
            region=region,
            interfaces=(
                Wire(
                    directory / f"wire{number}",
                    directory / f"wire{1 - number}",
                    card_address(number),
                ),
            ),
        )
        for number, guest in enumerate(pair_identities())
    ]


def enter(hypervisor: Hypervisor, spec: DomainSpec, keys: Keys) -> GuestShell:
    """A connection to a guest that is booting or has booted."""

    def failure(what: str) -> VicinalError:
        return VicinalError(f"{spec.name}: {what}", f"see {spec.console}")

    def alive(_: bool) -> bool:
        return observe(hypervisor, spec.name) is DomainState.RUNNING

    seconds = BOOT_SECONDS * spec.accelerator.patience
    wait_until_booted(hypervisor, spec.name, spec.console, seconds)
    guest = GuestShell(spec.node, spec.console.parent, keys, alive=alive, failure=failure)
    guest.connect(seconds)
    return guest


def sees_region(guest: GuestShell) -> bool:
    done = guest.run(["sh", "-c", DEVICES])
    assert done.returncode == 0, done.stderr
    return IVSHMEM in done.stdout.split()


def until_seen(guest: GuestShell, seen: bool) -> None:
    deadline = time.monotonic() + BOUND
    while sees_region(guest) is not seen:
        assert time.monotonic() < deadline, "the guest and libvirt do not agree on the region"
        time.sleep(0.5)


def every_kind_is_defined(hypervisor: Hypervisor, spec: DomainSpec) -> None:
    """Not only by the schema: libvirt's QEMU driver assigns addresses, and rejects gaps."""
    file = spec.console.parent / "file"
    for region in (FileRegion(file, 2 << 20), NvdimmRegion(file, 6 << 20), None):
        name = f"{spec.name}-kind"
        define(hypervisor, dataclasses.replace(spec, name=name, region=region))
        assert observe(hypervisor, name) is DomainState.OFF
        remove(hypervisor, name)
        assert observe(hypervisor, name) is DomainState.ABSENT
    # The definition that libvirt starts: an emulated guest with one processor may get a second.
    arguments = hypervisor.connection.domainXMLToNative("qemu-argv", domain_xml(spec), 0)
    assert "-smp 1,maxcpus=2," in arguments, arguments


def check_placement(spec: DomainSpec) -> None:
    """The real placement of a guest's QEMU: of its threads, and of its memory."""
    qemus = [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if f"guest={spec.name}," in " ".join(each.info["cmdline"] or [])
    ]
    assert len(qemus) == 1, qemus
    threads = Path(f"/proc/{qemus[0]}/task")
    affinities = {
        int(each.name): os.sched_getaffinity(int(each.name)) for each in threads.iterdir()
    }
    processors = [
        affinities[int(each.name)]
        for each in threads.iterdir()
        if (each / "comm").read_text().startswith("CPU ")
    ]
    assert processors == [set(PLACEMENT.processors[0])], processors
    assert affinities[qemus[0]] == PLACEMENT.emulator, affinities
    maps = Path(f"/proc/{qemus[0]}/numa_maps").read_text()
    policies = {line.split()[1] for line in maps.splitlines()}
    assert "bind:0" in policies, policies


def a_name_of_somebody_elses(hypervisor: Hypervisor, spec: DomainSpec) -> str:
    """A domain without Vicinal's metadata stays unchanged."""
    domain = ElementTree.fromstring(domain_xml(spec))
    metadata = domain.find("metadata")
    assert metadata is not None
    domain.remove(metadata)
    theirs = hypervisor.connection.defineXML(ElementTree.tostring(domain, encoding="unicode"))
    try:
        for attempt in (define, lambda h, s: remove(h, s.name)):
            try:
                attempt(hypervisor, spec)
            except VicinalError as error:
                message = str(error)
            else:
                raise AssertionError("somebody else's domain was taken for ours")
        assert find(hypervisor) == []
    finally:
        theirs.undefine()
    return message


def a_guest_that_never_boots(hypervisor: Hypervisor, spec: DomainSpec, patience: float) -> str:
    """Its initrd is not an archive, so the kernel panics, and the error reports the panic."""
    broken = spec.console.parent / "broken"
    broken.write_bytes(b"this is no archive")
    assert isinstance(spec.boot, DirectBoot)
    boot = dataclasses.replace(spec.boot, initrd=broken)
    spec = dataclasses.replace(
        spec, boot=boot, region=None, console=spec.console.parent / "broken-console"
    )
    define(hypervisor, spec)
    start(hypervisor, spec.name)
    try:
        wait_until_booted(hypervisor, spec.name, spec.console, BOOT_SECONDS * patience)
    except VicinalError as error:
        return str(error)
    else:
        raise AssertionError("a guest without a file system came up")
    finally:
        remove(hypervisor, spec.name)


def a_guest_that_does_not_hear(hypervisor: Hypervisor, name: str, region: SharedRegion) -> str:
    """A paused guest does not release its region, and releases it after it resumes."""
    domain = hypervisor.connection.lookupByName(name)
    domain.suspend()
    assert observe(hypervisor, name) is DomainState.PAUSED
    try:
        detach_region(hypervisor, name, region.name, seconds=12.0)  # long enough for two requests
    except VicinalError as error:
        message = str(error)
    else:
        raise AssertionError("a guest that stands still let go of its region")
    finally:
        domain.resume()
    detach_region(hypervisor, name, region.name)
    assert not has_region(hypervisor, name, region.name)
    attach_region(hypervisor, name, region)
    return message


def memory_modules(
    hypervisor: Hypervisor, specs: list[DomainSpec], keys: Keys, image: GuestImage, program: str
) -> None:
    """Two VMs that have the region as /dev/dax, and no ivshmem device."""
    path = specs[0].console.parent / "module"
    create(path, members=8, for_nvdimm=True)
    region = NvdimmRegion(path, path.stat().st_size)
    specs = [dataclasses.replace(spec, region=region) for spec in specs]
    for spec in specs:
        define(hypervisor, spec)
        start(hypervisor, spec.name)
    guests = [enter(hypervisor, spec, keys) for spec in specs]
    assert not any(sees_region(guest) for guest in guests)
    devices = [guest.run(["sh", "-c", "ls /dev/dax*"]).stdout.split() for guest in guests]
    say("modules", devices=devices, talks=sorted(verify(Pair(guests, image, path), program)))
    for guest, spec in zip(guests, specs, strict=True):
        guest.close()
        remove(hypervisor, spec.name)


def main() -> None:
    uri, where, kernel, initrd, accelerator, program, *holds = sys.argv[1:]
    directory = Path(where)
    image = GuestImage(Path(kernel), Path(initrd), "", frozenset(holds))
    cluster = directory.name
    keys = make_keys(directory, pair_identities())
    path = Path("/dev/shm") / f"vicinal-{cluster}"
    create(path, members=8, for_guests=True)
    region = SharedRegion(path.name, path.stat().st_size)
    specs = two_vms(directory, image, keys, Accelerator(accelerator), region)
    patience = specs[0].accelerator.patience
    try:
        with connect(uri) as hypervisor:
            qemu = hypervisor.check(specs[0].accelerator)
            say("connected", qemu=qemu, user=hypervisor.qemu_user())
            try:
                every_kind_is_defined(hypervisor, specs[0])
                say("clash", error=a_name_of_somebody_elses(hypervisor, specs[0]))
                say("broken", error=a_guest_that_never_boots(hypervisor, specs[0], patience))
                live(hypervisor, specs, keys, image, region, program)
                if uri.endswith("/session"):  # one run is enough
                    for spec in specs:
                        remove(hypervisor, spec.name)
                    memory_modules(hypervisor, specs, keys, image, program)
            finally:
                for spec in specs:
                    remove(hypervisor, spec.name)
            assert find(hypervisor) == []
            assert hypervisor.connection.numOfDomains() == 0
            assert hypervisor.connection.numOfDefinedDomains() == 0
    finally:
        left = remove_leftover(region)
    assert left
    say("removed", left=[each.name for each in Path("/dev/shm").glob(f"*{cluster}*")])


def live(
    hypervisor: Hypervisor,
    specs: list[DomainSpec],
    keys: Keys,
    image: GuestImage,
    region: SharedRegion,
    program: str,
) -> None:
    cluster, patience = specs[0].cluster, specs[0].accelerator.patience
    began = time.monotonic()
    for spec in specs:
        define(hypervisor, spec)
        start(hypervisor, spec.name)
    assert [(each.node, each.state) for each in find(hypervisor, cluster)] == [
        (spec.node, DomainState.RUNNING) for spec in specs
    ]
    assert find(hypervisor, "another") == []
    guests = [enter(hypervisor, spec, keys) for spec in specs]
    say("booted", seconds=round(time.monotonic() - began, 1))
    for spec in specs:
        check_placement(spec)
    pair = Pair(guests, image, region.path)
    say("verified", talks=sorted(verify(pair, program)))

    # The region is detached and attached while the guest runs.
    first = specs[0].name
    began = time.monotonic()
    detach_region(hypervisor, first, region.name)
    detached = time.monotonic() - began
    detach_region(hypervisor, first, region.name)  # again, which has no effect
    assert not has_region(hypervisor, first, region.name)
    until_seen(guests[0], False)
    assert has_region(hypervisor, specs[1].name, region.name)
    assert sees_region(guests[1])
    attach_region(hypervisor, first, region)
    attach_region(hypervisor, first, region)
    until_seen(guests[0], True)
    say("detached", seconds=round(detached, 2))

    say("deaf", error=a_guest_that_does_not_hear(hypervisor, specs[1].name, region))

    # Saved and restored: its memory is as before, and saving with a region is refused.
    guests[0].run(["sh", "-c", "echo kept >/tmp/kept"])
    try:
        save(hypervisor, first)
    except VicinalError as error:
        say("refused", error=str(error))
    else:
        raise AssertionError("a guest was saved together with a region")
    assert observe(hypervisor, first) is DomainState.RUNNING
    detach_region(hypervisor, first, region.name)
    guests[0].close()
    time.sleep(2)  # the guest must notice that the connection ended, which nothing announces
    save(hypervisor, first)
    assert observe(hypervisor, first) is DomainState.SAVED
    restore(hypervisor, first)
    assert observe(hypervisor, first) is DomainState.RUNNING
    attach_region(hypervisor, first, region)
    guests[0].connect(BOOT_SECONDS * patience)
    assert guests[0].run(["cat", "/tmp/kept"]).stdout == "kept\n"
    until_seen(guests[0], True)
    say("restored", talks=sorted(verify(pair, program)))

    # The power button, and then the end by force.
    for guest in guests:
        guest.close()
    assert stop(hypervisor, first, patience=STOP_SECONDS)
    assert observe(hypervisor, first) is DomainState.OFF
    assert not stop(hypervisor, specs[1].name)
    say("stopped", button="power button" in specs[0].console.read_text(errors="replace"))


if __name__ == "__main__":
    libvirt.registerErrorHandler(lambda *_: None, None)
    main()
