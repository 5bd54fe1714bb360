"""Functions that tests of Slurm's jobs in virtual machines share."""

import subprocess

import psutil
from process_support import name_of, words_of
from slurm_option_support import OptionHosts

FILE = """
name: lab
nodes:
  - name: node
    backend: vm
    count: {count}
    each_boot: [echo told >/root/said && chmod 755 /root]
region:
  members: 8
"""


def vms(hosts: OptionHosts) -> dict[str, psutil.Process]:
    """The VMs of jobs on the first host by name, and a VM that boots to be saved."""
    found = {}
    for supervisor in hosts.supervisors("node0"):
        found.update(vms_of(supervisor))
    return found


def vms_of(supervisor: psutil.Process) -> dict[str, psutil.Process]:
    """The VMs of one job."""
    found = {}
    for process in supervisor.children(recursive=True):
        words = words_of(process)
        if name_of(process).startswith("qemu") and "-name" in words:
            found[words[words.index("-name") + 1]] = process
    return found


def begin(hosts: OptionHosts, *command: object) -> subprocess.Popen[str]:
    """Start a command of Slurm at the head."""
    return subprocess.Popen(
        hosts.entered([str(word) for word in command]),
        env=hosts.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sleeping(hosts: OptionHosts, value: object, tasks: int = 2) -> subprocess.Popen[str]:
    """A job whose tasks sleep in their VMs, one in each."""
    task = ("sh", "-c", "echo sleeps; exec sleep 600")
    job = ("-K", f"--vicinal={value}", "-wnode0", f"-n{tasks}", "--job-name=dies")
    running = begin(hosts, "srun", *job, *task)
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(tasks)] == ["sleeps\n"] * tasks
    return running
