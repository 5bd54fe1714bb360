"""What the host counted in a trial: text of a real kernel, and the counters of this host."""

import os
import time
from pathlib import Path

import pytest

from vicinal.labs.tune.evidence import (
    Counters,
    ProcessorTimes,
    add_work,
    parse_frequencies,
    parse_interrupts,
    parse_softirqs,
    parse_stat,
    parse_switches,
    read_counters,
)

RECORDED = Path(__file__).parents[1] / "recorded" / "proc"
"""Files of a virtual machine with two processors, Linux 6.18."""


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_interrupts_are_summed_by_vector_and_called_by_their_device() -> None:
    text = recorded("interrupts")
    found = parse_interrupts(text)
    assert len(found) == len(text.splitlines()) - 1
    by_number = {line.split(":")[0].strip(): line.split()[1:3] for line in text.splitlines()[1:]}
    assert found["41 virtio3-rx"] == sum(map(int, by_number["41"])) > 0
    assert found["LOC"] == sum(map(int, by_number["LOC"])) > 0
    assert found["ERR"] == found["MIS"] == 0


def test_an_interrupt_line_may_have_more_processors_or_a_shared_device() -> None:
    text = (
        "            CPU0       CPU1       CPU2       CPU3\n"
        "  16:          1          2          3          4  IR-IO-APIC   16-fasteoi   usb1, eth0\n"
        " 125:  4294967290          0          0         10  IR-PCI-MSIX-0000:3b:00.0    1-edge"
        "      mlx5_comp0@pci:0000:3b:00.0\n"
        " NMI:          5          5          5          5   Non-maskable interrupts\n"
        " ERR:          7\n"
    )
    assert parse_interrupts(text) == {
        "16 eth0": 10,
        "125 mlx5_comp0@pci:0000:3b:00.0": 4294967300,
        "NMI": 20,
        "ERR": 7,
    }


def test_softirqs_are_summed() -> None:
    found = parse_softirqs(recorded("softirqs"))
    assert set(found) >= {"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "TASKLET", "SCHED", "RCU"}
    line = next(line for line in recorded("softirqs").splitlines() if "NET_RX" in line)
    assert found["NET_RX"] == sum(map(int, line.split()[1:])) > 0


def test_processor_times_count_steal_apart_and_guests_once() -> None:
    found = parse_stat(recorded("stat"))
    first = [int(word) for word in recorded("stat").splitlines()[0].split()[1:]]
    assert found.total == sum(first[:8])
    assert found.stolen == first[7]
    assert found.busy == found.total - first[3] - first[4] - first[7]
    assert f"ctxt {found.context_switches}\n" in recorded("stat")
    # 60 of user's 100 belong to guests.
    assert parse_stat("cpu  100 0 10 50 5 1 2 7 60 0\nctxt 3\n") == ProcessorTimes(113, 7, 175, 3)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\nctxt 5\n", "cpu  1 2 3 4 5 6 7 8\n", "cpu a\n"])
def test_what_are_no_processor_times_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="no processor times"):
        parse_stat(text)


def test_switches_and_frequencies_are_read() -> None:
    assert set(parse_switches(recorded("status"))) == {"voluntary", "nonvoluntary"}
    assert parse_switches("voluntary_ctxt_switches:\t12\n") == {"voluntary": 12}
    assert parse_frequencies(recorded("cpuinfo")) == pytest.approx([2596.122, 2596.122])
    assert parse_frequencies("processor : 0\nBogoMIPS : 50.00\n") == []  # Arm kernels show no MHz


def counters(moment: float, interrupts: dict[str, int], **other: ProcessorTimes) -> Counters:
    return Counters(moment, interrupts, {}, other.get("times"), {}, None)


def test_differences_survive_wrapping_and_devices_that_come() -> None:
    before = counters(10, {"41 eth0": 4294967290, "42 eth1": 5})
    found = counters(12.5, {"41 eth0": 4, "42 eth1": 5, "43 new": 9}).since(before)
    assert found.interrupts == {"41 eth0": 10, "43 new": 9}
    assert found.seconds == 2.5
    assert (found.steal, found.busy_seconds, found.context_switches) == (None, None, None)
    assert add_work(found, 1000)["work"] == 1000


def test_steal_is_a_share_of_all_time() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    before = counters(0, {}, times=ProcessorTimes(0, 0, 0, 100))
    times = ProcessorTimes(3 * ticks, ticks, 8 * ticks, 150)
    found = counters(4, {}, times=times).since(before)
    assert (found.busy_seconds, found.steal, found.context_switches) == (3.0, 0.125, 50)


def test_this_host_counts_what_is_done_on_it() -> None:
    before = read_counters(os.getpid())
    began = time.process_time()
    while time.process_time() < began + 0.2:
        pass
    for _ in range(20):
        time.sleep(0.001)
    found = read_counters(os.getpid()).since(before)
    assert found.seconds > 0.2
    assert sum(found.interrupts.values()) > 0
    assert sum(found.softirqs.values()) > 0
    assert found.context_switches is not None
    assert found.context_switches >= found.switches_of_process["voluntary"] >= 20
    assert found.busy_seconds is not None
    assert found.busy_seconds >= 0.1  # one tick is a hundredth of a second
    assert found.steal is not None
    assert 0 <= found.steal <= 1


def test_a_kernel_that_says_nothing_gives_no_zeros(tmp_path: Path) -> None:
    found = read_counters(1, proc=tmp_path, cpus=tmp_path).since(
        read_counters(1, proc=tmp_path, cpus=tmp_path)
    )
    assert found.context_switches is None
    assert found.busy_seconds is None
    assert found.steal is None
    assert found.frequency_mhz is None
    assert (found.interrupts, found.switches_of_process) == ({}, {})


def test_a_governors_frequency_goes_before_what_the_processor_is_told(tmp_path: Path) -> None:
    for cpu, frequency in (("cpu0", 1200000), ("cpu1", 3600000)):
        (tmp_path / cpu / "cpufreq").mkdir(parents=True)
        (tmp_path / cpu / "cpufreq" / "scaling_cur_freq").write_text(f"{frequency}\n")
    assert read_counters(proc=RECORDED, cpus=tmp_path).frequency_mhz == 2400
    assert read_counters(proc=RECORDED, cpus=tmp_path / "none").frequency_mhz == pytest.approx(
        2596.122
    )
