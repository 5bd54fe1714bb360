"""TuneD without its daemon, for test_tune_export.py; the result is one line of JSON.

    tuned_inside.py UNPACKED PROFILES NAME

UNPACKED is the directory of TuneD's package. TuneD's loader reads the profile, and TuneD's units
and plugins start, verify and stop it, as in TuneD's daemon. The program runs as root in the network
namespace of test_tune_killed.py.
"""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

UNPACKED, PROFILES, NAME = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path.insert(0, str(UNPACKED / "usr/lib/python3/dist-packages"))

import tuned.consts as consts  # noqa: E402

# TuneD's files for reading and writing; set before the imports below read these constants.
consts.GLOBAL_CONFIG_FILE = str(UNPACKED / "etc/tuned/tuned-main.conf")
consts.DEFAULT_STORAGE_FILE = f"{PROFILES}/storage"

from tuned import hardware, monitors, plugins, profiles, storage, units  # noqa: E402
from tuned.utils.global_config import GlobalConfig  # noqa: E402


class Complaints(logging.Handler):
    """Collects the errors that TuneD logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def values() -> list[str]:
    """The queues of va and the rx-frames of tap0, as ethtool shows them."""
    found = []
    for command, start in ((["-l", "va"], "RX:"), (["-c", "tap0"], "rx-frames:")):
        done = subprocess.run(["ethtool", *command], capture_output=True, text=True, check=True)
        found.append([line for line in done.stdout.splitlines() if line.startswith(start)][-1])
    return [line.partition(":")[2].strip() for line in found]


def main() -> None:
    """Load the profile; start, verify and stop its scripts."""
    complaints = Complaints()
    logging.getLogger("tuned").addHandler(complaints)
    config, variables = GlobalConfig(), profiles.variables.Variables()
    locator = profiles.Locator([str(UNPACKED / "usr/lib/tuned"), PROFILES])
    loader = profiles.Loader(locator, profiles.Factory(), profiles.Merger(), config, variables)
    profile = loader.load(NAME)
    inventory, monitoring = hardware.Inventory(), monitors.Repository()
    repository = plugins.Repository(
        monitoring,
        storage.Factory(storage.PickleProvider()),
        inventory,
        hardware.DeviceMatcher(),
        hardware.DeviceMatcherUdev(),
        plugins.instance.Factory(),
        config,
        variables,
    )
    manager = units.Manager(repository, monitoring, 0, inventory, config)
    # The included profile's other units would tune the host that runs the tests.
    manager.create({name: unit for name, unit in profile.units.items() if unit.type == "script"})
    found: dict[str, Any] = {"units": list(profile.units), "before": values()}
    manager.start_tuning()
    found |= {"started": values(), "verified": manager.verify_tuning(False)}
    manager.stop_tuning(True)
    found |= {"stopped": values(), "complaints": complaints.lines}
    network = repository.create("net")
    found["net"] = {
        unit.devices: network._set_device_parameters("coalesce", unit.options["coalesce"], "", True)
        for unit in profile.units.values()
        if unit.type == "net" and "coalesce" in unit.options
    }
    print(json.dumps(found))


main()
