"""What a cluster file adds to the image of its VMs; tests/guests makes and boots the image."""

import json
from pathlib import Path

import pytest
from cluster_file_support import host, read

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import ImageAdditions
from vicinal.cluster.nodes.vm.from_file import vms_of
from vicinal.cluster.nodes.vm.image_additions import additions_key
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.vm.image import building as image
from vicinal.cluster.vm.image.kind import GuestNetwork, kind_of

NODES = """\
nodes:
  - {name: a, backend: vm}
  - name: b
    backend: vm
    image: {packages: [tree]}
  - {name: c}
image:
  packages: [strace, strace]
  files:
    tools: /opt/tools
    /etc/hosts: /etc/hosts.of-the-host
"""


def test_a_group_s_own_is_instead_of_that_for_all(tmp_path: Path) -> None:
    a, b, c = read(tmp_path, f"name: x\n{NODES}").nodes
    files = ((str(tmp_path / "tools"), "/opt/tools"), ("/etc/hosts", "/etc/hosts.of-the-host"))
    assert a.additions == ImageAdditions(("strace",), files)
    assert b.additions == ImageAdditions(("tree",))
    assert not c.additions


def test_vms_know_theirs_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    cluster = read(tmp_path, f"name: x\n{NODES}")
    cpus, numa = host(2, 4, 2)
    placed = {node.name: () for node in cluster.nodes}
    a, b = vms_of(cluster, placed, None, cpus, numa)
    assert a.additions_key
    assert b.additions_key
    assert a.additions_key != b.additions_key
    assert decode(Vm, json.loads(json.dumps(encode(a)))) == a
    (tmp_path / "tools/file").touch()
    assert additions_key(a.additions) != a.additions_key
    assert additions_key(ImageAdditions()) == ""
    (tmp_path / "tools/file").unlink()
    (tmp_path / "tools").rmdir()
    with pytest.raises(
        VicinalError, match=r"image.files names '.*tools', which cannot be read \(no s"
    ):
        vms_of(cluster, placed, None, cpus, numa)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("{files: {a: b}}", "cluster.yaml:5: nodes[0].image.files.a cannot be"),
        ("{files: {a: /proc/a}}", "yaml:5: image.files puts a at /proc/a, and /proc is a mount"),
        ("{files: {a: /init}}", "yaml:5: image.files puts a at /init, and /init belongs to Vicina"),
        (
            "{files: {a: /x/../b}}",
            "puts a at /x/../b, which is not a file's absolute path: write the absolute path",
        ),
        (
            "{files: {a: /}}",
            "puts a at /, which is not a file's absolute path: write the absolute path",
        ),
        ("{files: {a: /x, b: /x/}}", "puts b at /x/, where a is already: remove one of them"),
        ("{packages: [No]}", "cluster.yaml:5: nodes[0].image.packages[0] cannot be"),
        ("{package: [no]}", "unknown key package in nodes[0].image: did you mean packages?"),
        ("debian", "cluster.yaml:5: nodes[0].image cannot be"),
    ],
)
def test_mistakes(tmp_path: Path, image: str, said: str) -> None:
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, f"name: x\nnodes:\n  - name: n\n    backend: vm\n    image: {image}\n")
    assert said in str(caught.value)


def test_containers_have_no_image(tmp_path: Path) -> None:
    with pytest.raises(VicinalError, match=r"yaml:4: nodes.*container, and image is only for vm"):
        read(tmp_path, "name: x\nnodes:\n  - name: n\n    image: {packages: [tree]}\n")
    with pytest.raises(VicinalError, match=r"luster.yaml:3: image is only for the backend vm, and"):
        read(tmp_path, "name: x\nnodes: [{name: n}]\nimage: {packages: [tree]}\n")


class NoPackages:
    """A package store on a host that reaches no mirror."""

    def __init__(self, _: Path) -> None:
        """Accept the directory, which needs no preparation."""

    def unpack(self, _: object, fresh: Path) -> None:
        fresh.mkdir()
        raise VicinalError("no mirror is reached", "wait")


def test_packages_stay_until_there_are_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages are of another set, from which for example a running cluster was made."""
    (tmp_path / "debian-others/boot").mkdir(parents=True)
    monkeypatch.setattr(image, "PackageStore", NoPackages)
    for _ in range(2):
        with pytest.raises(VicinalError, match="no mirror is reached"):
            image._system(tmp_path, kind_of(GuestNetwork.VIRTIO), lambda _: None)
        assert (tmp_path / "debian-others/boot").is_dir()
