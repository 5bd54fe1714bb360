"""The requests to a cluster's hosts while a job runs in their nodes. The test needs no host."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts import entered
from vicinal.cluster.hosts.entered import EnteredHostParts
from vicinal.cluster.hosts.guests import FarGuests, record_of
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.nodes.job_nodes import JobGuests, Launchers
from vicinal.mpi.job import Job

NODES = {"here": ("vm0",), "there": ("vm1", "vm2")}


class FakeConnection:
    """An agent that records its requests and has no region."""

    asked: ClassVar[list[tuple[str, StrEnum, Mapping[str, Any]]]] = []
    traffic: ClassVar[Any] = None
    closed: ClassVar[list[str]] = []

    def __init__(self, host: str) -> None:
        self.name = host

    def hello(self) -> None: ...

    def ask(self, request: StrEnum, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.asked.append((self.name, request, values or {}))
        return {"traffic": self.traffic}

    def hang_up(self) -> None: ...

    def close(self) -> None:
        self.closed.append(self.name)


@pytest.fixture(autouse=True)
def _fake_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entered, "HostPartConnection", FakeConnection)
    monkeypatch.setattr(FakeConnection, "asked", [])
    monkeypatch.setattr(FakeConnection, "closed", [])


def records() -> list[HostRecord]:
    return [HostRecord("lab", host, nodes, nodes, (), "", "") for host, nodes in NODES.items()]


@pytest.mark.parametrize(("ranks", "counts"), [(None, [None, None]), (5, [2, 3]), (1, [1, 0])])
def test_each_host_is_asked_for_room_for_its_own_ranks(
    ranks: int | None, counts: list[int | None]
) -> None:
    host_parts = EnteredHostParts(records())
    host_parts.enter(["vm0", "vm1", "vm2"], ranks, heap=True)
    asked = {host: values for host, _, values in FakeConnection.asked}
    assert [asked[host]["ranks"] for host in NODES] == counts
    assert all(values["heap"] for values in asked.values())
    assert asked["there"]["host_part"] == records()[1].host_part
    host_parts.check()  # too soon after the last request to ask again
    assert len(FakeConnection.asked) == len(NODES)
    host_parts.close()
    host_parts.close()
    assert FakeConnection.closed == list(NODES)


@pytest.mark.parametrize("said", [{}, {"pairs": "none"}])
def test_what_no_region_says_is_refused(monkeypatch: pytest.MonkeyPatch, said: object) -> None:
    host_parts = EnteredHostParts(records())
    host_parts.enter(["vm0", "vm1", "vm2"], None, heap=False)
    assert host_parts.traffic(7) is None
    monkeypatch.setattr(FakeConnection, "traffic", said)
    with pytest.raises(VicinalError, match="answer about its region is malformed"):
        host_parts.traffic(7)


def test_a_job_in_vms_of_several_hosts_starts_in_the_first_guest() -> None:
    class Ways:
        def in_first_guest(self, _: Job, guests: JobGuests) -> list[str]:
            return [each.name for each in guests.guests]

    ways: Any = Ways()
    launchers: Launchers = ways
    guests = FarGuests("lab", records())
    started: Any = guests.start_job(Job(["/bin/true"], 3), launchers)
    assert started == ["vm0", "vm1", "vm2"]
    assert guests.has("vm2")
    assert not guests.has("vm3")
    assert "vm1" in " ".join(guests.exec_command("vm1", ["true"]))


def test_a_node_that_no_host_has_is_named() -> None:
    assert record_of(records(), "vm2").host == "there"
    with pytest.raises(VicinalError, match="no host of the cluster has a node 'vm9'"):
        FarGuests("lab", records()).exec_command("vm9", ["true"])
