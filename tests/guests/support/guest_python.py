"""Python, numpy and Vicinal for a guest without them, in its memory."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

import vicinal
from vicinal.base.files import locked
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.packages import PackageStore
from vicinal.cluster.vm.qemu.guest import Guest

HERE = Path(__file__).parent
PACKAGES = ("libpython3-stdlib", "python3-minimal", "python3-numpy", "python3-psutil")
PARTS = ("usr/bin/python3*", "usr/lib/python3*", "usr/lib/*-linux-gnu", "lib/*-linux-gnu")
LENT = "/tmp/lent"
UNPACK_SECONDS = 240.0  # prevents hanging


def lend_python(guest: Guest, archive: Path) -> None:
    """Copy Python, numpy and Vicinal into a guest, with the means of its user."""
    directory = guests_directory() / "doctor"
    target = directory / f"debian-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:16]}"
    with locked(directory):
        if not target.is_dir():
            store, fresh = directory / "packages", directory / "part"
            for old in (store, fresh, *directory.glob("debian-*")):
                shutil.rmtree(old, ignore_errors=True)
            PackageStore(store).unpack(PACKAGES, fresh)
            shutil.rmtree(store)
            fresh.rename(target)
    package = Path(vicinal.__file__).parent
    with tarfile.open(archive, "w") as tar:
        for path in (path for part in PARTS for path in sorted(target.glob(part))):
            tar.add(path, str(path.relative_to(target)))
        for source in sorted(package.rglob("*.py")):
            tar.add(source, f"vicinal/{source.relative_to(package)}")
        tar.add(HERE / "doctor_inside.py", "doctor_inside.py")
    guest.copy_in(archive, f"{LENT}.tar")
    unpacked = guest.run(
        ["sh", "-c", f"mkdir {LENT} && tar -x -f {LENT}.tar -C {LENT} && rm {LENT}.tar"],
        timeout=UNPACK_SECONDS,
    )
    assert unpacked.returncode == 0, unpacked.stderr


def run_python(guest: Guest, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run the copied Python in the guest, as the guest's user."""
    libraries = [f"{LENT}/{folder}" for folder in ("usr/lib", "lib")]
    script = (
        f"cd {LENT} && for d in {' '.join(libraries)}; do for e in $d/*-linux-gnu "
        "$d/*-linux-gnu/blas $d/*-linux-gnu/lapack; do L=$L:$e; done; done; "
        f"LD_LIBRARY_PATH=$L PYTHONHOME={LENT}/usr PYTHONDONTWRITEBYTECODE=1 "
        f"PYTHONPATH={LENT}:{LENT}/usr/lib/python3/dist-packages "
        'exec $(ls usr/bin/python3.*[0-9]) "$@"'
    )
    return guest.run(["sh", "-c", script, "python", *arguments], timeout=timeout)
