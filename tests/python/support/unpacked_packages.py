"""Debian packages that tests use and that should not be installed, unpacked under build/.

Debian starts opensm, Prometheus and TuneD as services, which would manage or watch the host.
scripts/setup runs this file, which fetches all of them and the packages of the guests' image, so
that tests need no network.
"""

import shutil
from pathlib import Path

from command_support import CHECKOUT

from vicinal.base.files import locked
from vicinal.cluster.vm.image.building import fetch_packages
from vicinal.cluster.vm.image.packages import HOST_RECORD, PackageStore

PACKAGES = {
    "prometheus": ("prometheus",),
    "subnet": ("ibsim-utils", "opensm", "infiniband-diags"),
    "tuned": ("tuned",),
}
"""The packages that each folder of build/ contains."""


def unpacked(name: str) -> Path:
    """The folder build/NAME, fetched if it is missing. Raises VicinalError if that fails."""
    target = CHECKOUT / "build" / name
    with locked(target.parent):
        if not target.is_dir():
            store, fresh = target.with_suffix(".packages"), target.with_suffix(".part")
            for old in (store, fresh):
                shutil.rmtree(old, ignore_errors=True)
            PackageStore(store, installed=HOST_RECORD).unpack([*PACKAGES[name]], fresh)
            shutil.rmtree(store)
            fresh.rename(target)
    return target


if __name__ == "__main__":
    for each in PACKAGES:
        unpacked(each)
    fetch_packages()
