"""A study in virtual machines: two VMs for environments with and without a region."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from domain_support import private_daemon
from guest_support import GUARD_SECONDS

import vicinal


def test_two_vms_with_and_without_a_region() -> None:
    script = Path(__file__).parents[1] / "support/study_scenario.py"
    # Not the test's own directory, because sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="vicinal-") as name, private_daemon() as uri:
        done = subprocess.run(
            [sys.executable, script, name],
            env=os.environ
            | {
                "PYTHONPATH": str(Path(vicinal.__file__).resolve().parents[1]),
                "LIBVIRT_DEFAULT_URI": uri,
                "XDG_STATE_HOME": f"{name}/state",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["clusters"] == []
    # A program whose libraries the VMs lack is left out before any program starts.
    assert set(found["lacking"]) == {f"{each}/message" for each in ("network", "region", "wrong")}
    facts = found["environments"]
    for each in facts.values():
        assert each["same_nodes"] == ["network", "region", "wrong"]
        assert each["emulated"] == (each["accelerator"] == "tcg")
        assert [node["name"] for node in each["nodes"]] == ["vm0", "vm1"]
        assert each["kernel"] != os.uname().release
    trials = found["trials"]
    assert set(trials) == {"network", "network+control", "region", "wrong"}
    for name, trial in trials.items():
        assert trial["conditions"]["emulated"] == facts["region"]["emulated"]
        if name == "wrong":
            assert trial["failure"].startswith("nothing went through the region")
        else:
            assert trial["failure"] is None
            assert len(trial["samples"]) == 1
            assert set(trial["conditions"]["program"]["hosts"]) == {"vm0", "vm1"}
