"""What `vicinal doctor` finds in a guest, as its ordinary user: a region, and an SR-IOV card.

The guest has no Python; it is lent one for this, in its memory.
"""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vicinal
from vicinal.cluster.guest import Guest
from vicinal.cluster.guest_pair import GuestPair
from vicinal.cluster.image import guests_directory
from vicinal.cluster.image_kind import GuestNetwork
from vicinal.cluster.image_packages import PackageStore
from vicinal.directories import locked
from vicinal.region import DEFAULT_MEMBERS

HERE = Path(__file__).parent
PACKAGES = ("libpython3-stdlib", "python3-minimal", "python3-numpy", "python3-psutil")
PARTS = ("usr/bin/python3*", "usr/lib/python3*", "usr/lib/*-linux-gnu", "lib/*-linux-gnu")
LENT = "/tmp/lent"
BOUND = 240.0  # seconds; a hang guard

Findings = dict[str, list[dict[str, Any]]]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def pair() -> Iterator[GuestPair]:
    with GuestPair(network=GuestNetwork.VERBS, say=print) as running:
        yield running


@pytest.fixture(scope="module")
def found(pair: GuestPair, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    guest = pair.guests[0]
    lend_python(guest, tmp_path_factory.mktemp("lent") / "lent.tar")
    libraries = [f"{LENT}/{place}" for place in ("usr/lib", "lib")]
    script = (
        f"cd {LENT} && for d in {' '.join(libraries)}; do for e in $d/*-linux-gnu "
        "$d/*-linux-gnu/blas $d/*-linux-gnu/lapack; do L=$L:$e; done; done; "
        f"LD_LIBRARY_PATH=$L PYTHONHOME={LENT}/usr PYTHONDONTWRITEBYTECODE=1 "
        f"PYTHONPATH={LENT}:{LENT}/usr/lib/python3/dist-packages "
        "$(ls usr/bin/python3.*[0-9]) doctor_inside.py"
    )
    done = guest.run(["sh", "-c", script], timeout=BOUND)
    assert done.returncode == 0, done.stderr
    findings: Findings = {}
    for line in map(json.loads, done.stdout.splitlines()):
        print(line["check"], line["status"], line["text"])
        findings.setdefault(line["check"], []).append(line)
    return findings


def lend_python(guest: Guest, archive: Path) -> None:
    """Put Python, numpy and Vicinal into a guest, with what its own user may do there."""
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
        timeout=BOUND,
    )
    assert unpacked.returncode == 0, unpacked.stderr


def test_the_region_is_found_and_its_memory_measured(found: Findings) -> None:
    (device,) = found["ivshmem"]
    assert device["status"] == "pass", device
    assert device["facts"]["region"]
    assert device["facts"]["members"] == DEFAULT_MEMBERS
    assert not device["facts"]["doorbell"]
    assert 0 < device["facts"]["times_slower"] < 20
    assert device["facts"]["attribute"] is None  # root alone may see it


def test_the_card_and_its_function_are_found(found: Findings) -> None:
    card = found["sriov"][0]
    assert (card["facts"]["driver"], card["facts"]["limit"], card["facts"]["created"]) == (
        "igb",
        7,
        1,
    )
    (function,) = card["facts"]["functions"]
    assert (function["driver"], function["use"]) == ("igbvf", "host")
    assert any("the link is up" in finding["text"] for finding in found["sriov"])


def test_a_function_that_no_iommu_guards_fails(found: Findings) -> None:
    assert found["iommu"][0]["status"] == "fail"
    assert "intel-iommu" in found["iommu"][0]["remedy"]
    assert any("are in no IOMMU group" in finding["text"] for finding in found["sriov"])


def test_rdma_on_the_function_is_active(found: Findings) -> None:
    (port,) = found["infiniband"]
    assert port["status"] == "pass"
    assert (port["facts"]["device"], port["facts"]["link_layer"]) == ("rxe0", "Ethernet")


def test_what_a_guest_has_not_is_skipped(found: Findings) -> None:
    for check in ("qemu", "libvirt"):
        assert [finding["status"] for finding in found[check]] == ["skip"]
