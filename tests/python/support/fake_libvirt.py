"""A fake libvirt: its domains give devices up, get other devices, and move to another fake.

It stands for hosts with SR-IOV cards, which are not available here. libvirt's own test driver has
no devices to give away, and moves nothing. The test that makes the fake is told each request before
it is done.
"""

import os
import signal
from collections.abc import Callable
from threading import Event, Timer
from typing import Any
from xml.etree import ElementTree

import libvirt

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import pci_function_address

LATE_SECONDS = 0.5


def described(device: ElementTree.Element) -> str:
    """A device in words: the address of a VF, or the name of a region."""
    name = device.get("name")
    return pci_function_address(device) if name is None else name


def _error(code: int, text: str = "nothing") -> libvirt.libvirtError:
    error = libvirt.libvirtError(text)
    error.err = (code, 0, text, 0, "", None, None, 0, 0)
    return error


class FakeLibvirt:
    """The libvirt of one host. `before` is called before each action, and may raise."""

    def __init__(self, host: str, before: Callable[[str], None]) -> None:
        self.host = host
        self.domains: dict[str, FakeDomain] = {}
        self.listeners: dict[int, Callable[[str], None]] = {}
        self._before = before

    def act(self, what: str) -> None:
        """Report an action, which fails if the test raises."""
        self._before(f"{self.host}: {what}")

    def run(self, name: str, xml: str) -> None:
        """Add a running domain with this definition."""
        self.domains[name] = FakeDomain(self, name, xml, xml)

    def lookupByName(self, name: str) -> "FakeDomain":  # noqa: N802 (libvirt's)
        if name not in self.domains:
            raise _error(libvirt.VIR_ERR_NO_DOMAIN)
        return self.domains[name]

    def domainEventRegisterAny(  # noqa: N802
        self, domain: "FakeDomain", event: int, call: Callable[..., None], removed: bool
    ) -> int:
        self.listeners[event] = lambda alias: call(None, domain, alias, removed)
        return event

    def domainEventDeregisterAny(self, number: int) -> None:  # noqa: N802
        self.listeners.pop(number, None)


class FakeDomain:
    """A running domain."""

    def __init__(self, host: FakeLibvirt, name: str, live: str, kept: str) -> None:
        self._host = host
        self._name = name
        self._live = ElementTree.fromstring(live)
        self.kept = kept
        self._said: dict[str, str] = {}
        self._aborted = Event()
        self._still = False
        for number, device in enumerate(self._devices()):
            if device.find("alias") is None:
                ElementTree.SubElement(device, "alias", name=f"device{number}")

    @property
    def vfs(self) -> list[str]:
        """The host's VFs that the running domain has."""
        return [pci_function_address(each) for each in self._live.iterfind("devices/hostdev")]

    @property
    def guest_addresses(self) -> list[str]:
        """The guest's addresses of the VFs."""
        found = (each.find("address") for each in self._live.iterfind("devices/hostdev"))
        return ["" if each is None else str(each.attrib) for each in found]

    @property
    def regions(self) -> list[str]:
        """The regions that the running domain has."""
        return [str(each.get("name")) for each in self._live.iterfind("devices/shmem")]

    def _devices(self) -> list[ElementTree.Element]:
        return self._live.findall("devices/hostdev") + self._live.findall("devices/shmem")

    def name(self) -> str:
        return self._name

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_PAUSED if self._still else libvirt.VIR_DOMAIN_RUNNING, 0]

    def suspend(self) -> None:
        self._host.act("it stands still")
        self._still = True

    def resume(self) -> None:
        self._host.act("it goes on")
        self._still = False

    def hasManagedSaveImage(self) -> bool:  # noqa: N802
        return False

    def XMLDesc(self, flags: int = 0) -> str:  # noqa: N802
        if flags & libvirt.VIR_DOMAIN_XML_INACTIVE:
            return self.kept
        return ElementTree.tostring(self._live, encoding="unicode")

    def metadata(self, _: int, space: str, __: int) -> str:
        if space not in self._said:
            raise _error(libvirt.VIR_ERR_NO_DOMAIN_METADATA)
        return self._said[space]

    def setMetadata(  # noqa: N802
        self, _: int, text: str | None, _key: str | None, space: str, __: int
    ) -> None:
        self._said.pop(space, None)
        if text is not None:
            self._said[space] = text

    def detachDeviceAlias(self, alias: str, _: int) -> None:  # noqa: N802
        devices = self._live.find("devices")
        assert devices is not None
        for device in self._devices():
            known = device.find("alias")
            if known is None or known.get("name") != alias:
                continue
            try:
                self._host.act(f"its guest gives up {described(device)}")
            except VicinalError:
                self._host.listeners[libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED](alias)
            except BaseException:
                # The caller is gone. The guest does not know that, and still removes the device.
                Timer(LATE_SECONDS, devices.remove, (device,)).start()
                raise
            else:
                devices.remove(device)
                self._host.listeners[libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED](alias)

    def attachDeviceFlags(self, xml: str, _: int) -> None:  # noqa: N802
        devices = self._live.find("devices")
        assert devices is not None
        device = ElementTree.fromstring(xml)
        self._host.act(f"its guest gets {described(device)}")
        if device.find("alias") is None:
            ElementTree.SubElement(device, "alias", name=f"given-{described(device)}")
        devices.append(device)

    def copy_to(self, host: FakeLibvirt) -> None:
        """Move the domain to another host by means other than libvirt."""
        assert not self._devices()  # QEMU refuses it with such devices
        del self._host.domains[self._name]
        copy = FakeDomain(host, self._name, self.XMLDesc(), self.kept)
        copy._said = self._said
        host.domains[self._name] = copy

    def migrate3(self, to: FakeLibvirt, parameters: dict[str, Any], _: int) -> None:
        assert not self.vfs  # QEMU refuses to move VFs
        try:
            self._host.act(f"it moves to {to.host}")
        except VicinalError as error:
            raise _error(libvirt.VIR_ERR_OPERATION_FAILED) from error
        except BaseException as error:
            # This runs in a thread. The caller is interrupted as by Ctrl-C, and ends the move.
            os.kill(os.getpid(), signal.SIGINT)
            self._aborted.wait(LATE_SECONDS * 20)
            raise _error(libvirt.VIR_ERR_OPERATION_ABORTED) from error
        xml = parameters[libvirt.VIR_MIGRATE_PARAM_DEST_XML]
        kept = parameters[libvirt.VIR_MIGRATE_PARAM_PERSIST_XML]
        to.domains[self._name] = FakeDomain(to, self._name, xml, kept)
        del self._host.domains[self._name]

    def jobStats(self, _: int) -> dict[str, int]:  # noqa: N802
        return {}

    def abortJob(self) -> None:  # noqa: N802
        self._aborted.set()
        self._host.act("its move is ended")
