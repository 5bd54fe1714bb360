"""What the command loads: where libraries are left out, only those who want them miss them."""

import subprocess
import sys
from pathlib import Path

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
    """Import modules where there is nothing but what the command needs: numpy is not among it."""
    allowed = ",".join({"vicinal", *library_modules(), *also})
    return subprocess.run(
        [sys.executable, "-c", f"{_BLOCK}\nimport {modules}", allowed],
        capture_output=True,
        text=True,
    )


def test_the_command_needs_no_more_than_the_appliance_has() -> None:
    """Neither libvirt nor what studies are made with."""
    done = load("vicinal.cli, vicinal.cluster.manager, vicinal.cluster.share_agent")
    assert done.returncode == 0, done.stderr


def test_what_is_left_out_is_missed_by_who_wants_it() -> None:
    assert "libvirt is left out" in load("vicinal.cluster.vm.libvirt.connection").stderr
    assert "scipy is left out" in load("vicinal.labs.statistics.compare", "numpy").stderr


def test_the_driver_of_opennebula_loads_little() -> None:
    """It is called for every VM, also for those that ask for nothing."""
    script = f"{_BLOCK}\nimport vicinal.integrations.opennebula.driver"
    command = [sys.executable, "-c", script, "vicinal"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_cloud_init_loads_needs_no_library() -> None:
    """It runs with Debian's Python, which has none of ours."""
    script = f"{_BLOCK}\nimport vicinal.cluster.vm.image.appliance.context.service"
    command = [sys.executable, "-c", script, "vicinal"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_region_is_made_without_numpy(tmp_path: Path) -> None:
    """It takes longer to load than a driver of OpenNebula may take beside the stock one."""
    script = (
        "import sys; from vicinal.region import create;"
        f" create({str(tmp_path / 'region')!r}, members=2); sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
