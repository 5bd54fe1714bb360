"""Studies adapted to machines that differ from the paper's: by rules, and only from facts."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.reading import part_cluster
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.labs.study.file.adapt import Fit, adapt, fit_of
from vicinal.labs.study.file.host_facts import Card, HostFacts, facts_from_json, facts_to_json
from vicinal.labs.study.file.json_form import study_from_json, study_to_json
from vicinal.labs.study.file.model import Correction, Study, Workload
from vicinal.labs.study.file.reading import parse_study
from vicinal.labs.study.file.shipped import list_studies, load_study
from vicinal.labs.study.file.trials import trials_needed
from vicinal.labs.study.running.plan import selected
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Tools

SMALL = HostFacts(
    cores=2,
    sockets=1,
    numa_nodes=1,
    memory_bytes=16 << 30,
    runtimes=("crun",),
    accelerator=Accelerator.KVM,
)
LARGE = HostFacts(
    cores=24,
    sockets=2,
    numa_nodes=2,
    memory_bytes=512 << 30,
    runtimes=("crun", "runc", "bubblewrap"),
    accelerator=Accelerator.KVM,
    cards=(Card("ib0", 63, True), Card("eth0", 64, False)),
    devices=("0000:3b:00.0",),
    rdma=("mlx5_0",),
    hosts=tuple(f"node{number}" for number in range(8)),
)
EMULATED = replace(SMALL, accelerator=Accelerator.TCG)

HEAD = """\
name: mine
title: Mine
question: What?
source: us
"""
NETWORK = "{name: network, path: network, cluster: {nodes: [{name: n, count: 15}], region: none}}"
REGION = "{name: region, cluster: {nodes: [{name: n, count: 15}]}}"
LATENCY = "{name: latency, driver: record, operation: latency, quantity: latency, ranks: 14}"
COMPARED = "{comparisons: [{base: network, test: region}]}"


def study(
    *environments: str,
    workloads: tuple[str, ...] = (LATENCY,),
    design: str = COMPARED,
    published: str = "[]",
) -> Study:
    lines = [HEAD, "environments:"]
    lines += [f"  - {each}" for each in environments or (NETWORK, REGION)]
    lines += ["workloads:", *(f"  - {each}" for each in workloads)]
    lines += [f"design: {design}", f"published: {published}"]
    return parse_study(Path("mine.yaml"), "\n".join(lines))


def changes(adapted: Study) -> dict[str, str]:
    return {each.what: each.why for each in adapted.adaptations}


def group(adapted: Study, environment: str) -> Any:
    return adapted.environment(environment).cluster["nodes"][0]


def test_where_there_is_room_nothing_changes() -> None:
    whole = study()
    assert adapt(whole, LARGE) == whole
    assert fit_of(adapt(whole, LARGE)) is Fit.WHOLE


def test_fewer_nodes_and_ranks_on_fewer_cores() -> None:
    adapted = adapt(study(), SMALL)
    assert group(adapted, "region")["count"] == 2
    assert adapted.workload("latency").ranks == 2
    assert changes(adapted) == {
        "environment network: 2 nodes instead of 15": "at most one node for each core, and at "
        "least two nodes",
        "environment region: 2 nodes instead of 15": "at most one node for each core, and at "
        "least two nodes",
        "workload latency: 2 ranks instead of 14": "at most one rank for each core if ranks "
        "poll, four if they do not, and at least 2",
    }
    assert fit_of(adapted) is Fit.ADAPTED
    # A machine with one core still gets two nodes and two ranks: fewer would measure nothing.
    assert adapt(study(), replace(SMALL, cores=1)).workload("latency").ranks == 2
    # Pairs need even numbers: of seven cores, one is idle.
    assert adapt(study(), replace(SMALL, cores=7)).workload("latency").ranks == 6


def test_ranks_that_do_not_poll_share_cores() -> None:
    blocking = "{name: region, progress: block, cluster: {nodes: [{name: n, count: 15}]}}"
    only = study(blocking, design="{comparisons: []}")
    assert adapt(only, SMALL).workload("latency").ranks == 8
    # The other environment's ranks poll, and both environments get the same number of ranks.
    assert adapt(study(NETWORK, blocking), SMALL).workload("latency").ranks == 2


def vms(more: str = "", nodes: str = "", name: str = "region") -> str:
    inner = f"nodes: [{{name: vm, backend: vm{nodes}}}]{more}"
    return f"{{name: {name}, cluster: {{{inner}}}}}"


def test_processors_and_placement() -> None:
    reserved = ", placement: {policy: core, reserve: 1}"
    vm = study(NETWORK, vms(reserved, ", count: 15"))
    adapted = adapt(vm, SMALL)
    assert group(adapted, "region")["count"] == 2
    assert adapted.environment("region").cluster["placement"] == {"policy": "core"}
    assert "environment region: no core is reserved for the host" in changes(adapted)
    adapted = adapt(vm, replace(SMALL, cores=8))
    assert group(adapted, "region")["count"] == 7
    assert adapted.environment("region").cluster["placement"]["reserve"] == 1
    # The machine does not have these sockets.
    by_socket = study(NETWORK, vms(", placement: {policy: socket}", ", count: 2, cpus: 8"))
    assert adapt(by_socket, LARGE).adaptations == ()
    adapted = adapt(by_socket, SMALL)
    assert group(adapted, "region") == {"name": "vm", "backend": "vm", "count": 2, "cpus": 1}
    assert adapted.environment("region").cluster["placement"] == {"policy": "core"}
    adapted = adapt(by_socket, replace(SMALL, cores=1))
    assert adapted.environment("region").cluster["placement"] == {"policy": "none"}


def test_memory_of_vms_that_are_up_side_by_side() -> None:
    wanted = ", count: 2, memory: 6G"
    both = study(vms(nodes=wanted, name="region"), vms(", region: none", wanted, name="network"))
    adapted = adapt(both, SMALL)
    assert [group(adapted, name)["memory"] for name in ("region", "network")] == ["2048M", "2048M"]
    assert adapt(both, replace(SMALL, cores=16, memory_bytes=64 << 30)).adaptations == ()
    # Two environments with the same cluster need it only once.
    shared = study(vms(nodes=wanted, name="region"), vms(nodes=wanted, name="network"))
    assert group(adapt(shared, SMALL), "region")["memory"] == "4096M"


def test_what_a_host_does_not_have() -> None:
    vf = ", network: {vf: {card: CARD}}"
    sriov = study(NETWORK, vms(nodes=f", count: 2{vf}"))
    adapted = adapt(sriov, SMALL)
    why = "no card of this machine has verbs and virtual functions (SR-IOV)"
    assert adapted.unavailable == {"region": why}
    assert adapted.design.comparisons == ()
    assert "comparison of network with region: left out; region cannot be measured here" in changes(
        adapted
    )
    assert fit_of(adapted) is Fit.IN_PART
    assert adapted.environment("region").cluster == sriov.environment("region").cluster
    assert group(adapt(sriov, LARGE), "region")["network"] == {"vf": {"card": "ib0"}}
    whole = study(NETWORK, vms(nodes=", network: {device: 'ffff:ff:1f.7'}"))
    assert group(adapt(whole, LARGE), "region")["network"] == {"device": "0000:3b:00.0"}
    assert "network card with verbs" in adapt(whole, SMALL).unavailable["region"]
    none = replace(SMALL, accelerator=None, no_vms="no QEMU", runtimes=())
    adapted = adapt(study(NETWORK, vms()), none)
    assert adapted.unavailable["region"] == "no QEMU"
    assert "no container runtime is installed" in adapted.unavailable["network"]
    assert fit_of(adapted) is Fit.NOT
    verbs = "{name: network, path: network, variables: {FI_PROVIDER: verbs;ofi_rxm}, cluster: "
    verbs += "{nodes: [{name: n, backend: host}], region: none}}"
    assert adapt(study(verbs, REGION), replace(LARGE, rdma=())).unavailable == {
        "network": "this machine has no RDMA device with an active port"
    }
    debian = "{name: region, mpi: openmpi-debian, cluster: {nodes: [{name: n, backend: vm}]}}"
    lacking = adapt(study(NETWORK, debian), SMALL).unavailable
    assert lacking == {"region": "the image of virtual machines does not contain Debian's Open MPI"}


def test_other_hosts_have_to_be_named() -> None:
    hosts = ", hosts: [{name: HOST1}, {name: HOST2}, {name: HOST3}, {name: HOST4}]"
    far = study(NETWORK, vms(hosts, ", count: 8"))
    assert adapt(far, SMALL).unavailable == {
        "region": "it needs 4 hosts, and no host besides this one was named: "
        "name the hosts with --host"
    }
    adapted = adapt(far, replace(LARGE, hosts=("localhost", "other")))
    cluster = adapted.environment("region").cluster
    assert cluster["hosts"] == [{"name": "localhost"}, {"name": "other"}]
    assert (group(adapted, "region")["count"], group(adapted, "region")["host"]) == (
        4,
        ["localhost", "other"],
    )
    assert "environment region: 2 hosts instead of 4" in changes(adapted)
    named = study(NETWORK, vms(", hosts: [{name: a}, {name: b}]", ", count: 2"))
    assert adapt(named, SMALL).unavailable == {}


STAND_IN = (
    "{name: virtio, stands_for: sriov, path: network, cluster: "
    "{nodes: [{name: vm, backend: vm, count: 2}], region: none}}"
)
CONTAINERS = STAND_IN.replace("virtio", "containers").replace(", backend: vm", "")
SRIOV = (
    "{name: sriov, path: network, cluster: {nodes: [{name: vm, backend: vm, count: 2, "
    "network: {vf: {card: CARD}}}], region: none}}"
)
FIGURES = (
    "[{workload: latency, environment: sriov, value: 1.2}, {workload: latency, environment: "
    "region, value: 0.2}, {workload: latency, comparison: [sriov, region], value: 0.2, note: best}]"
)


def test_stand_ins_are_measured_under_their_own_names() -> None:
    whole = study(
        SRIOV,
        STAND_IN,
        CONTAINERS,
        REGION,
        design="{comparisons: [{base: sriov, test: region}], control: sriov}",
        published=FIGURES,
    )
    there = adapt(whole, LARGE)
    assert [each.name for each in there.environments] == ["sriov", "region"]
    assert there.published == whole.published
    assert fit_of(there) is Fit.WHOLE
    adapted = adapt(whole, replace(LARGE, cards=()))
    assert [each.name for each in adapted.environments] == ["sriov", "virtio", "region"]
    assert list(adapted.unavailable) == ["sriov"]
    assert "environment virtio: measured instead of sriov" in changes(adapted)
    assert [(each.base, each.test) for each in adapted.design.comparisons] == [("virtio", "region")]
    assert adapted.design.control == "virtio"
    of_sriov, of_region, ratio = adapted.published
    assert (of_sriov.environment, of_sriov.note) == ("virtio", "published of sriov")
    assert of_region == whole.published[1]
    assert (ratio.comparison, ratio.note) == (
        ("virtio", "region"),
        "best; published of sriov and region",
    )
    assert fit_of(adapted) is Fit.ADAPTED
    # Without virtual machines, the second stand-in is used.
    adapted = adapt(whole, replace(LARGE, cards=(), accelerator=None))
    assert [each.name for each in adapted.environments] == ["sriov", "containers", "region"]
    # Without both, all four environments are unavailable.
    adapted = adapt(whole, replace(LARGE, cards=(), accelerator=None, runtimes=()))
    assert set(adapted.unavailable) == {"sriov", "virtio", "containers", "region"}


def test_what_vicinal_does_not_do_yet_is_unavailable_everywhere() -> None:
    adapted = adapt(load_study("p3-table3"), LARGE)
    why = "a study does not set a card's interrupt moderation yet"
    assert adapted.unavailable == dict.fromkeys(
        ("native-rx88", "native-rx1", "vm-rx88", "vm-rx1"), why
    )
    assert fit_of(adapted) is Fit.IN_PART


def workload(driver: str, operation: str, ranks: int, options: str = "{}") -> str:
    return (
        f"{{name: w, driver: {driver}, operation: {operation}, quantity: time, ranks: {ranks}, "
        f"options: {options}}}"
    )


@pytest.mark.parametrize(
    ("given", "facts", "ranks", "options"),
    [
        (("npb", "CG", 32, "{class: C}"), SMALL, 2, {"class": "A"}),
        (("npb", "CG", 2, "{class: C}"), SMALL, 2, {"class": "C"}),
        (("npb", "CG", 32, "{class: C}"), replace(SMALL, cores=31), 16, {"class": "B"}),
        (("npb", "SP", 16, "{class: C}"), replace(SMALL, cores=15), 9, {"class": "B"}),
        (("npb", "CG", 32, "{class: Q}"), SMALL, 2, {"class": "Q"}),
        (("hpcc", "HPL", 8, "{size: 20000, grid: 2x4}"), SMALL, 2, {"size": 10000, "grid": "2x1"}),
        (("hpcc", "HPL", 8, "{size: 20000, grid: 1x8}"), SMALL, 2, {"size": 10000, "grid": "1x2"}),
        (("graph500", "BFS", 8, "{scale: 22}"), SMALL, 2, {"scale": 20}),
        (("transform", "inverse", 16, "{size: 512}"), SMALL, 2, {"size": 256}),
        (("lammps", "lj", 16, "{steps: 100, cells: 20}"), SMALL, 2, {"steps": 100, "cells": 20}),
    ],
)
def test_smaller_problems_for_fewer_ranks(
    given: tuple[str, str, int, str], facts: HostFacts, ranks: int, options: dict[str, Any]
) -> None:
    adapted = adapt(study(workloads=(workload(*given),)), facts).workload("w")
    assert (adapted.ranks, dict(adapted.options)) == (ranks, options)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (("npb", "CG", 2, "{class: C}"), {"class": "A"}),
        (("npb", "CG", 2, "{class: S}"), {"class": "S"}),
        (("hpcc", "HPL", 2, "{size: 8000}"), {"size": 1000}),
        (("graph500", "BFS", 2, "{scale: 20}"), {"scale": 16}),
        (("transform", "inverse", 2, "{size: 128}"), {"size": 64}),
        (("lammps", "lj", 2, "{steps: 100}"), {"steps": 10}),
    ],
)
def test_smaller_problems_for_emulated_vms(
    given: tuple[str, str, int, str], options: dict[str, Any]
) -> None:
    with_vms = study(NETWORK, vms(nodes=", count: 2"), workloads=(workload(*given),))
    adapted = adapt(with_vms, EMULATED)
    assert dict(adapted.workload("w").options) == options
    if options != with_vms.workload("w").options:
        assert "emulated VMs are some twenty times slower" in changes(adapted).values()
    # Containers are not slow, and neither are virtual machines with KVM.
    for unchanged in (adapt(study(workloads=(workload(*given),)), EMULATED),):
        assert unchanged.workload("w").options == with_vms.workload("w").options
    assert adapt(with_vms, SMALL).workload("w").options == with_vms.workload("w").options


def test_emulated_vms_have_less_to_measure() -> None:
    stream = (
        "{name: w, driver: record, operation: bandwidth, quantity: bandwidth, sizes: 1..2M}",
        "{name: few, driver: record, operation: put, quantity: latency, sizes: [8, 64K],"
        " options: {window: 1}}",
    )
    more = (
        "{trials: 15, correction: benjamini-hochberg, comparisons: [{base: network, test: region}]}"
    )
    asked = study(
        NETWORK,
        vms(nodes=", count: 2"),
        workloads=stream,
        design=more,
        published="[{workload: w, environment: network, values: {4: 1, 8: 2}},"
        " {workload: w, comparison: [network, region], value: 2}]",
    )
    adapted = adapt(asked, EMULATED)
    assert adapted.workload("w").sizes == (*(4**power for power in range(11)), 2 << 20)
    assert dict(adapted.workload("w").options) == {"window": 8}
    assert adapted.workload("few") == asked.workload("few")
    assert adapted.design == replace(asked.design, trials=8)
    assert [each.size for each in adapted.published] == [4, None]  # without size 8
    assert {
        "workload w: 12 sizes instead of 22",
        "workload w: window 8 instead of 64",
        "design: 8 blocks instead of 15",
    } <= changes(adapted).keys()
    # With Holm's correction of so many tests, a claim needs more blocks.
    holm = replace(asked, design=replace(asked.design, correction=Correction.HOLM))
    assert adapt(holm, EMULATED).design.trials == trials_needed(adapt(holm, EMULATED)) > 8
    for unchanged in (adapt(asked, SMALL), adapt(study(workloads=stream, design=more), EMULATED)):
        assert unchanged.workload("w") == asked.workload("w")
        assert unchanged.design.trials == asked.design.trials


def test_only_says_what_was_adapted_of_its_part() -> None:
    adapted = adapt(load_study("p2-fig5"), EMULATED)
    part = selected(adapted, ["ivshmem/put-latency"])
    said = {each.what for each in part.adaptations}
    assert "workload put-latency: 12 sizes instead of 23" in said
    assert not any("get-" in what or "put-bandwidth" in what for what in said)
    assert part.unavailable == {}


def test_workloads_that_cannot_run() -> None:
    squares = adapt(study(workloads=(LATENCY, workload("npb", "SP", 16))), SMALL)
    assert squares.unavailable == {
        "w": "SP needs a number of ranks that is a square, and there is room only for 2"
    }
    assert fit_of(squares) is Fit.IN_PART
    verbs = adapt(study(workloads=(LATENCY, workload("perftest", "send-latency", 2))), SMALL)
    assert "RDMA device" in verbs.unavailable["w"]
    more = LATENCY.replace("name: latency", "name: more").replace("14", "10")
    twice = adapt(study(workloads=(LATENCY, more)), SMALL)
    assert twice.unavailable == {"more": "on this machine it is the same as latency"}


FACTS = st.builds(
    HostFacts,
    cores=st.integers(1, 64),
    sockets=st.integers(1, 4),
    numa_nodes=st.integers(1, 4),
    memory_bytes=st.integers(1 << 30, 1 << 40),
    runtimes=st.sampled_from([(), ("crun",), ("crun", "runc", "bubblewrap")]),
    accelerator=st.sampled_from([None, *Accelerator]),
    cards=st.sampled_from([(), LARGE.cards, LARGE.cards[1:]]),
    devices=st.sampled_from([(), LARGE.devices]),
    rdma=st.sampled_from([(), LARGE.rdma]),
    hosts=st.sampled_from([(), *(LARGE.hosts[:count] for count in (2, 3, 4, 8))]),
)
SHIPPED = list_studies()


@settings(max_examples=30, deadline=None)
@given(FACTS)
def test_facts_come_back_from_json(facts: HostFacts) -> None:
    assert facts_from_json(json.loads(json.dumps(facts_to_json(facts)))) == facts
    with pytest.raises(VicinalError, match="the stored facts about the host cannot be read"):
        facts_from_json({**facts_to_json(facts), "more": 1})


def check_adapted(whole: Study, facts: HostFacts) -> None:
    before = deepcopy(whole)
    adapted = adapt(whole, facts)
    assert whole == before
    assert adapt(whole, facts) == adapted
    assert adapt(adapted, facts) == adapted or not adapted.adaptations
    assert study_from_json(study_to_json(adapted)) == adapted
    there = [each for each in adapted.environments if each.name not in adapted.unavailable]
    for each in there:
        part_cluster(Path("x"), dict(each.cluster))
        assert "HOST1" not in str(each.cluster)
        assert "CARD" not in str(each.cluster)
        assert "ffff:ff" not in str(each.cluster)
    for pair in adapted.design.comparisons:
        assert not {pair.base, pair.test} & adapted.unavailable.keys()
    polls = any(each.progress is None for each in there)
    hosts = max(len(facts.hosts), 1)
    for operation in adapted.workloads:
        if operation.name in adapted.unavailable or not there:
            continue
        assert operation.ranks <= max(facts.cores * (1 if polls else 4) * hosts, 2)
        assert operation.ranks >= min(whole.workload(operation.name).ranks, 2)
        assert_said(whole.workload(operation.name), operation, adapted)


def bandwidth(operation: str, sizes: str, options: str = "{}", ranks: int = 2) -> Study:
    return study(
        workloads=(
            f"{{name: bw, driver: record, operation: {operation}, quantity: bandwidth, "
            f"ranks: {ranks}, sizes: {sizes}, options: {options}}}",
        )
    )


@pytest.mark.parametrize(
    ("operation", "sizes", "options", "said"),
    [
        # Both ends reuse the memory of one message for all messages in flight.
        ("bandwidth", "1..4M", "{}", "all sizes, 8M of all ranks together, fits"),
        ("bandwidth", "1..8M", "{window: 64}", "of up to 4M, 8M of all"),
        ("bidirectional", "[1M, 2M, 4M]", "{}", "of up to 2M, 8M of all"),
        # Messages of one-sided operations have separate memory; at most 32 MiB are in flight.
        ("put", "[64K]", "{window: 64}", "all sizes, 8M of all"),
        ("put", "[64K, 128K]", "{window: 64}", "of up to 64K, 8M of all"),
        ("get", "[4M]", "{}", "all sizes, 8M of all"),
        ("put-bidirectional", "[1M, 4M]", "{window: 2}", "of up to 1M, 8M of all"),
        ("bandwidth", "[8M]", "{}", None),
        ("put", "[1M]", "{window: 64}", None),
    ],
)
def test_bandwidths_of_a_cache_are_said(
    operation: str, sizes: str, options: str, said: str | None
) -> None:
    facts = replace(SMALL, cache_bytes=8 << 20)
    asked = bandwidth(operation, sizes, options)
    notes = adapt(asked, facts).notes
    assert len(notes) == (said is not None)
    if said is not None:
        assert notes[0].startswith("workload bw: the memory of messages of ")
        assert f"{said}" in notes[0]
        assert "fits in the last-level cache (8M): these bandwidths are the cache's" in notes[0]
    assert adapt(asked, SMALL).notes == ()  # the machine's cache is unknown
    assert adapt(adapt(asked, facts), facts) == adapt(asked, facts)


def test_latencies_and_what_cannot_be_measured_are_not_said_to_fit_a_cache() -> None:
    facts = replace(SMALL, cache_bytes=1 << 30)
    assert adapt(study(), facts).notes == ()
    other = bandwidth("bandwidth", "[8]", ranks=4)  # pairs, on as many ranks as fit
    assert "32 of all ranks" in adapt(other, replace(facts, cores=4)).notes[0]


def assert_said(asked: Workload, given: Workload, adapted: Study) -> None:
    """Check that a workload with less to measure has an adaptation that says so."""
    said = [each for each in adapted.adaptations if each.what.startswith(f"workload {given.name}:")]
    if given != asked:
        assert said
    for each in adapted.adaptations:
        assert each.what
        assert each.why


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SHIPPED), FACTS)
def test_every_study_on_any_host(whole: Study, facts: HostFacts) -> None:
    check_adapted(whole, facts)


@pytest.mark.parametrize("cores", [1, 24])
def test_every_study_on_hosts_without_cards(cores: int) -> None:
    """For example, published figures of a size that a stand-in does not have are left out."""
    facts = replace(SMALL, cores=cores, runtimes=(), accelerator=None)
    for whole in SHIPPED:
        adapted = adapt(whole, facts)
        assert study_from_json(study_to_json(adapted)) == adapted


def test_a_stand_in_has_other_sizes_or_none() -> None:
    workloads = "{name: %s, driver: %s, operation: %s, quantity: latency%s}"
    whole = study(
        workloads=(
            workloads % ("sent", "perftest", "send-latency", ", sizes: [8, 4M]"),
            workloads % ("small", "libfabric", "latency", ", sizes: [8], stands_for: sent"),
        ),
        published="[{workload: sent, environment: region, values: {8: 2, 4M: 3}}]",
    )
    adapted = adapt(whole, replace(SMALL, cores=24))
    assert [(each.workload, each.size) for each in adapted.published] == [("small", 8)]
    assert study_from_json(study_to_json(adapted)) == adapted
    bare = replace(whole.workloads[1], sizes=())
    unsized = adapt(replace(whole, workloads=(whole.workloads[0], bare)), SMALL)
    assert unsized.published == ()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SHIPPED), st.sampled_from([LARGE, SMALL, EMULATED]), st.data())
def test_a_part_of_a_study_is_one(whole: Study, facts: HostFacts, data: st.DataObject) -> None:
    """A part chosen by --only names nothing that is gone."""
    adapted = adapt(whole, facts)
    environment = data.draw(st.sampled_from(adapted.environments)).name
    operation = data.draw(st.sampled_from(adapted.workloads)).name
    for only in (f"{environment}/*", f"*/{operation}", f"{environment}/{operation}"):
        part = selected(adapted, [only])
        assert study_from_json(study_to_json(part)) == part


@pytest.mark.parametrize("facts", [LARGE, SMALL, EMULATED], ids=["large", "small", "emulated"])
def test_drivers_know_what_is_asked_of_them(facts: HostFacts) -> None:
    """A program that is not installed is no fault of the study; an unknown option is one."""
    known = drivers()
    tried = 0
    for whole in SHIPPED:
        adapted = adapt(whole, facts)
        mpis = {each.mpi for each in adapted.environments if each.name not in adapted.unavailable}
        for each in adapted.workloads:
            if each.name in adapted.unavailable or each.driver not in known:
                continue
            for mpi in mpis:
                tried += 1
                try:
                    known[each.driver].program(each, mpi, Tools())
                except VicinalError as error:
                    assert not str(error).startswith("the workload"), (whole.name, error)  # noqa: PT017
    assert tried > 50
