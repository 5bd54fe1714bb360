"""Setting all or none of a host's knobs, and restoring them, on a stand-in for cards."""

import fcntl
import os
from pathlib import Path

import pytest
from fake_knobs import BEFORE, FakeEthtool, FakeNetwork, fake_tuned_host, same_tuned_host

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs.catalogue import devices, knob_named
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.knobs.network import Link
from vicinal.labs.tune.settings.applier import Applier, JournaledKnob
from vicinal.labs.tune.settings.capability import Ability, try_knob
from vicinal.labs.tune.settings.own_connection import own_connection
from vicinal.labs.tune.settings.state_directory import sole_command


@pytest.fixture
def host(tmp_path: Path) -> TunedHost:
    return fake_tuned_host(tmp_path)


@pytest.fixture
def applier(host: TunedHost, tmp_path: Path) -> Applier:
    return Applier(host, tmp_path / "journal")


def card(host: TunedHost) -> FakeEthtool:
    assert isinstance(host.ethtool, FakeEthtool)
    return host.ethtool


def network(host: TunedHost) -> FakeNetwork:
    assert isinstance(host.network, FakeNetwork)
    return host.network


def has(host: TunedHost, name: str) -> Value:
    return knob_named(host, f"eth0/{name}").read()


def apply(applier: Applier, *settings: Setting) -> None:
    with applier.lasting() as work:
        for setting in settings:
            work.apply(setting)


def test_a_setting_stays_and_goes(host: TunedHost, applier: Applier, tmp_path: Path) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10, "eth0/adaptive-rx": "off", "eth0/tx-usecs": 5})
    assert (has(host, "rx-usecs"), has(host, "adaptive-rx")) == (10, "off")
    # A value that did not change is not part of the restore.
    (operation,) = applier.operations()
    assert list(operation.changes) == ["eth0/rx-usecs", "eth0/adaptive-rx"]
    assert applier.restore() == [
        "eth0/adaptive-rx is restored to on, and was off",
        "eth0/rx-usecs is restored to 3, and was 10",
    ]
    assert card(host).coalescing("eth0") == BEFORE
    assert not (tmp_path / "journal").exists()


def test_one_setting_over_another_goes_with_it(host: TunedHost, applier: Applier) -> None:
    for value in (10, 20):
        with applier.lasting() as work:
            work.apply({"eth0/rx-usecs": value})
    # A setting that fails restores the previous setting.
    with pytest.raises(VicinalError, match="no knob"):
        apply(applier, {"eth0/rx-usecs": 50}, {"eth0/nothing": 1})
    assert has(host, "rx-usecs") == 20
    applier.restore()
    assert has(host, "rx-usecs") == 3


def test_a_driver_that_refuses_half_leaves_nothing(host: TunedHost, applier: Applier) -> None:
    card(host).put("eth0", refuses=["tx-usecs"])
    with applier.temporarily() as work:
        work.apply({"eth0/rx-frames": 1})
        with pytest.raises(VicinalError, match="driver of eth0 refuses"):
            work.apply({"eth0/rx-usecs": 10, "eth0/rx-frames": 2, "eth0/tx-usecs": 10})
        # The refused setting is undone at once, not only after all trials.
        assert card(host).coalescing("eth0") == BEFORE | {"rx-frames": 1}
    assert card(host).coalescing("eth0") == BEFORE
    assert not applier.operations()


@pytest.mark.parametrize(
    ("card_does", "message"),
    [
        ({"ignores": ["rx-frames"]}, "accepted without an error, but the driver ignores it"),
        ({"most": {"rx-frames": 64}}, "accepted without an error, but the driver changes it to 64"),
    ],
)
def test_a_driver_that_lies_is_found_out(
    host: TunedHost, applier: Applier, card_does: dict[str, object], message: str
) -> None:
    card(host).put("eth0", coalescing=BEFORE | {"rx-frames": 1}, **card_does)
    with pytest.raises(VicinalError, match=message):
        apply(applier, {"eth0/rx-usecs": 10, "eth0/rx-frames": 128})
    assert card(host).coalescing("eth0") == BEFORE | {"rx-frames": 1}


def test_a_link_that_goes_down_in_a_trial_leaves_a_journal(
    host: TunedHost, applier: Applier
) -> None:
    def trial() -> None:
        with applier.temporarily() as work:
            work.apply({"eth0/rx-usecs": 10, "eth0/tx-usecs": 10})
            card(host).put("eth0", down=["rx-usecs"])

    with pytest.raises(VicinalError, match="not all values are restored: eth0/rx-usecs was 3"):
        trial()
    assert (has(host, "rx-usecs"), has(host, "tx-usecs")) == (10, 5)
    # The applier changes nothing while an earlier change is not restored.
    with pytest.raises(VicinalError, match="eth0 is down"):
        applier.recover()
    card(host).put("eth0", down=[])
    assert applier.recover() == [
        "a command did not finish; its changes are undone",
        "eth0/rx-usecs is restored to 3, and was 10",
    ]
    assert not applier.operations()


def test_what_cannot_be_set_back_can_be_forgotten(host: TunedHost, applier: Applier) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10})
    card(host).put("eth0", refuses=["rx-usecs"])
    with pytest.raises(VicinalError, match=r"run `vicinal tune restore --forget`"):
        applier.restore()
    assert applier.forget() == ["eth0/rx-usecs was 3, and stays as it is"]
    assert has(host, "rx-usecs") == 10
    assert applier.restore() == []


def test_a_host_that_was_started_anew_is_as_it_is(
    host: TunedHost, applier: Applier, tmp_path: Path
) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10})
    again = Applier(same_tuned_host(tmp_path, "second"), tmp_path / "journal")
    assert not again.operations()
    assert again.recover() == ["the host was rebooted, which reset eth0/rx-usecs"]
    assert has(host, "rx-usecs") == 10  # the value after the reboot
    assert not (tmp_path / "journal").exists()


def test_an_interface_is_known_by_its_number(host: TunedHost, applier: Applier) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10})
    # Another interface has the name eth0 now.
    network(host).found = [Link("old0", 2), Link("eth0", 7)]
    card(host).put("old0", coalescing=BEFORE | {"rx-usecs": 10})
    assert applier.restore() == ["old0/rx-usecs is restored to 3, and was 10"]
    assert has(host, "rx-usecs") == 10


def test_an_interface_that_is_gone_took_its_values_along(host: TunedHost, applier: Applier) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10})
    network(host).found = [Link("eth0", 7)]
    assert applier.restore() == ["eth0 no longer exists, so eth0/rx-usecs is not restored"]
    assert not applier.operations()


def test_values_of_another_network_are_not_set_here(host: TunedHost, applier: Applier) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10})
    network(host).namespace += 1
    with pytest.raises(
        VicinalError,
        match="in another network namespace: run `vicinal tune restore` in that namespace",
    ):
        applier.restore()
    assert has(host, "rx-usecs") == 10
    assert applier.operations()


def test_a_journal_that_is_none_is_left_alone(applier: Applier, tmp_path: Path) -> None:
    for line in ("nonsense", '{"event": "keep"}', '{"event": "begin", "kind": "no", "boot": ""}'):
        (tmp_path / "journal").write_text(f"{line}\n")
        with pytest.raises(VicinalError, match="a line that no command of Vicinal writes"):
            applier.recover()
        assert (tmp_path / "journal").read_text() == f"{line}\n"


def test_one_command_at_a_time(tmp_path: Path) -> None:
    other = sole_command(tmp_path)
    with sole_command(tmp_path), pytest.raises(VicinalError, match="another `vicinal tune`"):
        other.__enter__()
    with sole_command(tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("eth0/rx-usecs", -1, "cannot be -1: use a whole number from 0 to 4294967295"),
        ("eth0/rx-usecs", 1 << 32, "cannot be 4294967296"),
        ("eth0/rx-usecs", "on", "cannot be 'on'"),
        ("eth0/adaptive-rx", 1, "cannot be 1: use one of off, on"),
        ("eth0/channels-combined", 5, "cannot be 5: use a whole number from 0 to 4"),
        ("eth0/rx-usecs-high", 5, "the driver of eth0 has no rx-usecs-high: use rx-usecs, "),
        ("eth1/rx-usecs", 5, "eth1 has none"),
        ("eth1/channels-combined", 1, "use channels-rx, channels-tx"),
        ("eth0/irq-affinity", "0", "eth0 has no interrupts of its own"),
        ("eth0/rx-usec", 5, "there is no knob 'eth0/rx-usec': see the list of `vicinal tune show`"),
        ("rx-usecs", 5, "there is no knob 'rx-usecs'"),
        ("eth9/rx-usecs", 5, "there is no interface 'eth9'"),
        ("mlx5_0/adaptive-moderation", "on", "there is no RDMA device 'mlx5_0'"),
    ],
)
def test_what_cannot_be_is_said(
    host: TunedHost, applier: Applier, name: str, value: Value, message: str
) -> None:
    with pytest.raises(VicinalError) as refused:
        apply(applier, {"eth0/tx-usecs": 7, name: value})
    assert message in str(refused.value)
    assert card(host).coalescing("eth0") == BEFORE
    assert not applier.operations()


def test_queues_are_set_before_what_they_undo(applier: Applier) -> None:
    with applier.lasting() as work:
        work.apply({"eth0/rx-usecs": 10, "eth0/channels-combined": 2})
    (operation,) = applier.operations()
    assert list(operation.changes) == ["eth0/channels-combined", "eth0/rx-usecs"]


def with_interrupts(host: TunedHost) -> Path:
    """Give eth0 the interrupts 24 and 25; returns the fake /proc/irq."""
    network(host).found = [Link("eth0", 2, "virtio", "virtio2")]
    root = host.system.root
    (root / "sys/bus/virtio/devices").mkdir(parents=True)
    (root / "sys/devices/pci/virtio2").mkdir(parents=True)
    (root / "sys/bus/virtio/devices/virtio2").symlink_to("../../../devices/pci/virtio2")
    (root / "sys/devices/pci/msi_irqs").mkdir()
    for number, processors in ((24, "0-1"), (25, "1")):
        (root / f"sys/devices/pci/msi_irqs/{number}").write_text("")
        interrupt = root / f"proc/irq/{number}"
        interrupt.mkdir(parents=True)
        (interrupt / "smp_affinity_list").write_text(f"{processors}\n")
    return root / "proc/irq"


def test_interrupts_go_to_processors_and_back(host: TunedHost, applier: Applier) -> None:
    interrupts = with_interrupts(host)
    knob = knob_named(host, "eth0/irq-affinity")
    assert knob.read() == "0-1 / 1"
    assert knob.values[0] == "0-1"
    with applier.lasting() as work:
        work.apply({"eth0/irq-affinity": "1,0 / 0"})
    assert knob.read() == "0-1 / 0"
    with applier.lasting() as work:
        work.apply({"eth0/irq-affinity": 1})
    assert (interrupts / "24/smp_affinity_list").read_text() == "1\n"
    applier.restore()
    assert knob.read() == "0-1 / 1"
    for wrong in ("", "a", "0 / 1 / 0", "0-", "-1", "0/1"):
        with pytest.raises(VicinalError, match="irq-affinity cannot be"):
            knob.check(wrong)


def test_interrupts_stay_where_they_are_if_one_cannot_be_moved(host: TunedHost) -> None:
    interrupts = with_interrupts(host)
    # Root can read, but not write, the affinity of interrupts that the kernel manages itself.
    managed = os.memfd_create("managed", os.MFD_ALLOW_SEALING)
    os.write(managed, b"1\n")
    fcntl.fcntl(managed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    (interrupts / "25/smp_affinity_list").unlink()
    (interrupts / "25/smp_affinity_list").symlink_to(f"/proc/self/fd/{managed}")
    knob = knob_named(host, "eth0/irq-affinity")
    try:
        with pytest.raises(VicinalError, match="refuses to send interrupt 25 of eth0"):
            knob.write("1 / 0")
        assert knob.read() == "0-1 / 1"
    finally:
        os.close(managed)


def test_trying_tells_what_a_driver_does(host: TunedHost, applier: Applier, tmp_path: Path) -> None:
    card(host).put("eth0", ignores=["rx-frames"], refuses=["tx-usecs"], most={"rx-usecs": 60})
    found = {part: try_knob(applier, knob_named(host, f"eth0/{part}")) for part in BEFORE}
    assert {part: each.ability for part, each in found.items()} == {
        "rx-usecs": Ability.SETTABLE,
        "rx-frames": Ability.IGNORED,
        "adaptive-rx": Ability.SETTABLE,
        "tx-usecs": Ability.REFUSED,
    }
    assert found["rx-usecs"].taken == (0, 1, 2, 5, 10, 20, 50)
    assert found["rx-usecs"].why == "100 becomes 60; 200 becomes 60"
    assert found["adaptive-rx"].taken == ("off", "on")
    assert found["rx-frames"].why == "it stays 88 without an error"
    # A knob that may take the link down is tried with one value only.
    queues = try_knob(applier, knob_named(host, "eth0/channels-combined"))
    assert queues.taken == (1, 4)
    assert card(host).coalescing("eth0") == BEFORE
    assert card(host).channels("eth0")["combined"] == 4
    assert not (tmp_path / "journal").exists()


def test_what_searches_writes_through_the_journal(host: TunedHost, applier: Applier) -> None:
    with applier.temporarily() as work:
        knob = JournaledKnob(work, applier.knob("eth0/rx-usecs"), (0, 10))
        knob.write(10)
        assert (knob.read(), has(host, "rx-usecs")) == (10, 10)
        assert applier.operations()[0].changes["eth0/rx-usecs"].before == 3
        card(host).put("eth0", refuses=["rx-usecs"])
        with pytest.raises(VicinalError, match="refuses"):
            knob.write(0)
        card(host).put("eth0", refuses=[])
    assert has(host, "rx-usecs") == 3


def test_devices_say_what_they_lack(host: TunedHost) -> None:
    first, second = devices(host)
    assert [knob.name for knob in first.knobs] == [
        "eth0/channels-combined",
        "eth0/adaptive-rx",
        "eth0/rx-usecs",
        "eth0/rx-frames",
        "eth0/tx-usecs",
    ]
    assert "pkt-rate-high" in first.missing
    assert [knob.name for knob in second.knobs] == ["eth1/channels-rx", "eth1/channels-tx"]
    assert "no interrupt moderation" in second.lacks
    with pytest.raises(VicinalError, match="there is no interface 'eth9': name one of eth0, eth1"):
        devices(host, ["eth9"])


def test_rdma_devices_are_asked_through_their_program(host: TunedHost, applier: Applier) -> None:
    root = host.system.root
    (root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    program = root / "programs/rdma"
    state = root / "dim"
    state.write_text("on")
    program.write_text(
        f"""#!/bin/sh
[ "$1" = -j ] && echo '[{{"ifindex":0,"adaptive-moderation":"'$(cat {state})'"}}]' && exit
[ "$5" = broken ] && exit 1
echo "$5" >{state}
"""
    )
    program.chmod(0o755)
    with applier.lasting() as work:
        work.apply({"mlx5_0/adaptive-moderation": "off"})
    assert state.read_text() == "off\n"
    applier.restore()
    assert state.read_text() == "on\n"
    assert [device.name for device in devices(host)] == ["eth0", "eth1", "mlx5_0"]


def test_the_own_connection_is_left_alone(host: TunedHost, tmp_path: Path) -> None:
    here = network(host)
    here.found = [
        Link("eth0", 2),
        Link("eth1", 3),
        Link("bond0", 4, below=("eth0",)),
        Link("br0", 5, below=("bond0",)),
        Link("eth2", 6),
    ]
    here.defaults = ["eth1"]
    here.routes = {"192.0.2.9": "br0", "fe80::1": "eth2"}
    assert set(own_connection(host, "")) == {"eth1"}
    found = own_connection(host, "192.0.2.9 50022 192.0.2.1 22")
    assert set(found) == {"eth0", "eth1", "bond0", "br0"}
    assert found["br0"] == "it carries this session, which comes from 192.0.2.9"
    assert "bond0 is on it" in found["eth0"]
    assert "eth2" in own_connection(host, "fe80::1%eth2 50022 fe80::2 22")
    assert set(own_connection(host, "nonsense")) == {"eth1"}
    applier = Applier(host, tmp_path / "journal", found)
    with pytest.raises(VicinalError, match="is left alone: bond0 is on it"):
        applier.knob("eth0/rx-usecs")
    assert applier.knob("eth2/rx-usecs")
