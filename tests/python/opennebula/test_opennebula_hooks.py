"""Hooks of OpenNebula's own network drivers: composed documents, fake cards, stand-in drivers."""

import base64
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_cards import igb, mlx5
from opennebula_support import Host, error_text
from test_opennebula_installation import call, tree
from test_opennebula_network import Trial, document, first_of, network, nic
from test_opennebula_network import nics as own_nics

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_to
from vicinal.integrations.opennebula.network import Hooks, run_hook
from vicinal.integrations.opennebula.vf import VfNic, read_nics

RATES = "<MIN_TX_RATE>100</MIN_TX_RATE><MAX_TX_RATE>500</MAX_TX_RATE>"
DISABLED = "<LINK_STATE>Disable</LINK_STATE>"

_DRIVER = '''\
#!{python}
"""A stand-in for OpenNebula's script of this name: it does nothing but run hooks, as run_hooks of
vnm_driver.rb does. Of one that goes well it logs the output alone."""
import os, pathlib, subprocess, sys

given = sys.stdin.read()
action = pathlib.Path(sys.argv[0])
for hook in sorted(pathlib.Path(f"{{action}}.d").glob("*")):
    if os.access(hook, os.X_OK):
        command = [hook, *sys.argv[1:]]
        done = subprocess.run(command, input=given, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"vnm_driver.rb:359: Error running {{hook}} (RuntimeError)\\n{{done.stderr}}")
        print(f"INFO: {{action.name}}: {{done.stdout}}", file=sys.stderr)
'''


def nics(*written: str, driver: str = "bridge") -> Sequence[VfNic]:
    found = read_nics(document(*written), driver)[1]
    assert found is not None
    return found


def bridged(more: str = "", *, number: int = 0, driver: str = "bridge") -> str:
    return nic(first_of("igb", number), more, driver=driver)


def hooks(trial: Trial) -> Hooks:
    return Hooks(trial.vfs, lambda: trial.running, free_seconds=0.2)


def remember(trial: Trial, number: int = 0) -> dict[str, str]:
    return dict(trial.card.settings[number])


def put_on_vfio(trial: Trial) -> Path:
    """Bind the VF to vfio-pci, as libvirt does, or an administrator does permanently."""
    device = trial.host.device(first_of("igb"))
    trial.host.write(device / "driver_override", "vfio-pci\n")
    trial.host.write(device / "driver/unbind", device.name)
    trial.host.write(trial.host.sysfs / "bus/pci/drivers_probe", device.name)
    return device


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path, igb())


# --- before the VM boots, and after --------------------------------------------------------


def test_rates_and_link_state_are_set_and_nothing_else(trial: Trial) -> None:
    before = remember(trial)
    trial.host.calls.clear()
    trial.host.writes.clear()
    more = f"{RATES}{DISABLED}<VLAN_ID>9</VLAN_ID><SPOOFCHK>maybe</SPOOFCHK>"  # OpenNebula's
    hooks(trial).prepare(7, nics(bridged(more)))
    expected = {"min_tx_rate": "100", "max_tx_rate": "500", "state": "disable"}
    assert remember(trial) == before | expected
    told = [word for words in trial.host.calls if "set" in words for word in words[7::2]]
    assert sorted(told) == sorted(expected)
    assert trial.owners() == ["one-net-7", ""]
    assert hooks(trial).clean(7, nics(bridged(more))) == []
    assert trial.state() == trial.before
    assert trial.host.writes == []  # libvirt chooses the VF's driver


def test_what_is_not_named_is_not_said(trial: Trial) -> None:
    trial.host.refused = {"min_tx_rate", "state"}
    hooks(trial).prepare(7, nics(bridged("<MAX_TX_RATE>500</MAX_TX_RATE>")))
    assert remember(trial)["max_tx_rate"] == "500"
    assert hooks(trial).clean(7, []) == []
    assert trial.state() == trial.before


def test_of_a_vm_that_asks_for_nothing_nothing_is_recorded(trial: Trial) -> None:
    trial.host.calls.clear()
    hooks(trial).prepare(7, nics(bridged()))
    assert trial.state() == trial.before
    assert not [words for words in trial.host.calls if "set" in words]


def test_a_whole_card_without_rates_is_none_of_ours(trial: Trial) -> None:
    hooks(trial).prepare(7, nics(nic(trial.card.address, driver="bridge")))
    with pytest.raises(VicinalError, match="is no virtual function of this host"):
        hooks(trial).prepare(7, nics(nic(trial.card.address, RATES, driver="bridge")))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("<MAX_TX_RATE>fast</MAX_TX_RATE>", "MAX_TX_RATE is 'fast'"),
        ("<MAX_TX_RATE>99999999</MAX_TX_RATE>", "99999999 is no rate"),
        ("<MIN_TX_RATE>9</MIN_TX_RATE><MAX_TX_RATE>8</MAX_TX_RATE>", "above the highest"),
        ("<LINK_STATE>off; reboot</LINK_STATE>", "off; reboot is no link state"),
    ],
)
def test_values_that_cannot_be_are_refused(trial: Trial, more: str, said: str) -> None:
    with pytest.raises(VicinalError, match=said):
        hooks(trial).prepare(7, nics(bridged(more)))
    assert trial.state() == trial.before


def test_infiniband_is_not_for_opennebulas_drivers(tmp_path: Path) -> None:
    trial = Trial(tmp_path, mlx5())
    with pytest.raises(VicinalError, match='give its network VN_MAD = "vicinal"'):
        hooks(trial).prepare(7, nics(nic(first_of("mlx5"), RATES, driver="bridge")))
    assert trial.state() == trial.before


def test_all_of_a_vm_or_none(trial: Trial) -> None:
    trial.vfs.assign(first_of("igb", 1), owner="vicinal.lab.node0")
    there = trial.state()
    with pytest.raises(VicinalError, match=r"08\.1 is assigned to vicinal\.lab\.node0"):
        hooks(trial).prepare(7, nics(bridged(RATES), bridged(RATES, number=1)))
    assert trial.state() == there


def test_what_the_card_refuses_is_undone(trial: Trial) -> None:
    trial.host.refused = {"max_tx_rate"}
    with pytest.raises(VicinalError, match="not supported"):
        hooks(trial).prepare(7, nics(bridged(f"{RATES}{DISABLED}")))
    assert trial.state() == trial.before


def test_tried_again_with_less_the_rest_is_gone(trial: Trial) -> None:
    before = remember(trial)
    hooks(trial).prepare(7, nics(bridged(f"{RATES}{DISABLED}")))
    hooks(trial).prepare(7, nics(bridged(RATES)))
    assert remember(trial) == before | {"min_tx_rate": "100", "max_tx_rate": "500"}
    hooks(trial).prepare(7, nics(bridged()))
    assert trial.state() == trial.before


@pytest.mark.parametrize("asks", [RATES, ""])
def test_what_an_ended_vm_has_left_is_not_for_the_next(trial: Trial, asks: str) -> None:
    """The driver of VM 7 was killed; OpenNebula knows that the VF is free."""
    before = remember(trial)
    hooks(trial).prepare(7, nics(bridged(DISABLED)))
    hooks(trial).prepare(8, nics(bridged(asks)))
    rates = {"min_tx_rate": "100", "max_tx_rate": "500"} if asks else {}
    assert remember(trial) == before | rates
    assert trial.owners() == ["one-net-8" if asks else "", ""]
    assert hooks(trial).clean(8, []) == []
    assert trial.state() == trial.before


def test_the_vf_of_a_vm_that_runs_is_not_taken(trial: Trial) -> None:
    hooks(trial).prepare(7, nics(bridged(RATES)))
    trial.running.add(7)
    with pytest.raises(VicinalError, match="is assigned to one-net-7"):
        hooks(trial).prepare(8, nics(bridged(RATES)))
    assert trial.owners() == ["one-net-7", ""]


def test_networks_of_ours_and_of_others_take_over_from_each_other(trial: Trial) -> None:
    ours = network(trial.vfs, trial.running)
    hooks(trial).prepare(7, nics(bridged(DISABLED)))
    ours.prepare(8, own_nics(nic(first_of("igb"))))
    assert (trial.owners(), remember(trial)["state"]) == (["one-8", ""], "auto")
    hooks(trial).prepare(9, nics(bridged(RATES)))
    assert trial.owners() == ["one-net-9", ""]
    assert hooks(trial).clean(9, []) == []
    assert trial.state() == trial.before


def test_it_is_none_of_those_that_saving_and_moving_detach(trial: Trial) -> None:
    hooks(trial).prepare(7, nics(bridged(RATES)))
    assert assigned_to(trial.vfs, "one-7") == []


def test_one_that_comes_or_goes_is_meant_alone(trial: Trial) -> None:
    hooks(trial).prepare(7, nics(bridged(RATES)))
    trial.running.add(7)
    device = put_on_vfio(trial)
    trial.host.files(device, enable="1")  # QEMU has it open
    comes = bridged(f"{RATES}<ATTACH>YES</ATTACH>", number=1)
    hooks(trial).prepare(7, nics(bridged(RATES), comes))
    assert trial.owners() == ["one-net-7", "one-net-7"]
    assert hooks(trial).clean(7, nics(bridged(RATES), comes)) == []
    assert trial.owners() == ["one-net-7", ""]


def test_who_has_the_vf_keeps_it(trial: Trial) -> None:
    """For OpenNebula, administrators bind VFs to vfio-pci permanently."""
    device = put_on_vfio(trial)
    there = trial.state()
    hooks(trial).prepare(7, nics(bridged(RATES)))
    assert hooks(trial).clean(7, []) == []
    assert trial.state() == there
    assert trial.host.read(device / "driver_override") == "vfio-pci"
    assert trial.host.given == []  # the hook did not change who may open it


def test_a_vm_ends_though_its_vf_does_not_come_free(trial: Trial) -> None:
    hooks(trial).prepare(7, nics(bridged(RATES)))
    device = trial.host.device(first_of("igb"))
    trial.host.files(device / "net/eth1v0", flags="0x1003")
    [note] = hooks(trial).clean(7, [])
    assert "stay assigned to one-net-7: " in note
    assert "its interface eth1v0 is up" in note
    trial.host.files(device / "net/eth1v0", flags="0x1002")
    assert hooks(trial).clean(7, []) == []
    assert trial.state() == trial.before


# --- as drivers call them ------------------------------------------------------------------


@pytest.fixture
def one(tmp_path: Path) -> Host:
    """A host of OpenNebula whose drivers bridge and 802.1Q run hooks."""
    host = Host(tmp_path)
    for driver in ("bridge", "802.1Q", "old"):
        for action in ("pre", "post", "clean"):
            script = host.remotes / "vnm" / driver / action
            script.parent.mkdir(exist_ok=True)
            text = _DRIVER.format(python=sys.executable)
            script.write_text("#!/usr/bin/env ruby\n" if driver == "old" else text)
            script.chmod(0o755)
    return host


def acts(one: Host, action: str, given: bytes | str) -> subprocess.CompletedProcess[str]:
    """Call a driver's script as one_vmm_exec does: standard input is the document in base64."""
    text = given if isinstance(given, str) else base64.b64encode(given).decode()
    return subprocess.run(
        [one.remotes / "vnm/bridge" / action, "one-7", "node1"],
        input=f"{text}\n",
        capture_output=True,
        text=True,
        env=one.variables(),
        check=False,
    )


def installed(one: Host, *more: str) -> Host:
    assert call("install", one.remotes, "--hooks", "bridge", *more) == 0
    return one


@pytest.mark.parametrize("action", ["pre", "clean"])
def test_a_vm_without_rates_starts_no_python(one: Host, action: str) -> None:
    installed(one, "--python", "/nowhere/python")
    done = acts(one, action, document(bridged()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"INFO: {action}: \n")
    assert acts(one, action, document(bridged(RATES))).returncode == 1
    assert acts(one, action, "no base64!").returncode == 1
    assert acts(one, action, document("x" * 2_000_000)).returncode == 0
    hook = one.remotes / f"vnm/bridge/{action}.d/vicinal"
    records = one.directory / "records.json"
    text = hook.read_text().replace(str(Vfs().host.records / "records.json"), str(records))
    hook.write_text(text)
    assert acts(one, action, document(bridged())).returncode == 0
    records.write_text('{"vfs": {"0000:01:08.0": {"owner": "one-net-7"}}}')
    assert acts(one, action, document(bridged())).returncode == 1  # the record may be this VM's


def test_a_plain_nics_attribute_is_none_of_ours(one: Host) -> None:
    plain = f"<NIC><VN_MAD>bridge</VN_MAD>{RATES}</NIC>"
    done = acts(installed(one), "pre", document(plain, bridged(RATES, driver="fw")))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "INFO: pre: \n")


def test_a_driver_fails_with_the_cause(one: Host) -> None:
    installed(one)
    done = acts(one, "pre", document(nic("ffff:02:08.0", RATES, driver="bridge")))
    assert done.returncode == 1
    said = error_text(done.stderr)
    assert said.startswith("pre: Vicinal: ffff:02:08.0 is no virtual function of this host")
    assert "Traceback" not in done.stderr
    done = acts(one, "pre", document(bridged("<MAX_TX_RATE>fast</MAX_TX_RATE>")))
    assert "MAX_TX_RATE is 'fast'" in error_text(done.stderr)
    done = acts(one, "clean", document(bridged("<MAX_TX_RATE>fast</MAX_TX_RATE>")))
    assert done.returncode == 0, done.stderr  # nothing prevents the end of a VM


@pytest.mark.parametrize("card", ["fine", "failing"])
def test_a_hook_does_it_and_says_what_it_could_not(
    trial: Trial,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    card: str,
) -> None:
    monkeypatch.setattr("vicinal.integrations.opennebula.network.Vfs", lambda: trial.vfs)
    given = base64.b64encode(document(bridged(RATES)))
    before = remember(trial)
    for action in ("pre", "clean"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        run_hook(Path("/remotes/vnm/bridge") / action)
        if action == "pre":
            assert remember(trial)["max_tx_rate"] == "500"
            trial.host.refused = {"max_tx_rate"} if card == "failing" else set()
    shown = capsys.readouterr()
    if card == "fine":
        assert (remember(trial), shown.out, shown.err) == (before, "", "")
        return
    # OpenNebula logs one of the two.
    assert shown.out.startswith("Vicinal: vf 0 max_tx_rate was not set back: ")
    assert shown.err.startswith("ERROR: clean: Vicinal: vf 0 max_tx_rate was not set back: ")


def test_what_is_set_back_survives_a_killed_hook(trial: Trial) -> None:
    """Records come first: even if a hook is killed before it changes the card, they are whole."""

    class Killed(BaseException):
        pass

    run = trial.host.run

    def dying(name: str, *arguments: str) -> str:
        if "set" in arguments:
            raise Killed
        return run(name, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial.host, "run", dying)
        with pytest.raises(Killed):
            hooks(trial).prepare(7, nics(bridged(RATES)))
    assert trial.owners() == ["one-net-7", ""]
    hooks(trial).prepare(8, nics(bridged(RATES)))
    assert trial.owners() == ["one-net-8", ""]
    assert hooks(trial).clean(8, []) == []
    assert trial.state() == trial.before


# --- installing ----------------------------------------------------------------------------


def test_hooks_come_and_go_with_the_rest(one: Host, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(one.remotes)
    installed(one, "--hooks", "802.1Q")
    for driver in ("bridge", "802.1Q"):
        for action in ("pre", "clean"):
            assert os.access(one.remotes / f"vnm/{driver}/{action}.d/vicinal", os.X_OK)
    assert not (one.remotes / "vnm/bridge/post.d").exists()
    assert call("check", one.remotes, "--hooks", "bridge") == 0
    assert call("remove", one.remotes, "--hooks", "bridge") == 0
    assert not (one.remotes / "vnm/bridge/pre.d").exists()
    assert (one.remotes / "vnm/802.1Q/pre.d/vicinal").exists()
    assert call("check", one.remotes) == 0
    capsys.readouterr()
    assert call("check", one.remotes, "--hooks", "bridge") == 1
    assert "vnm/bridge/pre.d/vicinal is missing" in capsys.readouterr().err
    assert call("remove", one.remotes, "--hooks", "bridge") == 1
    assert "'bridge' had no hooks" in capsys.readouterr().err
    assert call("remove", one.remotes) == 0
    assert tree(one.remotes) == before


def test_hooks_stay_and_are_mended_without_being_named(
    one: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = installed(one).remotes / "vnm/bridge/clean.d/vicinal"
    hook.write_text(hook.read_text() + "echo more\n")
    (one.remotes / "vnm/bridge/pre.d/vicinal").unlink()
    capsys.readouterr()
    assert call("check", one.remotes) == 1
    shown = capsys.readouterr().err
    assert "clean.d/vicinal has other contents" in shown
    assert "pre.d/vicinal is missing" in shown
    assert call("install", one.remotes) == 0
    assert call("check", one.remotes) == 0


def test_hooks_of_others_stay(one: Host, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("firecracker", "vicinal"):
        other = one.remotes / "vnm/bridge/pre.d" / name
        other.parent.mkdir(exist_ok=True)
        other.write_text("#!/bin/sh\n")
    before = tree(one.remotes)
    assert call("install", one.remotes, "--hooks", "bridge") == 1
    assert "pre.d/vicinal is not Vicinal's" in capsys.readouterr().err
    assert tree(one.remotes) == before
    (one.remotes / "vnm/bridge/pre.d/vicinal").unlink()
    installed(one)
    assert call("remove", one.remotes) == 0
    del before["vnm/bridge/pre.d/vicinal"]
    assert tree(one.remotes) == before


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("brige", "has 802.1Q, bridge, old"),
        ("vicinal", "is no network driver of OpenNebula:"),
        ("../vmm/kvm", "is no network driver of OpenNebula:"),
        ("old", "vnm/old/pre runs no hooks"),
    ],
)
def test_drivers_that_run_none_are_refused(
    one: Host, driver: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(one.remotes)
    assert call("install", one.remotes, "--hooks", driver) == 1
    assert said in capsys.readouterr().err
    assert tree(one.remotes) == before


def test_hooks_look_at_the_helpers_records(one: Host) -> None:
    """A script without Vicinal's Python has to know the path of the records."""
    text = (installed(one).remotes / "vnm/bridge/pre.d/vicinal").read_text()
    assert f"'{Vfs().host.records / 'records.json'}'" in text
    assert "@" not in text.replace('"$@"', "")
