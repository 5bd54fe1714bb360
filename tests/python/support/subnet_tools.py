"""The programs of a simulated InfiniBand subnet, fetched once and unpacked under build/.

`python tests/python/support/subnet_tools.py` fetches them: scripts/setup does that, so that tests
need no network. They are not installed, since Debian's opensm starts as a service.
"""

import os
import shutil

from command_support import CHECKOUT

from vicinal.cluster.image_packages import HOST_RECORD, PackageStore
from vicinal.directories import locked

TOOLS = {"ibsim": "ibsim-utils", "opensm": "opensm", "ibnetdiscover": "infiniband-diags"}
"""Programs and their packages, which are not installed: see scripts/debian-packages.txt."""
UNPACKED = CHECKOUT / "build/subnet"


def search_path() -> str:
    own = [str(UNPACKED / "usr/sbin"), str(UNPACKED / "usr/bin")]
    return os.pathsep.join([*own, os.environ["PATH"], "/usr/sbin"])


def fetch() -> None:
    """Fetch and unpack the programs that are missing; VicinalError says why that failed."""
    with locked(UNPACKED.parent):
        missing = [TOOLS[each] for each in TOOLS if not shutil.which(each, path=search_path())]
        if not missing:
            return
        store, fresh = UNPACKED.with_suffix(".packages"), UNPACKED.with_suffix(".part")
        for old in (store, fresh, UNPACKED):
            shutil.rmtree(old, ignore_errors=True)
        PackageStore(store, beside=HOST_RECORD).unpack(missing, fresh)
        shutil.rmtree(store)
        fresh.rename(UNPACKED)


if __name__ == "__main__":
    fetch()
