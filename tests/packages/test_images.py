"""Images of containers, as a runtime unpacks them: jobs over a region in each."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from package_support import (
    CHECKOUT,
    PROGRAM,
    System,
    built_debs,
    call,
    fresh_system,
    used_region,
)

import vicinal


@dataclass(frozen=True)
class Image(System):
    """The files of an image, in which commands have the image's variables."""

    variables: tuple[str, ...]

    def run(self, *command: object) -> str:
        return super().run("env", *self.variables, *command)


@pytest.fixture(scope="module")
def images() -> Path:
    """The directory with the archives."""
    built_debs()
    call([CHECKOUT / "scripts/images"])
    return CHECKOUT / "build/packages/images"


def unpack(archive: Path, target: Path) -> Image:
    """Unpack an image as its runtime would."""
    layout = target / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(layout, filter="data")
    call(["umoci", "unpack", "--image", f"{layout}:{vicinal.__version__}", target / "bundle"])
    settings = json.loads((target / "bundle/config.json").read_text())
    assert settings["annotations"]["org.opencontainers.image.title"] == archive.stem
    return Image(target / "bundle/rootfs", tuple(settings["process"]["env"]))


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_a_ready_image_compiles_a_program_and_runs_it_over_the_region(
    images: Path, tmp_path: Path, mpi: str
) -> None:
    image = unpack(images / f"vicinal-{mpi}.tar", tmp_path)
    assert [
        path for path in (image.root / "packages", image.root / "etc/pip.conf") if path.exists()
    ] == []
    (image.root / "root/program.c").write_text(PROGRAM)
    assert f"/opt/{mpi}" in image.run("which", "mpicc", "mpiexec")
    image.run("mpicc", "-o", "/root/program", "/root/program.c")
    assert image.run("vicinal", "run", "-n", 2, "/root/program") == "sum 1\n"
    assert used_region(image.shell("vicinal run -n 2 --paths /root/program 2>&1"))


def test_the_layer_is_all_that_another_image_needs(images: Path, tmp_path: Path) -> None:
    """A Debian with its own Open MPI gets the layer's files, a region, and the host's variables."""
    layer = unpack(images / "vicinal-layer.tar", tmp_path)
    assert sorted(each.name for each in (layer.root / "opt/vicinal/lib").iterdir()) == [
        "libvicinal-fi.so",
        "libvicinal-heap.so",
        "libvicinal-mpi.so",
        "libvicinal-pairs.so",
    ]
    command = CHECKOUT / "build/venv/bin/vicinal"
    with fresh_system() as system:
        call(["cp", "--archive", layer.root / "opt/vicinal", system.root / "opt/"])
        region = system.root / "root/region"
        call([command, "region", "create", region, "--members", 8])
        printed = call([command, "env", "--mpi-prefix", "/usr", "--region", "file:/root/region"])
        variables = printed.replace(str(CHECKOUT / "build/release/provider"), "/opt/vicinal/lib")
        run = f"mpirun --allow-run-as-root --oversubscribe -n 2 {system.compile_program()}"
        assert system.shell(f"{variables}\n{run}") == "sum 1\n"
        assert "region" in call([command, "paths", "--region", f"file:{region}"])
