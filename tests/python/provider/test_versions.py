"""An old and a new Vicinal in one job: each refuses the other in one line that names both versions.

The newer provider is compiled from a copy of the sources in which one version is raised by 1.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_support import BUILD_SECONDS, CHECKOUT, Vicinal, error_line
from launch_support import GUARD_SECONDS, MPIS

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import launch
from vicinal.mpi.job import CompletedJob, Job
from vicinal.region import format as layout

pytestmark = pytest.mark.long

VERSIONS = {
    "REGION_VERSION": "region/layout.h",
    "FRAME_VERSION": "transport/network_frame.h",
    "ADDRESS_FORMAT_VERSION": "api/provider.h",
}
"""The versions of what processes exchange, and the headers of provider/ that define them."""

Newer = Callable[[str], Path]


def pair_of(version: str) -> tuple[str, str]:
    """This version and the newer one."""
    text = (CHECKOUT / "provider" / VERSIONS[version]).read_text()
    (found,) = re.findall(rf"^#define {version} (\d+)U", text, re.MULTILINE)
    return found, str(int(found) + 1)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Newer:
    """The directory of a provider in which a version of VERSIONS is 1 higher."""
    directory = tmp_path_factory.mktemp("newer")
    sources, build = directory / "sources", directory / "build"
    parts = ("provider", "guest", "meson.build", "meson_options.txt", "src/vicinal/__init__.py")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *parts]
    found = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    for name in found.stdout.split():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, sources / name)
    options = ["-Dbuildtype=plain", "-Ddebug=false"]
    subprocess.run(["meson", "setup", *options, build, sources], check=True)

    def make(raised: str) -> Path:
        for version, name in VERSIONS.items():
            text = (CHECKOUT / "provider" / name).read_text()
            if version == raised:
                old, new = pair_of(version)
                text = text.replace(f"#define {version} {old}U", f"#define {version} {new}U")
            if (sources / "provider" / name).read_text() != text:
                (sources / "provider" / name).write_text(text)
        file = "provider/libvicinal-fi.so"
        subprocess.run(["ninja", "-C", build, file], check=True, timeout=BUILD_SECONDS)
        target = directory / raised
        target.mkdir(exist_ok=True)
        shutil.copy(build / file, target)
        return target

    return make


def run_mixed(mpi: str, other: Path, hosts: int) -> CompletedJob:
    """A job in which rank 1 uses the provider of another directory."""
    choose = (
        '[ "$PMI_RANK$OMPI_COMM_WORLD_RANK" != 1 ] || '
        f'export FI_PROVIDER_PATH={other}; exec "$0" "$@"'
    )
    program = CHECKOUT / "build/programs" / mpi / "verify"
    with EphemeralCluster(nodes=2) as cluster:
        if hosts > 1 and not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        command = ["/bin/sh", "-c", choose, str(program), "--max-size", "3000"]
        return launch(Job(command, 2, mpi=mpi, hosts=hosts), cluster, timeout=GUARD_SECONDS)


def said(result: CompletedJob) -> list[str]:
    """The provider's errors, in order of their versions."""
    assert result.returncode != 0
    found = re.findall("vicinal: error: .*", result.stderr)
    assert found, result.stderr
    return sorted(found, key=lambda line: line.partition("version ")[2])


@pytest.mark.parametrize("mpi", MPIS)
def test_a_newer_provider_refuses_the_region_of_an_older_vicinal(newer: Newer, mpi: str) -> None:
    other = newer("REGION_VERSION")
    with EphemeralCluster(nodes=2) as cluster:
        program = CHECKOUT / "build/programs" / mpi / "verify"
        job = Job([str(program)], 2, mpi=mpi, environment={"FI_PROVIDER_PATH": str(other)})
        lines = said(launch(job, cluster, timeout=GUARD_SECONDS))
    assert len(lines) in (1, 2)  # the launcher ends the other rank, which may not have come so far
    for line in lines:
        old, new = pair_of("REGION_VERSION")
        assert f"its format is version {old} and this provider knows version {new}: " in line
        assert line.endswith("install the Vicinal that created it, or create it again")


def test_an_older_vicinal_refuses_a_newer_region(vicinal: Vicinal, region_path: Path) -> None:
    """All commands that read it say the same. The remedies, `remove` and `create`, work."""
    region.create(region_path)
    with region_path.open("r+b") as file:
        file.seek(8)
        file.write((layout.VERSION + 1).to_bytes(4, "little"))
    for command in (
        ["show", region_path],
        ["check", region_path],
        ["detach", region_path],
        ["attach", region_path],
    ):
        line = error_line(vicinal("region", *command))
        assert f"has format version {layout.VERSION + 1}" in line
        assert f"this Vicinal knows version {layout.VERSION}: " in line
        assert "install the Vicinal that created the region, or remove the region" in line
    assert vicinal("region", "create", region_path, "--existing").returncode == 0
    assert vicinal("region", "check", region_path).returncode == 0


@pytest.mark.parametrize("mpi", MPIS)
def test_two_versions_of_the_network_protocol(newer: Newer, mpi: str) -> None:
    """Both ranks fail at the first HELLO. With Open MPI one may be ended before it says so."""
    lines = said(run_mixed(mpi, newer("FRAME_VERSION"), hosts=2))
    pairs = {tuple(re.findall(r"version (\d+)", line)) for line in lines}
    pair = pair_of("FRAME_VERSION")
    assert pairs <= {pair, pair[::-1]}
    assert all(line.endswith("install the same Vicinal on all hosts") for line in lines)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("mpi", MPIS)
def test_two_versions_of_addresses(newer: Newer, mpi: str, hosts: int) -> None:
    lines = said(run_mixed(mpi, newer("ADDRESS_FORMAT_VERSION"), hosts))
    pairs = {tuple(re.findall(r"version (\d+)", line)) for line in lines}
    pair = pair_of("ADDRESS_FORMAT_VERSION")
    assert pairs <= {pair, pair[::-1]}
    assert all("install the same Vicinal for all ranks" in line for line in lines)
