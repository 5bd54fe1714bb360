"""SR-IOV VFs with the real kernel, on an emulated Ethernet card (igb) in a guest.

One guest runs all steps (vf_inside.py). Another runs clusters of containers on VFs at
the same time (vf_cluster_inside.py). The tests check the steps' outcomes. Tests of InfiniBand
cards use fakes: tests/python/host/test_vfs_infiniband.py.
"""

import errno
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from vf_guest import CLUSTERS, VFS, run_inside

Steps = dict[str, dict[str, Any]]

FIRST, SECOND = 0, 1
MAC = "52:54:00:aa:bb:01"


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    directory = tmp_path_factory.mktemp("guest")
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(run_inside, directory, print, each) for each in (VFS, CLUSTERS)]
    lines = [line for each in runs for line in each.result()]
    found = {line["step"]: line for line in lines}
    print(found["kernel version"])
    assert len(found) == len(lines), "two steps have one name"
    for last in ("end", "end of the cluster"):
        assert last in found, f"the last steps were {[each.result()[-1] for each in runs]}"
    return found


def vf(steps: Steps, step: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = steps[step]["card"]["vfs"][number]
    return found


def settings(steps: Steps, step: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(steps[step]["stdout"])[0]["vfinfo_list"][number]
    return found


def test_vfs_are_made_up_to_the_firmware_s_limit(steps: Steps) -> None:
    assert steps["fresh"]["card"]["most"] == 7
    assert "eth0 has no virtual functions" in steps["assign without VFs"]["error"]
    assert "whose firmware allows 7" in steps["create too many"]["error"]
    assert steps["create"]["error"] == ""
    made = steps["created"]["card"]
    assert made["owner"] == "demo"
    assert [each["driver"] for each in made["vfs"]] == ["igbvf", "igbvf"]
    assert len({each["group"] for each in made["vfs"]}) == 2


def test_a_vf_gets_what_was_set_and_nothing_else(steps: Steps) -> None:
    assert steps["assign"]["error"] == ""
    before, after = (settings(steps, step, FIRST) for step in ("before", "configured"))
    assert (after["address"], after["spoofchk"], after["trust"]) == (MAC, False, True)
    assert after["rate"] == {"max_tx": 100, "min_tx": 0}
    assert after["vlan_list"] == before["vlan_list"]
    assert after["link_state"] == before["link_state"]
    # The VF's driver has the address too.
    assert steps["address"]["address"] == MAC


def test_a_setting_that_the_driver_refuses_is_named_and_all_undone(steps: Steps) -> None:
    refused = steps["assign without a link"]["error"]
    assert "vf 0 max_tx_rate 100`: RTNETLINK answers: Invalid argument" in refused
    assert settings(steps, "undone", FIRST) == settings(steps, "before", FIRST)


def test_names_and_addresses_do_not_clash(steps: Steps) -> None:
    assert f"has the hardware address {MAC} already" in steps["a taken address"]["error"]
    assert "is assigned to demo" in steps["another's VF"]["error"]


def test_a_vf_whose_interface_is_up_is_left_alone(steps: Steps) -> None:
    assert "is up" in steps["release while up"]["error"]


def test_an_interface_in_a_container_s_namespace_is_left_alone(steps: Steps) -> None:
    assert steps["moved"]["status"] == 0
    away = vf(steps, "away", SECOND)
    assert (away["driver"], away["interfaces"]) == ("igbvf", [])
    assert away["use"] == "its interface, of driver igbvf, is in another network namespace"
    assert "in another network namespace" in steps["assign while away"]["error"]


def test_a_vf_that_a_job_s_user_hides_comes_back_as_its_driver_makes_it(
    steps: Steps,
) -> None:
    """From a network namespace of a process outside of the job, by its PCI address."""
    assert "is in no VLAN of the card, and" in steps["grant without a VLAN"]["error"]
    assert steps["grant"]["error"] == ""
    before, granted, after = (
        settings(steps, step, SECOND) for step in ("before granting", "granted", "after granting")
    )
    assert granted["address"].startswith("02:")
    assert (granted["spoofchk"], granted["trust"], granted["vlan_list"]) == (
        True,
        False,
        before["vlan_list"],
    )
    assert steps["another address"]["status"] != 0  # the card's own setting takes precedence
    for words in ("mtu 1400", "promisc on", "up"):
        assert steps[f"as root there: set vf0 {words}"]["status"] == 0
    assert steps["VLAN there"]["status"] == 0, steps["VLAN there"]
    assert vf(steps, "hidden", SECOND)["interfaces"] == []
    assert steps["release what is hidden"]["error"] == ""
    assert steps["notes"]["notes"] == []
    assert "vf0" not in steps["what the thief has"]["text"]
    assert "tagged" not in steps["what the thief has"]["text"]
    back = vf(steps, "back", SECOND)
    assert (back["driver"], back["owner"], len(back["interfaces"])) == ("igbvf", "", 1)
    [link] = json.loads(steps["as its driver makes it"]["stdout"])
    assert (link["mtu"], link["promiscuity"], link["address"] != granted["address"]) == (
        1500,
        0,
        True,
    )
    assert "UP" not in link["flags"]
    # igb shows the address that the VF's driver has chosen since.
    assert after.pop("address") != granted["address"]
    assert after == {name: value for name, value in before.items() if name != "address"}


def test_a_killed_epilog_s_work_is_done_by_the_next(steps: Steps) -> None:
    assert steps["grant again"]["error"] == ""
    recalled = vf(steps, "recalled", SECOND)
    assert (recalled["driver"], recalled["owner"]) == ("", "slurm-7")
    assert steps["release what was recalled"]["error"] == ""
    back = vf(steps, "back again", SECOND)
    assert (back["driver"], back["owner"], len(back["interfaces"])) == ("igbvf", "", 1)
    assert steps["jobs"]["files"] == []


def test_interrupt_moderation_is_set_and_read_back(steps: Steps) -> None:
    assert steps["moderation"]["found"]["rx-usecs"] == "3"
    assert "rx-frames" not in steps["moderation"]["found"]
    assert steps["moderate"]["error"] == ""
    assert "rx-usecs: 10\n" in steps["moderated"]["stdout"].replace("\t", " ")
    # igbvf supports only times.
    assert "refuses rx-frames 10" in steps["moderate by frames"]["error"]
    assert "unsupported parameter" in steps["moderate by frames"]["error"]


def test_vfio_gets_a_vf_and_whoever_has_it_open_keeps_it(steps: Steps) -> None:
    assert steps["assign to vfio"]["error"] == ""
    assert vf(steps, "on vfio", SECOND)["driver"] == "vfio-pci"
    assert vf(steps, "on vfio", SECOND)["use"] == ""
    opened = vf(steps, "opened", SECOND)
    assert opened["use"] == "a program has it open through vfio-pci"
    assert len(opened["programs"]) == 1
    assert opened["programs"][0].startswith("python3 (")
    assert "is in use: a program has it open" in steps["release while open"]["error"]
    assert "is assigned to" in steps["remove while open"]["error"]
    assert steps["kernel"]["error"] == errno.EBUSY


def test_a_released_vf_is_its_driver_s_again(steps: Steps) -> None:
    assert steps["release from vfio"]["error"] == ""
    back = vf(steps, "back from vfio", SECOND)
    assert (back["driver"], back["owner"]) == ("igbvf", "")
    assert steps["release"]["error"] == ""
    after = settings(steps, "after", FIRST)
    assert after["address"] != MAC
    assert (after["spoofchk"], after["trust"], after["rate"]["max_tx"]) == (True, False, 0)


def test_what_a_killed_command_left_is_released(steps: Steps) -> None:
    assert steps["claim"]["answer"] == {"taken": []}
    assert steps["bind"]["answer"] == {}
    left = vf(steps, "killed", SECOND)
    assert (left["driver"], left["owner"]) == ("vfio-pci", "killed")
    assert steps["remove what is assigned"]["error"] != ""
    assert steps["release what was killed"]["error"] == ""


def test_vfio_is_handed_to_the_user_who_asked_and_to_no_other(steps: Steps) -> None:
    assert steps["node"]["owner"] == 1000
    assert steps["open as 1000"]["status"] == 0, steps["open as 1000"]["stderr"]
    assert "PermissionError" in steps["open as 1001"]["stderr"]
    refused = steps["claim of another user"]["answer"]["error"][0]
    assert "belongs to killed of user 1000" in refused


def test_what_an_administrator_put_on_vfio_goes_back_to_it(steps: Steps) -> None:
    assert steps["assign what is on vfio"]["error"] == ""
    assert steps["release to vfio"]["error"] == ""
    assert vf(steps, "released to vfio", SECOND)["driver"] == "vfio-pci"


def test_a_rate_of_opennebula_s_hooks_is_not_undone_by_its_drivers(steps: Steps) -> None:
    for action in ("pre", "clean"):
        assert (steps[f"hook's {action}"]["status"], steps[f"hook's {action}"]["said"]) == (0, "")
    assert steps["owner of what is hooked"]["owner"] == "one-net-7"
    before, hooked, post, after = (
        settings(steps, step, SECOND) | {"tx_rate": None}  # if there is a rate, ip shows it twice
        for step in ("before hooks", "hooked", "after post", "after hooks")
    )
    assert hooked == before | {"rate": {"max_tx": 200, "min_tx": 0}}
    assert steps["post"]["status"] == 0, steps["post"]["stderr"]
    assert (post["address"], post["vlan_list"][0]["vlan"], post["trust"]) == (MAC, 5, True)
    assert post["rate"] == hooked["rate"]
    # Neither the driver's own settings nor the VF's owner are restored.
    assert after == post | {"rate": before["rate"]}
    assert vf(steps, "after clean", SECOND)["driver"] == "vfio-pci"
    assert vf(steps, "after clean", SECOND)["owner"] == ""
    assert steps["node after hooks"]["owner"] == 1000


def test_nothing_is_left(steps: Steps) -> None:
    assert steps["remove"]["error"] == ""
    assert steps["removed"]["card"]["vfs"] == []
    assert json.loads(steps["records"]["text"]) == {"physical": {}, "vfs": {}}


def test_a_cluster_s_containers_have_a_vf_each(steps: Steps) -> None:
    made = ["vfs/0000:01:00.0", "vf/node0", "vf/node1", "containers/main"]
    made += ["node/node0", "interface/node0", "node/node1", "interface/node1"]
    assert steps["plan"]["steps"] == [f"create {key}" for key in made]
    assert steps["cluster up"]["error"] == ""
    assert steps["plan of what is up"]["steps"] == [f"keep {key}" for key in made]
    vfs = steps["VFs of containers"]["card"]["vfs"]
    assert [each["owner"] for each in vfs] == ["vicinal.lab.node0", "vicinal.lab.node1"]
    assert all("in another network namespace" in each["use"] for each in vfs)
    by_name = {each["ifname"]: each for each in json.loads(steps["addresses"]["stdout"])}
    assert set(by_name) == {"lo", "eth0", "eth1"}
    assert by_name["eth1"]["addr_info"][0]["local"] == "10.1.0.1"
    card = json.loads(steps["VFs as the card has them"]["stdout"])[0]["vfinfo_list"]
    assert by_name["eth1"]["address"] == card[0]["address"]
    assert card[0]["address"].startswith("02:")
    assert [each["trust"] for each in card] == [True, True]


def test_messages_go_over_the_vfs(steps: Steps) -> None:
    assert steps["ping"]["status"] == 0, steps["ping"]
    card = json.loads(steps["VFs as the card has them"]["stdout"])[0]["vfinfo_list"]
    (neighbour,) = json.loads(steps["neighbours"]["stdout"])
    assert (neighbour["dst"], neighbour["lladdr"]) == ("10.1.0.2", card[1]["address"])
    assert steps["ping again"]["status"] == 0, steps["ping again"]


def test_vfs_are_the_host_s_while_containers_are_stopped(steps: Steps) -> None:
    assert steps["stop"]["error"] == ""
    pieces = steps["stopped"]["pieces"]
    assert {pieces[f"interface/node{number}"] for number in (0, 1)} == {"stopped"}
    assert len(steps["interfaces while stopped"]["names"]) == 4  # lo, the card, both VFs
    assert steps["start"]["error"] == ""


def test_a_cluster_whose_head_was_killed_is_repaired(steps: Steps) -> None:
    pieces = steps["without its head"]["pieces"]
    assert pieces["containers/main"].startswith("broken")
    assert pieces["vf/node0"] == "ready"
    assert steps["up without its head"]["error"] == ""
    assert set(steps["repaired"]["pieces"].values()) == {"ready"}


@pytest.mark.parametrize("at", ["down", "vf/node1", "interface/node1"])
def test_nothing_is_left_of_a_cluster(steps: Steps, at: str) -> None:
    if at != "down":
        assert steps[f"killed at {at}"]["status"] == -9, steps[f"killed at {at}"]
        pieces = steps[f"after being killed at {at}"]["pieces"]
        assert pieces[at] == "broken a command was interrupted while it changed this"
    assert steps["cluster down" if at == "down" else f"down after {at}"]["error"] == ""
    left = steps[f"after {at}"]
    assert left["found"] == []
    assert json.loads(left["records"]) == {"physical": {}, "vfs": {}}
    assert left["interfaces"] == ["eth0", "lo"]


def test_a_container_has_a_whole_card(steps: Steps) -> None:
    assert "is in use: its interface eth0 is up" in steps["up with a card in use"]["error"]
    assert steps["after a refusal"]["found"] == []
    assert steps["up with a card"]["error"] == ""
    assert steps["interfaces without the card"]["names"] == ["lo"]
    (interface,) = json.loads(steps["the card's address"]["stdout"])
    assert interface["address"] == "52:54:00:00:01:01"
    assert interface["addr_info"][0]["local"] == "10.2.0.1"
    assert steps["down with a card"]["error"] == ""
    left = steps["after a card"]
    assert (left["found"], left["interfaces"]) == ([], ["eth0", "lo"])
