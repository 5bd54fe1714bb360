"""Nodes that are virtual machines (VMs), and what all VMs of a cluster share."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.faults import Faults
from vicinal.cluster.file.hosts import HostPart
from vicinal.cluster.file.model import ImageAdditions
from vicinal.cluster.nodes.vm.guest_ssh import end_guest_ssh
from vicinal.cluster.nodes.vm.hypervisor import (
    check_usable,
    end_orphan,
    has_vms,
    hypervisor_at,
    user_of_vms,
)
from vicinal.cluster.nodes.vm.image_additions import build_additions, join
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.links import check_link
from vicinal.cluster.nodes.vm.network import FarVm, cards
from vicinal.cluster.nodes.vm.vm import Vm, write_commands
from vicinal.cluster.plan.resource import Condition, Held, Json, Observation, Standing, Undemanding
from vicinal.cluster.resources.keys import KeysResource
from vicinal.cluster.resources.libvirt import LibvirtResource
from vicinal.cluster.resources.vfs import VfResource
from vicinal.cluster.resources.whole_device import check_whole_device, held_device
from vicinal.cluster.vm.devices import PciFunction
from vicinal.cluster.vm.guest.identity import (
    Card,
    Identity,
    check_keygen,
    generate_keys,
    read_keys,
    write_archives,
    write_keys,
)
from vicinal.cluster.vm.image.building import GuestImage, build_image, image_identity
from vicinal.cluster.vm.image.layout import guest_address
from vicinal.cluster.vm.libvirt.uri import is_own
from vicinal.cluster.vm.qemu.accelerator_probe import Choice, choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_address, check_device

IS_SAVED = "it is saved"
"""The reason in the observation of a saved VM, which is stopped and can be restored."""

_BUTTON_SECONDS = 30.0
"""Time for a guest to shut down by itself after its power button was pressed."""


@dataclass(frozen=True, kw_only=True)
class VmsResource(Standing):
    """What all VMs of a cluster share: the image that they boot, their names and their keys.

    If a VM is added or removed, all VMs are recreated, because each knows the names of all.
    """

    KIND: ClassVar[str] = "vms"

    directory: Path
    uri: str
    """The libvirt of the VMs."""
    guests: tuple[Identity, ...]
    image: str
    """Identity of the image."""
    additions: Mapping[str, ImageAdditions] = field(default_factory=dict)
    """Additions to the image for some of the VMs, by the additions' key."""
    keys: Path | None = None

    @classmethod
    def of(
        cls,
        vms: tuple[Vm, ...],
        host_part: HostPart | None = None,
        keys: Path | None = None,
    ) -> Self:
        """Return what these VMs share; they are all VMs of their cluster on this host.

        `host_part` lists the VMs on other hosts, and `keys` is the directory of the keys that all
        have.
        """
        first = vms[0]
        return cls(
            directory=first.files.directory,
            uri=first.uri,
            guests=_guests(vms, host_part),
            image=image_identity(),
            additions={each.additions_key: each.additions for each in vms if each.additions},
            keys=keys,
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """Vicinal's own libvirt, and the keys that all VMs share, if the cluster has them."""
        libvirt = (LibvirtResource.KEY,) if is_own(self.uri) else ()
        keys = () if self.keys is None else (f"{KeysResource.KIND}/main",)
        return (*libvirt, *keys)

    def prepare(self, say: Callable[[str], None]) -> None:
        """Create the missing images, which all clusters share, before create()."""
        _, choice = prepare(say)
        if not is_own(self.uri):  # another resource starts and ends Vicinal's own libvirt
            hypervisor_at(self.uri).check(choice.accelerator)
        for additions in self.additions.values():
            build_additions(additions, say)

    def at_this_host(self, vm: Vm, bridge: str) -> Vm:
        """Return this host's counterpart of a VM on another host, for a move to this host."""
        return replace(vm, uri=self.uri, directory=str(self._files.directory), bridge=bridge)

    @property
    def _files(self) -> Files:
        return Files(self.directory)

    def made(self) -> Made:
        """Return the facts that create() recorded. Raises VicinalError if they are missing."""
        return Made.read(self._files)

    def observe(self) -> Observation:
        """Check that the directory exists and is complete."""
        if not self._files.directory.is_dir():
            return Observation(Condition.ABSENT)
        try:
            self.made()
        except VicinalError as error:
            return Observation(Condition.BROKEN, error.message)
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Check QEMU, the libvirt, the tool that generates keys, and the lengths of paths."""
        del released  # needs nothing that other resources release
        faults = Faults()
        for check in (
            find_qemu,
            check_keygen,
            partial(check_usable, self.uri),
            partial(self._files.check_lengths, len(self.guests)),
        ):
            with faults.catch():
                check()
        faults.check()

    def create(self) -> None:
        """Create the directory, and the image if this host has none for its present software."""
        files = self._files
        files.check_lengths(len(self.guests))
        image, choice = prepare()
        hypervisor_at(self.uri).check(choice.accelerator)
        files.directory.mkdir(mode=0o700, parents=True)
        # Links or copies, because the next image replaces this one.
        _keep(image.kernel, files.kernel)
        _keep(image.files, files.system)
        for key, additions in self.additions.items():
            join(image, build_additions(additions, _silent), files.system_with(key))
        if self.keys is None:
            generate_keys(files.directory)
        else:
            write_keys(files.directory, read_keys(self.keys))
        write_archives(files.directory, self.guests)
        Made(choice.accelerator, choice.reason, tuple(sorted(image.holds))).write(files)

    def remove(self) -> None:
        try:
            shutil.rmtree(self._files.directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise VicinalError(
                f"{self._files.directory} could not be removed ({describe_os_error(error)})",
                "remove it by hand",
            ) from error


@dataclass(frozen=True)
class VmResource(Undemanding):
    """A node that is a VM."""

    KIND: ClassVar[str] = "vm"

    vm: Vm

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        return cls(decode(Vm, settings))

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.vm.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """What the VM boots, and what it is connected to."""
        region = () if self.vm.region is None else ("region/main",)
        ours = self.vm.bridge is not None and self.vm.bridge_is_ours
        bridge = ("bridge/main",) if ours else ()
        name = f"{VfResource.KIND}/{self.vm.name}"
        vf = () if self.vm.vf is None else (name,)
        doorbell = () if self.vm.doorbell is None else ("doorbell/main",)
        return (*region, *bridge, *vf, "vms/main", *doorbell)

    @property
    def settings(self) -> Mapping[str, Json]:
        return encode(self.vm)

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        """Return the state of the VM's domain; broken if the domain belongs to another program."""
        # Imported here and below, so that clusters without VMs need no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        if not has_vms(self.vm.uri):
            return Observation(Condition.ABSENT)
        hypervisor = hypervisor_at(self.vm.uri)
        state = observe(hypervisor, self.vm.domain)
        if state is DomainState.ABSENT:
            return Observation(Condition.ABSENT)
        if not self._is_ours():
            return Observation(
                Condition.BROKEN, f"the domain {self.vm.domain} belongs to another program"
            )
        match state:
            case DomainState.RUNNING:
                return Observation(Condition.READY)
            case DomainState.CRASHED:
                return Observation(Condition.BROKEN, "it crashed")
            case DomainState.SAVED:
                return Observation(Condition.STOPPED, IS_SAVED)
        return Observation(Condition.STOPPED, f"it is {state}")

    @property
    def held(self) -> Held:
        """The memory, taps, ports and device of a running VM."""
        vm = self.vm
        if self.observe().condition is not Condition.READY:
            return Held()
        ports = {_port(each) for each in vm.far}
        memory = 0 if vm.hugepages else vm.memory_mib << 20
        own = Held(frozenset({*self._taps, *ports}), memory_bytes=memory)
        return own + held_device(vm.device)

    def check(self, released: Held) -> None:
        """Check that its tap or bridge exists, and that its tap, device and ports are free."""
        faults = Faults()
        with faults.catch():
            free = released.things.isdisjoint(self._taps)
            check_link(self.vm.uri, self.vm.link, starts=free)
        with faults.catch():
            check_whole_device(Vfs(), self.vm.device, released)
        for each in self.vm.far:
            if _port(each) not in released.things:
                with faults.catch():
                    each.check()
        faults.check()

    @property
    def _taps(self) -> set[str]:
        link = self.vm.link
        return set() if link is None or link.tap is None else {f"tap {link.tap}"}

    def create(self) -> None:
        """Define and start the VM; resources/guests.py waits until all VMs have booted."""
        from vicinal.cluster.vm.libvirt.lifecycle import define, start

        self._check_link()
        write_commands(self.vm, first=True)
        hypervisor = hypervisor_at(self.vm.uri)
        spec = self.vm.spec(self.devices())
        define(hypervisor, replace(spec, user=user_of_vms(hypervisor)))
        start(hypervisor, self.vm.domain)

    def devices(self) -> tuple[PciFunction, ...]:
        """Return the host's devices of the VM.

        libvirt unbinds each from its driver, and rebinds it after the VM has ended. Raises
        VicinalError if a device cannot be assigned.
        """
        vfs, found = Vfs(), []
        if self.vm.device is not None:
            check_device(vfs, self.vm.device)
            found.append(self.vm.device)
        if self.vm.vf is not None:
            found.append(assigned_address(vfs, self.vm.vf))
        return tuple(map(PciFunction, found))

    def start(self) -> None:
        """Boot the VM, or resume it if it is paused.

        A saved VM is restored, and stays paused until all VMs are restored; then
        resources/guests.py resumes them.
        """
        from vicinal.cluster.vm.libvirt.lifecycle import (
            DomainState,
            observe,
            restore,
            resume,
            start,
        )

        hypervisor, saved = hypervisor_at(self.vm.uri), self.vm.saved
        match observe(hypervisor, self.vm.domain):
            case DomainState.SAVED:
                self._check_link()
                restore(hypervisor, self.vm.domain, paused=True)
            case DomainState.PAUSED:
                if not saved.exists():
                    resume(hypervisor, self.vm.domain)
            case _:
                self._check_link()
                saved.unlink(missing_ok=True)
                start(hypervisor, self.vm.domain)

    def stop(self) -> None:
        """Press the VM's power button, and end the VM if it does not shut down in 30 s."""
        from vicinal.cluster.vm.libvirt.lifecycle import stop

        end_guest_ssh(self.vm)
        stop(hypervisor_at(self.vm.uri), self.vm.domain, patience=_BUTTON_SECONDS)

    def remove(self) -> None:
        """End the VM and undefine its domain, if the domain is this VM."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe, remove

        end_guest_ssh(self.vm)
        if has_vms(self.vm.uri):
            hypervisor = hypervisor_at(self.vm.uri)
            if self._is_ours():
                remove(hypervisor, self.vm.domain)
            if observe(hypervisor, self.vm.domain) is not DomainState.ABSENT:
                return  # it belongs to another program
        end_orphan(self.vm)

    def forget(self) -> str:
        """Give up a VM whose libvirt is lost, and return a phrase for what may be left of it.

        The VM's processes are ended anyway. Raises VicinalError.
        """
        end_guest_ssh(self.vm)
        end_orphan(self.vm)
        device = self.vm.device
        held = "" if device is None else f", and the device {device}, possibly bound to vfio-pci"
        return f"the domain {self.vm.domain}, possibly still defined in {self.vm.uri}{held}"

    def _check_link(self) -> None:
        check_link(self.vm.uri, self.vm.link, starts=True)

    def _is_ours(self) -> bool:
        """Whether the domain of the VM's name is this VM."""
        from vicinal.cluster.vm.libvirt.lifecycle import whose

        found = whose(hypervisor_at(self.vm.uri), self.vm.domain)
        return found == (self.vm.owner, self.vm.name)


def _port(far: FarVm) -> str:
    return f"UDP port {far.own}:{far.port}"


def _silent(_: str) -> None:
    """Print nothing."""


def prepare(say: Callable[[str], None] = _silent) -> tuple[GuestImage, Choice]:
    """Return the image that VMs boot, and the accelerator that executes them.

    All clusters share both. `say` gets messages if the image must be built or accelerators tried.
    """
    image = build_image(say)
    return image, choose_accelerator(find_qemu(), image, say)


def _guests(vms: tuple[Vm, ...], host_part: HostPart | None) -> tuple[Identity, ...]:
    """Return the identities of all VMs of the cluster.

    With bridges, by which VMs may move, the list is the same on all hosts.
    """
    own = [vm.identity for vm in vms]
    found = [*own, *_others(host_part)]
    if host_part is not None and host_part.bridge is not None:
        names = {each.name for each in own}
        found = sorted(
            [*own, *(each for each in found if each.name not in names)],
            key=lambda each: each.number,
        )
    return tuple(found)


def _others(host_part: HostPart | None) -> tuple[Identity, ...]:
    """Return the identities of the VMs on other hosts, which have the same keys."""
    if host_part is None:
        return ()
    return tuple(
        Identity(number, vm.name, guest_address(number), _cards(host_part, number))
        for number, vm in enumerate(host_part.vms)
        if vm.host != host_part.host
    )


def _cards(host_part: HostPart, number: int) -> tuple[Card, ...]:
    """Return the cards of a VM that may move to this host; empty without a bridge."""
    return () if host_part.bridge is None else cards(number, (), host_part.bridge, None)


def _keep(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copyfile(source, target)
