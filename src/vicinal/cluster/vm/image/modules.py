"""The kernel modules that a guest needs, in an order in which they can be loaded.

A kernel package has no index of dependencies, because depmod creates it at installation, and the
package is never installed. But each module names its dependencies.
"""

import lzma
import re
from collections.abc import Iterable
from pathlib import Path

from vicinal.base.errors import VicinalError

_VF_MODULES = {
    "iavf": "iavf",
    "igbvf": "igbvf",
    "ixgbevf": "ixgbevf",
    "mlx4_core": "mlx4_en",
    "mlx5_core": "mlx5_core",
}
"""Drivers of virtual functions, with the module that gives such a VF a network interface."""

_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


def vf_modules(modules: Path) -> dict[str, str]:
    """Modules for SR-IOV VFs that exist, by driver name.

    Kernels for virtual machines lack some of them.
    """
    there = {_canonical(file.name) for file in modules.rglob("*.ko*")}
    return {driver: name for driver, name in _VF_MODULES.items() if name in there}


def load_order(modules: Path, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """Name and contents of the wanted modules and their dependencies, dependencies first.

    `modules` is lib/modules/VERSION of an unpacked kernel package. Modules that are built
    into the kernel are omitted. Raises VicinalError if the kernel lacks a module.
    """
    files = {_canonical(file.name): file for file in modules.rglob("*.ko*")}
    builtin = {
        _canonical(Path(line).name) for line in (modules / "modules.builtin").read_text().split()
    }
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name in builtin:
            return
        if name not in files:
            raise VicinalError(
                f"the kernel {modules.name} has no module {name}",
                "let apt offer a newer Debian kernel with this module",
            )
        content = _read(files[name])
        for dependency in _dependencies(content):
            add(dependency)
        ordered[name] = content

    for name in wanted:
        add(_canonical(name))
    return list(ordered.items())


def _canonical(name: str) -> str:
    return name.partition(".")[0].replace("-", "_")


def _read(file: Path) -> bytes:
    content = file.read_bytes()
    return lzma.decompress(content) if file.suffix == ".xz" else content


def _dependencies(content: bytes) -> list[str]:
    match = _DEPENDS.search(content)
    names = match.group(1).decode() if match else ""
    return [_canonical(name) for name in names.split(",") if name]
