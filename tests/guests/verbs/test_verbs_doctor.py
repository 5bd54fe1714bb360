"""What `vicinal doctor` finds in a guest, as its unprivileged user: a region, and an SR-IOV card.

The guest has no Python, so the test copies one into its memory.
"""

import json
from typing import Any

import pytest
from guest_python import lend_python, run_python
from guest_support import BOUND

from vicinal.cluster.nodes.vm.pair import GuestPair

Findings = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found(hosts: GuestPair, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    guest = hosts.guests[0]
    lend_python(guest, tmp_path_factory.mktemp("lent") / "lent.tar")
    done = run_python(guest, "doctor_inside.py", timeout=BOUND)
    assert done.returncode == 0, done.stderr
    findings: Findings = {}
    for line in map(json.loads, done.stdout.splitlines()):
        print(line["check"], line["status"], line["text"])
        findings.setdefault(line["check"], []).append(line)
    return findings


def test_the_region_is_found_and_its_memory_measured(hosts: GuestPair, found: Findings) -> None:
    (device,) = found["ivshmem"]
    assert device["status"] == "pass", device
    assert device["facts"]["region"]
    assert device["facts"]["members"] == hosts.inspect().header.members
    assert not device["facts"]["doorbell"]
    assert 0 < device["facts"]["times_slower"] < 20
    assert device["facts"]["attribute"] is None  # only root may see it


def test_the_card_and_its_vf_are_found(found: Findings) -> None:
    card = found["sriov"][0]
    assert (card["facts"]["driver"], card["facts"]["limit"], card["facts"]["created"]) == (
        "igb",
        7,
        1,
    )
    (vf,) = card["facts"]["vfs"]
    assert (vf["driver"], vf["use"]) == ("igbvf", "host")
    assert any("the link is up" in finding["text"] for finding in found["sriov"])


def test_a_vf_that_no_iommu_guards_fails(found: Findings) -> None:
    assert found["iommu"][0]["status"] == "fail"
    assert "intel-iommu" in found["iommu"][0]["remedy"]
    assert any("are in no IOMMU group" in finding["text"] for finding in found["sriov"])


def test_rdma_on_the_vf_is_active(found: Findings) -> None:
    (port,) = found["infiniband"]
    assert port["status"] == "pass"
    assert (port["facts"]["device"], port["facts"]["link_layer"]) == ("rxe0", "Ethernet")


def test_what_a_guest_has_not_is_skipped(found: Findings) -> None:
    for check in ("qemu", "libvirt"):
        assert [finding["status"] for finding in found[check]] == ["skip"]
