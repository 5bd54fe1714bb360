"""The fake libvirt (fake_libvirt.py) with its domains in files, for short-lived processes."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_libvirt import FakeDomain, FakeLibvirt
from opennebula_fake_process import STILL

from vicinal.cluster.vm.libvirt.connection import Hypervisor

_STILL_SECONDS = 0.1
"""The time that fake ranks in another process may take to notice a suspended VM."""


def domain_file(host: Path, name: str) -> Path:
    """The file of a domain that runs on a host; a checkpoint has the same form."""
    return host / f"{name}.domain"


class _Domain(FakeDomain):
    def store(self) -> None:
        host = self._host
        assert isinstance(host, _Libvirt)
        live = self.XMLDesc()
        # libvirt adds the namespace to a domain's metadata.
        said = (
            text.replace(">", f' xmlns="{space}">', 1)
            for space, text in self._said.items()
            if text.endswith("</away>")
        )
        saved = live.replace("<devices", f"<metadata>{''.join(said)}</metadata><devices", 1)
        values = {"live": live, "said": self._said, "saved": saved}
        domain_file(host.directory, self.name()).write_text(json.dumps(values))

    def setMetadata(self, *values: Any) -> None:  # noqa: N802
        super().setMetadata(*values)
        self.store()

    def detachDeviceAlias(self, alias: str, flags: int) -> None:  # noqa: N802
        super().detachDeviceAlias(alias, flags)
        self.store()

    def attachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802
        super().attachDeviceFlags(xml, flags)
        self.store()

    def suspend(self) -> None:
        super().suspend()
        assert isinstance(self._host, _Libvirt)
        (self._host.directory / STILL).touch()
        time.sleep(_STILL_SECONDS)

    def resume(self) -> None:
        super().resume()
        assert isinstance(self._host, _Libvirt)
        (self._host.directory / STILL).unlink(missing_ok=True)


class _Libvirt(FakeLibvirt):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory.name, lambda _: None)
        self.directory = directory

    def lookupByName(self, name: str) -> FakeDomain:  # noqa: N802
        try:
            values = json.loads(domain_file(self.directory, name).read_text())
        except FileNotFoundError:
            self.domains.pop(name, None)
            return super().lookupByName(name)  # raises libvirt's error for a missing domain
        if name not in self.domains:
            self.domains[name] = domain = _Domain(self, name, values["live"], values["live"])
            domain._said = values["said"]
        return self.domains[name]


@contextmanager
def connected(directory: Path, uri: str) -> Iterator[Hypervisor]:
    """Replaces connect()."""
    yield Hypervisor(uri, _Libvirt(directory))  # type: ignore[arg-type]


def start_domain(directory: Path, name: str, xml: str) -> None:
    """Make a domain run on a host."""
    _Domain(_Libvirt(directory), name, xml, xml).store()
