"""The kernel module netdevsim for a guest: an interface whose driver only stores its settings.

No Debian kernel contains it. So it is built here from the source and the headers of that kernel,
which Debian provides as packages.
"""

import re
import shutil
import subprocess
from pathlib import Path

from vicinal.cluster.vm.image.packages import PackageStore

SECONDS = 300.0


def build_netdevsim(packages: PackageStore, modules: Path, work: Path) -> None:
    """Build it for the kernel of lib/modules/VERSION, and add it there; `work` is a new path.

    `packages` must still use the release from which the kernel came.
    """
    shutil.rmtree(work, ignore_errors=True)
    release = modules.name  # such as 6.12.95+deb12-amd64
    build = release.removesuffix("-amd64")
    series = re.match(r"\d+\.\d+", release)
    assert series is not None, release
    source = f"linux-source-{series[0]}"
    headers = [f"linux-headers-{release}", f"linux-headers-{build}-common", f"linux-kbuild-{build}"]
    packages.unpack_alone([*headers, source], work)
    driver = f"{source}/drivers/net/netdevsim"
    _run("tar", "-C", work, "-xf", work / f"usr/src/{source}.tar.xz", driver)
    tree = work / f"usr/src/linux-headers-{release}"
    makefile = tree / "Makefile"
    # Its makefile includes another by a path of an installed system.
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{work}/usr/src/"))
    # Without types for BPF, which need a further program.
    settings = ("CONFIG_NETDEVSIM=m", "CONFIG_DEBUG_INFO_BTF_MODULES=")
    _run("make", "-s", "-C", tree, f"M={work / driver}", *settings, "modules")
    module = work / driver / "netdevsim.ko"
    _run("strip", "--strip-debug", module)
    target = modules / "updates"
    target.mkdir()
    shutil.copy(module, target)
    shutil.rmtree(work)


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
