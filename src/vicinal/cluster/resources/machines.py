"""Nodes that are virtual machines, and what they have in common."""

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
from vicinal.cluster.file.hosts import Share
from vicinal.cluster.file.model import ImageAdditions
from vicinal.cluster.nodes.vm.hypervisor import (
    check_usable,
    end_orphan,
    has_machines,
    hypervisor_at,
    user_of_machines,
)
from vicinal.cluster.nodes.vm.image_additions import build_additions, join
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.links import check_link
from vicinal.cluster.nodes.vm.machine import Machine, write_commands
from vicinal.cluster.nodes.vm.network import FarMachine, cards
from vicinal.cluster.nodes.vm.way_in import end_way_in
from vicinal.cluster.plan.resource import Condition, Held, Json, Observation, Standing, Undemanding
from vicinal.cluster.resources.functions import FunctionResource
from vicinal.cluster.resources.keys import KeysResource
from vicinal.cluster.resources.libvirt import LibvirtResource
from vicinal.cluster.resources.whole_device import check_whole_device, held_device
from vicinal.cluster.vm.devices import HostFunction
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
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_address, check_device

IS_SAVED = "it is saved"
"""What is seen of a machine that was: it is stopped, and goes on where it was."""

_BUTTON_SECONDS = 30.0
"""For a guest to go by itself when it is stopped."""


@dataclass(frozen=True, kw_only=True)
class MachinesResource(Standing):
    """What belongs to all machines of a cluster: what they boot, their names and their keys.

    So a machine more or less makes all of them anew: the others have to know it.
    """

    KIND: ClassVar[str] = "machines"

    directory: Path
    uri: str
    """The libvirt that has them."""
    guests: tuple[Identity, ...]
    image: str
    additions: Mapping[str, ImageAdditions] = field(default_factory=dict)
    """What is added to it for some of them, by its key."""
    keys: Path | None = None

    @classmethod
    def of(
        cls, machines: tuple[Machine, ...], share: Share | None = None, keys: Path | None = None
    ) -> Self:
        """What these machines are to have in common; they are all of their cluster on this host.

        Those of other hosts are in `share`, and have the keys in `keys`, too.
        """
        first = machines[0]
        return cls(
            directory=first.files.directory,
            uri=first.uri,
            guests=_guests(machines, share),
            image=image_identity(),
            additions={each.additions_key: each.additions for each in machines if each.additions},
            keys=keys,
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """Vicinal's own libvirt, and the keys that the machines share with those of other hosts."""
        libvirt = (LibvirtResource.KEY,) if is_own(self.uri) else ()
        keys = () if self.keys is None else (f"{KeysResource.KIND}/main",)
        return (*libvirt, *keys)

    def prepare(self, say: Callable[[str], None]) -> None:
        """Make what it is made of and is kept for all clusters, where that is not there."""
        _, choice = prepare(say)
        if not is_own(self.uri):  # which another resource starts, and takes away
            hypervisor_at(self.uri).check(choice.accelerator)
        for additions in self.additions.values():
            build_additions(additions, say)

    def at_this_host(self, machine: Machine, bridge: str) -> Machine:
        """A machine of another host's, as it is to be here."""
        return replace(machine, uri=self.uri, directory=str(self._files.directory), bridge=bridge)

    @property
    def _files(self) -> Files:
        return Files(self.directory)

    def made(self) -> Made:
        """What was found out when it was made. Raises VicinalError where it is not there."""
        return Made.read(self._files)

    def observe(self) -> Observation:
        """Its directory is there, and whole."""
        if not self._files.directory.is_dir():
            return Observation(Condition.ABSENT)
        try:
            self.made()
        except VicinalError as error:
            return Observation(Condition.BROKEN, error.message)
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Whether there is a QEMU, a libvirt that can have machines, and what makes their keys."""
        del released  # it takes nothing that others have
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
        """Make it; the image is made too, if there is none for what is on this host now."""
        files = self._files
        files.check_lengths(len(self.guests))
        image, choice = prepare()
        hypervisor_at(self.uri).check(choice.accelerator)
        files.directory.mkdir(mode=0o700, parents=True)
        # Of their own: the next image that is made takes the place of this one.
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
class MachineResource(Undemanding):
    """One machine."""

    KIND: ClassVar[str] = "machine"

    machine: Machine

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        return cls(decode(Machine, settings))

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.machine.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """What it boots, and what it is connected to."""
        region = () if self.machine.region is None else ("region/main",)
        ours = self.machine.bridge is not None and self.machine.bridge_is_ours
        bridge = ("bridge/main",) if ours else ()
        name = f"{FunctionResource.KIND}/{self.machine.name}"
        function = () if self.machine.function is None else (name,)
        doorbell = () if self.machine.doorbell is None else ("doorbell/main",)
        return (*region, *bridge, *function, "machines/main", *doorbell)

    @property
    def settings(self) -> Mapping[str, Json]:
        return encode(self.machine)

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        """It runs, or is stopped, or its name is somebody else's."""
        # Loaded here, as below: whoever has no virtual machines needs no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        if not has_machines(self.machine.uri):
            return Observation(Condition.ABSENT)
        hypervisor = hypervisor_at(self.machine.uri)
        state = observe(hypervisor, self.machine.domain)
        if state is DomainState.ABSENT:
            return Observation(Condition.ABSENT)
        if not self._is_ours():
            return Observation(
                Condition.BROKEN, f"the domain {self.machine.domain} is somebody else's"
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
        """Its memory if it runs, and what only one machine can be at."""
        machine = self.machine
        if self.observe().condition is not Condition.READY:
            return Held()
        ports = {_port(each) for each in machine.far}
        memory = 0 if machine.hugepages else machine.memory_mib << 20
        own = Held(frozenset({*self._taps, *ports}), memory_bytes=memory)
        return own + held_device(machine.device)

    def check(self, released: Held) -> None:
        """Whether what it is linked to is there, and what only it can have is free."""
        faults = Faults()
        with faults.catch():
            free = released.things.isdisjoint(self._taps)
            check_link(self.machine.uri, self.machine.link, starts=free)
        with faults.catch():
            check_whole_device(Functions(), self.machine.device, released)
        for each in self.machine.far:
            if _port(each) not in released.things:
                with faults.catch():
                    each.check()
        faults.check()

    @property
    def _taps(self) -> set[str]:
        link = self.machine.link
        return set() if link is None or link.tap is None else {f"tap {link.tap}"}

    def create(self) -> None:
        """Define it, and let it boot while others are made: resources/guests.py waits."""
        from vicinal.cluster.vm.libvirt.lifecycle import define, start

        self._check_link()
        write_commands(self.machine, first=True)
        hypervisor = hypervisor_at(self.machine.uri)
        spec = self.machine.spec(self.devices())
        define(hypervisor, replace(spec, user=user_of_machines(hypervisor)))
        start(hypervisor, self.machine.domain)

    def devices(self) -> tuple[HostFunction, ...]:
        """What it has of the host's; libvirt takes that from its driver, and gives it back."""
        functions, found = Functions(), []
        if self.machine.device is not None:
            check_device(functions, self.machine.device)
            found.append(self.machine.device)
        if self.machine.function is not None:
            found.append(assigned_address(functions, self.machine.function))
        return tuple(map(HostFunction, found))

    def start(self) -> None:
        """Let it run again: from the beginning, or from where it was if it stood still.

        One that was saved comes back as it was, and stands still until all others have come back
        too: resources/guests.py lets them go on.
        """
        from vicinal.cluster.vm.libvirt.lifecycle import (
            DomainState,
            observe,
            restore,
            resume,
            start,
        )

        hypervisor, saved = hypervisor_at(self.machine.uri), self.machine.saved
        match observe(hypervisor, self.machine.domain):
            case DomainState.SAVED:
                self._check_link()
                restore(hypervisor, self.machine.domain, paused=True)
            case DomainState.PAUSED:
                if not saved.exists():
                    resume(hypervisor, self.machine.domain)
            case _:
                self._check_link()
                saved.unlink(missing_ok=True)
                start(hypervisor, self.machine.domain)

    def stop(self) -> None:
        """Press its power button, and end it where that does not help."""
        from vicinal.cluster.vm.libvirt.lifecycle import stop

        end_way_in(self.machine)
        stop(hypervisor_at(self.machine.uri), self.machine.domain, patience=_BUTTON_SECONDS)

    def remove(self) -> None:
        """End it and have libvirt forget it, if it is ours."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe, remove

        end_way_in(self.machine)
        if has_machines(self.machine.uri):
            hypervisor = hypervisor_at(self.machine.uri)
            if self._is_ours():
                remove(hypervisor, self.machine.domain)
            if observe(hypervisor, self.machine.domain) is not DomainState.ABSENT:
                return  # it is somebody else's
        end_orphan(self.machine)

    def forget(self) -> str:
        """Give it up where its libvirt is lost; says what may be left of it. Raises VicinalError.

        What runs of it is ended all the same.
        """
        end_way_in(self.machine)
        end_orphan(self.machine)
        device = self.machine.device
        held = "" if device is None else f", and the device {device}, if vfio-pci has it"
        return f"the domain {self.machine.domain}, which {self.machine.uri} may still know{held}"

    def _check_link(self) -> None:
        check_link(self.machine.uri, self.machine.link, starts=True)

    def _is_ours(self) -> bool:
        """Whether the domain of that name is this machine, and not somebody else's."""
        from vicinal.cluster.vm.libvirt.lifecycle import whose

        found = whose(hypervisor_at(self.machine.uri), self.machine.domain)
        return found == (self.machine.owner, self.machine.name)


def _port(far: FarMachine) -> str:
    return f"UDP port {far.own}:{far.port}"


def _silent(_: str) -> None:
    """Say nothing."""


def prepare(say: Callable[[str], None] = _silent) -> tuple[GuestImage, Choice]:
    """The image that machines boot, and what executes it; both are kept for all clusters.

    `say` is told what is being done where they must be made and tried first.
    """
    image = build_image(say)
    return image, choose_accelerator(find_qemu(), image, say)


def _guests(machines: tuple[Machine, ...], share: Share | None) -> tuple[Identity, ...]:
    """All machines of the cluster; at bridges, where they may be moved, alike on all hosts."""
    own = [machine.identity for machine in machines]
    found = [*own, *_others(share)]
    if share is not None and share.bridge is not None:
        names = {each.name for each in own}
        found = sorted(
            [*own, *(each for each in found if each.name not in names)],
            key=lambda each: each.number,
        )
    return tuple(found)


def _others(share: Share | None) -> tuple[Identity, ...]:
    """The machines of other hosts, by name and address: these have the same keys."""
    if share is None:
        return ()
    return tuple(
        Identity(number, machine.name, guest_address(number), _cards(share, number))
        for number, machine in enumerate(share.machines)
        if machine.host != share.host
    )


def _cards(share: Share, number: int) -> tuple[Card, ...]:
    """What a machine that may be moved here would have."""
    return () if share.bridge is None else cards(number, (), share.bridge, None)


def _keep(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copyfile(source, target)
