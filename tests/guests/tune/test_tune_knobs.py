"""Knobs of network interfaces with the real kernel: cards that QEMU emulates, and a virtio-net.

One guest runs all steps (tune_inside.py), and the tests check their outcomes. netdevsim, the
kernel's interface for tests, claims to have every part of coalescing, and forgets five.
"""

from pathlib import Path
from typing import Any

import pyroute2
import pytest
from vf_guest import Work, run_inside

from vicinal.labs.tune.knobs.coalescing import PARTS

FORGOTTEN = (
    *("tx-aggr-max-frames", "tx-aggr-max-bytes", "tx-aggr-time-usecs"),
    *("cqe-mode-rx", "cqe-mode-tx"),
)
"""Parts that netdevsim of Linux 6.12 claims to have, accepts without error, and does not keep."""

Steps = dict[str, dict[str, Any]]

WORK = Work(
    "tune",
    ("igb", "e1000e", "netdevsim", "virtio_net", "virtio_pci"),
    ("tune_inside.py",),
    (Path(pyroute2.__file__).parent,),
    (
        *("-netdev", "hubport,id=second,hubid=1", "-device", "e1000e,netdev=second,romfile="),
        *("-netdev", "hubport,id=third,hubid=2", "-device", "virtio-net-pci,netdev=third,romfile="),
    ),
    processors="2",
)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    lines = run_inside(tmp_path_factory.mktemp("guest"), print, WORK)
    found = {line["step"]: line for line in lines}
    assert "end" in found, f"the last step was {lines[-1]}"
    return found


def tried(steps: Steps, driver: str) -> dict[str, Any]:
    step = steps[f"try {steps['names']['names'][driver]}"]
    assert step["after"] == step["before"]
    found: dict[str, Any] = step["found"]
    return found


def missing(steps: Steps, driver: str) -> list[str]:
    found: list[str] = steps[f"lacks {steps['names']['names'][driver]}"]["missing"]
    return found


def test_igb_has_times_and_no_frames(steps: Steps) -> None:
    assert {"rx-frames", "adaptive-rx", "pkt-rate-low"} <= set(missing(steps, "igb"))
    ability, why, taken = tried(steps, "igb")["rx-usecs"]
    assert ability == "yes"
    assert 10 in taken
    # Its driver has modes of its own up to 3, and no times below 10.
    assert 5 not in taken
    assert "rx-usecs 5" in why


def test_a_set_of_which_half_is_refused_leaves_nothing(steps: Steps) -> None:
    assert "has no rx-frames: use rx-usecs" in steps["by frames"]["error"]
    assert "refuses rx-usecs 99999: invalid argument" in steps["out of range"]["error"]
    assert steps["refused"]["after"] == steps["refused"]["before"]


def test_igb_is_set_and_restored(steps: Steps) -> None:
    assert steps["apply"]["error"] == ""
    applied = steps["applied"]
    assert (applied["after"]["rx-usecs"], applied["after"]["irq-affinity"]) == (20, "1")
    # As another program reports it.
    assert "rx-usecs: 20\n" in applied["text"].replace("\t", " ")
    assert steps["restored"]["after"] == steps["restored"]["before"]
    assert len(steps["restored"]["said"]) == 2


def test_exported_scripts_set_and_restore_igb(steps: Steps) -> None:
    """By the guest's own shell and ethtool; its sed and sort are busybox's."""
    step = steps["exported"]
    card = steps["names"]["names"]["igb"]
    (status, said, found), (verified, complaints, _), (restored, _, after) = step["steps"]
    assert (status, found["rx-usecs"], found["irq-affinity"]) == (0, 20, "1"), said
    assert f"{card} rx-usecs is 20, and was {step['before']['rx-usecs']}" in said
    assert (verified, complaints, restored) == (0, "", 0)
    assert after == step["before"]


def test_a_killed_command_leaves_nothing(steps: Steps) -> None:
    killed = steps["killed after 1"]
    assert (killed["signal"], killed["changed"]) == (9, 2)
    assert len(killed["said"]) == 3
    assert killed["after"] == killed["before"]


def test_virtio_of_qemu_refuses_to_gather_packets(steps: Steps) -> None:
    """Its driver shows rx-frames, and refuses each value other than the present one."""
    ability, why, taken = tried(steps, "virtio_net")["rx-frames"]
    assert (ability, taken) == ("not supported", []), why
    assert "refuse" in why
    assert "rx-usecs-low" in missing(steps, "virtio_net")


def test_e1000e_takes_times(steps: Steps) -> None:
    ability, _, taken = tried(steps, "e1000e")["rx-usecs"]
    assert ability == "yes"
    assert len(taken) >= 2
    assert "rx-frames" in missing(steps, "e1000e")


def test_netdevsim_has_every_part(steps: Steps) -> None:
    assert not set(missing(steps, "netdevsim")) & set(PARTS)
    found = tried(steps, "netdevsim")
    abilities = {part: found[part][0] for part in PARTS}
    forgotten = {part for part, ability in abilities.items() if ability == "accepts but ignores"}
    assert forgotten == set(FORGOTTEN)
    for part in set(PARTS) - forgotten:
        assert abilities[part] == "yes", found[part]
        # All values worth trying, and the former value if it is one of them.
        assert found[part][1] == ""
        assert len(found[part][2]) >= 2


def test_every_part_that_netdevsim_keeps_is_set_at_once_and_restored(steps: Steps) -> None:
    assert steps["apply all"]["error"] == ""
    applied = steps["all applied"]
    wanted = {name.partition("/")[2]: value for name, value in applied["wanted"].items()}
    assert set(wanted) == set(PARTS) - set(FORGOTTEN)
    assert applied["after"] | wanted == applied["after"]
    # As another program reports them.
    words = applied["text"].split()
    for part, value in wanted.items():
        if value != "on":
            assert words[words.index(f"{part}:") + 1] == str(value)
    assert len(steps["all restored"]["said"]) == len(wanted)
    assert steps["all restored"]["after"] == steps["all restored"]["before"]


def test_a_part_that_is_ignored_keeps_all_others_from_being_set(steps: Steps) -> None:
    step = steps["none applied"]
    assert step["ignored"] in FORGOTTEN
    assert step["ignored"] in steps["one is ignored"]["error"]
    assert "ignores" in steps["one is ignored"]["error"]
    assert step["after"] == step["before"]


def test_a_command_killed_half_way_through_all_parts_leaves_nothing(steps: Steps) -> None:
    half = (len(PARTS) - len(FORGOTTEN)) // 2
    killed = steps[f"killed after {half}"]
    assert (killed["signal"], killed["changed"]) == (9, half)
    assert killed["after"] == killed["before"]


def test_what_is_gone_took_its_values_along(steps: Steps) -> None:
    card = steps["names"]["names"]["igb"]
    assert steps["gone"]["said"] == [f"{card} no longer exists, so {card}/rx-usecs is not restored"]
    assert not steps["gone"]["journal"]
