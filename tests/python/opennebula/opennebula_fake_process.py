"""One process of the driver on a fake host: opennebula_fake_process.py -I -m MODULE WORD...

For measurements (opennebula_overhead.py), the real scripts start this program instead of Python. It
loads what they load and does what they do. Only libvirt's domains and the kernel's cards are fakes,
which files keep between processes. Each request to the privileged helper starts the real helper,
which refuses; then the fake helper performs the request. A file gets the time that the process
spent waiting.
"""

import json
import os
import pickle
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

HOST = "FAKE_HOST"
"""The variable that names the host's directory."""
STILL = "still"
"""A file in that directory, which exists while the VM is suspended."""
_waited = 0.0


def main(module: str, words: list[str]) -> None:
    here = Path(os.environ[HOST])
    sleep = time.sleep

    def counted(seconds: float) -> None:
        global _waited
        began = time.perf_counter()
        sleep(seconds)
        _waited += time.perf_counter() - began

    vars(time)["sleep"] = counted
    try:
        if module == "vicinal.integrations.opennebula.network":
            with _cards(here):
                _run(module, words)
        else:
            _drive(here, words)
    finally:
        with (here / "waited").open("a") as file:
            file.write(f"{_waited}\n")


def _run(module: str, words: list[str]) -> None:
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__")


def _drive(here: Path, words: list[str]) -> None:
    from vicinal.integrations.opennebula import driver
    from vicinal.integrations.opennebula.records import Records

    known = vars(driver)
    known["Records"] = partial(Records, regions=here / "regions")
    if known.get("saved_description"):
        known["saved_description"] = lambda file: json.loads(Path(file).read_text())["saved"]
    known["_on_site"] = partial(_with_domains, here, driver._on_site)
    sys.exit(driver.main(words))


def _with_domains(here: Path, act: Any, *words: Any) -> Any:
    """Only actions that need libvirt's domains load the fake domains, as they load libvirt."""
    from fake_libvirt_files import connected

    from vicinal.integrations.opennebula import vm

    vars(vm)["connect"] = partial(connected, here)
    return act(*words)


@contextmanager
def _cards(here: Path) -> Iterator[None]:
    from fake_cards import FakeHelper

    from vicinal.host.vf import helper, operations

    kept = here / "cards.pickle"
    host = pickle.loads(kept.read_bytes())
    fake = FakeHelper(host)

    def ask(operation: str, **fields: object) -> dict[str, Any]:
        subprocess.run(helper._command(), input="{}", capture_output=True, text=True)
        return fake(operation, **fields)

    class Vfs(operations.Vfs):
        def __init__(self) -> None:
            super().__init__(host, ask)

    vars(operations)["Vfs"] = Vfs
    try:
        yield
    finally:
        kept.write_bytes(pickle.dumps(host))


if __name__ == "__main__":
    assert sys.argv[1:3] == ["-I", "-m"]
    main(sys.argv[3], sys.argv[4:])
