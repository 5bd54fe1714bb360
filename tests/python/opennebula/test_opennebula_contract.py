"""Every action that one_vmm_exec asks of a KVM driver, with the arguments that it gives.

The stock scripts are stand-ins that record their calls. VMs that ask for nothing must find each
action as in the stock driver, whether or not the action has a script of Vicinal.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opennebula_support import Host, deployment_file

from vicinal.integrations.opennebula.installation import ACTIONS, Installation

CONTRACT = {
    "deploy": ("{folder}/deployment.0", "node1"),
    "cancel": ("one-7", "node1"),
    "shutdown": ("one-7", "node1"),
    "reboot": ("one-7", "node1"),
    "reset": ("one-7", "node1"),
    "save": ("one-7", "{folder}/checkpoint", "node1"),
    "restore": ("{folder}/checkpoint", "node1", "one-7"),
    "migrate": ("one-7", "node2", "node1"),
    "migrate_local": ("one-7", "node2", "node1"),
    "attach_disk": ("one-7", "{folder}/disk.1", "vdb", "1", "PFZNPjwvVk0+"),
    "detach_disk": ("one-7", "{folder}/disk.1", "vdb", "1"),
    "resize_disk": ("one-7", "1", "2048", "PFZNPjwvVk0+", "node1"),
    "attach_nic": ("one-7", "02:00:0a:00:00:07", "br 0", "-", "bridge", "one-7-1"),
    "detach_nic": ("one-7", "02:00:0a:00:00:07"),
    "snapshot_create": ("one-7", "0"),
    "snapshot_revert": ("one-7", "snap-0"),
    "snapshot_delete": ("one-7", "snap-0"),
    "prereconfigure": ("one-7", "hda"),
    "reconfigure": ("one-7", "hda", "{folder}/disk.2"),
    "resize": ("one-7",),
    "poll": ("one-7", "node1"),  # of versions before 5.12
}
"""Without the VM's id and its host, which end each call."""

_STOCK = """#!/bin/bash
printf '%s\\n' "$0" "$@" >"$STAND_IN.called"
cat >"$STAND_IN.given"
echo "it says"
echo "it complains" >&2
exit 3
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with the driver, which has stock scripts for all actions of the contract."""
    made = Host(tmp_path)
    for action in CONTRACT:
        script = made.remotes / "vmm/kvm" / action
        script.write_text(_STOCK)
        script.chmod(0o755)
    Installation(made.remotes, Path(sys.executable)).install()
    yield made
    assert not made.region().exists()


def test_the_scripts_of_ours_are_in_the_contract() -> None:
    assert set(ACTIONS) - set(CONTRACT) == {"arrive"}  # no one_vmm_exec calls it


@pytest.mark.parametrize("action", CONTRACT)
def test_an_action_reaches_the_stock_script_as_it_was_called(host: Host, action: str) -> None:
    host.prepare(7, "")
    given = deployment_file(7, host.owner) if action == "deploy" else "<VM>\n\t&amp;</VM>"
    arguments = [each.format(folder=host.folder(7)) for each in CONTRACT[action]]
    done = host.act(action, *arguments, vm=7, given=given)
    assert (done.returncode, done.stdout, done.stderr) == (3, "it says\n", "it complains\n")
    program, *called = Path(f"{host.nodes}.called").read_text().splitlines()
    assert called == [*arguments, "7", "node1"]
    assert Path(f"{host.nodes}.given").read_text() == given
    assert Path(program).parent.name == ("kvm" if action in ACTIONS else "vicinal")
    assert Path(program).samefile(host.remotes / "vmm/kvm" / action)
