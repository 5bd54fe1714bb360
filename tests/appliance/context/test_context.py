"""The appliance, booted with only a context as OpenNebula writes it: two VMs of a job."""

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from appliance_support import Ssh, new_region
from context_support import DYNAMIC, NAMES, PASSWORD, STATIC, Job, documented, public

from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region import inspect
from vicinal.region.format import Route

ANEW = "10.0.5.22"
KEPT = """
cat .ssh/authorized_keys /etc/hosts /etc/passwd /etc/group /etc/ssh/ssh_host_*_key.pub
sudo cat /root/once /etc/sudoers.d/*
cat /var/lib/vicinal/first-boot /var/lib/cloud/data/instance-id
stat -c %y /var/lib/vicinal/first-boot
ls /etc/ssh /etc/ssh/*.d /etc/systemd/network /var/lib/cloud/instances
ls -R /etc/systemd/resolved.conf.d
stat -c '%n %G %a' /sys/bus/pci/devices/*/resource2
"""
"""Prints state that no further boot may change or repeat."""
NAMED = """
cat /etc/openmpi/openmpi-default-hostfile /etc/ssh/vicinal_owner_keys /etc/ssh/ssh_config.d/*
cat /run/systemd/network/*cloud-init* /etc/systemd/network/*cloud-init* 2>/dev/null
hostname
"""
"""The same, for an unchanged context."""

pytestmark = pytest.mark.timeout(2400)  # the first test waits for the whole build


@pytest.fixture(scope="module")
def job(appliance: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    with new_region() as region:
        running = Job(appliance, tmp_path_factory.mktemp("job"), region)
        try:
            began = time.monotonic()
            running.wait_ready()
            print(f"\nboot of two VMs with contexts under TCG: {time.monotonic() - began:.0f} s")
            yield running
        finally:
            running.stop()


def has_password(vm: Ssh, password: str) -> bool:
    """Whether this is the password of the VM's user."""
    check = (
        "import crypt, spwd; hashed = spwd.getspnam('debian').sp_pwdp;"
        f" print(crypt.crypt({password!r}, hashed) == hashed)"
    )
    return vm.output(f"sudo python3 -W ignore -c {shlex.quote(check)}") == "True\n"


def test_names_key_and_addresses_are_the_contexts(job: Job) -> None:
    """Every command here runs by the owner's key."""
    for vm, name, static, dynamic in zip(job.vms, NAMES, STATIC, DYNAMIC, strict=True):
        said = vm.output(
            "hostname; cat /run/cloud-init/result.json | tr -d '\\n'; echo; cloud-init status;"
            " systemctl --failed --no-legend --plain; echo .; ip -json -4 address show scope global"
        ).splitlines()
        assert said[0] == name
        assert "DataSourceOpenNebula" in said[1]
        assert said[2:4] == ["status: done", "."]
        interfaces = json.loads(said[4])
        found = [(i["addr_info"][0]["local"], i["mtu"]) for i in interfaces]
        assert found == [(static, 1400), (dynamic, 1500)]
        assert [len(i["addr_info"]) for i in interfaces] == [1, 1]
        assert interfaces[1]["addr_info"][0]["dynamic"]
        # Only the static NIC's, because QEMU's server announces no router in a closed network.
        routes = vm.output("ip -4 route show default; resolvectl dns; resolvectl domain")
        assert f"default via 10.0.5.1 dev {interfaces[0]['ifname']} proto static" in routes
        assert f"({interfaces[0]['ifname']}): 10.0.5.2\n" in routes
        assert f"({interfaces[0]['ifname']}): job.test\n" in routes


def test_instances_differ_and_secrets_are_kept(job: Job) -> None:
    found = {vm.output("cat /var/lib/cloud/data/instance-id") for vm in job.vms}
    assert found == {"one-02:00:0a:00:05:0b\n", "one-02:00:0a:00:05:0c\n"}
    # The password works on the console, and nothing shows the password or the job's key.
    vm = job.vms[0]
    assert has_password(vm, PASSWORD)
    shown = vm.output("cat /run/cloud-init/instance-data.json")
    assert "VICINAL_HOSTS" in shown
    assert PASSWORD not in shown
    assert job.secret not in shown


def test_the_report_says_what_was_done(job: Job) -> None:
    for vm in job.vms:
        assert vm.output("cat /var/lib/vicinal/context").splitlines() == [
            "owner: 1 key and a password, for debian",
            "hosts: mpi-0 mpi-1, for mpirun",
            "key: of the job, for debian",
            "start script: done",
        ]
        started = vm.output("sudo cat /root/started").splitlines()
        assert started[0].startswith("mpi-[0-1] in /var/lib/vicinal/context-")
        assert started[1:] == ["context.sh", "active"]
    assert all(f"vicinal: {said}" in job.consoles for said in ("key: of the job", "start script"))


def test_vms_of_the_job_know_each_other(job: Job) -> None:
    first, second = job.vms
    assert first.output("ssh -o BatchMode=yes mpi-1 hostname") == "mpi-1\n"
    assert second.output("ssh -o BatchMode=yes mpi-0 hostname") == "mpi-0\n"
    # A host with the same name whose host key the job's key has not signed.
    second.output("sudo rm /etc/ssh/ssh_host_ed25519_key-cert.pub && sudo systemctl reload ssh")
    refused = first.run("ssh -o BatchMode=yes mpi-1 hostname")
    assert refused.returncode != 0
    assert "Host key verification failed" in refused.stderr
    # The context's key takes effect at the next boot, or now.
    second.output("sudo /usr/lib/vicinal/context")
    assert first.output("ssh -o BatchMode=yes mpi-1 hostname") == "mpi-1\n"


def test_an_mpi_job_over_both_goes_through_their_region(job: Job) -> None:
    """Only the manual's settings exist: no hosts, no key, no host file."""
    assert not inspect(job.region).members
    first = job.vms[0]
    first.copy_in(mpi_program(Mpi.OPENMPI, "verify"))
    first.output("scp -q verify mpi-1:")
    command = documented(r"^    (FI_PROVIDER=vicinal mpirun .*)\./program$")
    said = first.output(f"{command} ./verify --only sendrecv --max-size 65536 --rounds 1")
    (record,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert (record["check"], record["errors"]) == ("sendrecv", 0), record
    assert record["messages"] > 0
    state = inspect(job.region)
    hosts = {member.slot: member.hostname for member in state.members}
    assert set(hosts.values()) == set(NAMES)
    talks = [each for each in state.connections if each.messages > 0 and each.route is Route.REGION]
    ways = {(hosts[each.sender], hosts[each.receiver]) for each in talks}
    assert ways == {(NAMES[0], NAMES[1]), (NAMES[1], NAMES[0])}


def test_a_further_boot_takes_what_is_new_and_does_nothing_twice(job: Job) -> None:
    """The first VM reboots, and OpenNebula starts the second with a changed context."""
    first, second = job.vms
    kept, named = [each.output(KEPT) for each in job.vms], first.output(NAMED)
    boots = [each.output("sudo cat /root/boots") for each in job.vms]
    key = job.new_key("another")
    changed = job.context(1, ANEW, mtu="1300") | {
        "SET_HOSTNAME": "renamed",
        "SSH_PUBLIC_KEY": f"{public(key)}\n# of the owner's\n{public(key)}",
        "PASSWORD": "another",
        "VICINAL_HOSTS": "mpi-0 renamed",
    }
    began = time.monotonic()
    job.boot_again(changed, key)
    print(f"\nboot of both again under TCG: {time.monotonic() - began:.0f} s")
    first, second = job.vms
    assert [each.output(KEPT) for each in job.vms] == kept
    assert kept[0].count("once\n") == 1
    assert first.output(NAMED) == named
    for vm, before in zip(job.vms, boots, strict=True):
        assert vm.output("sudo cat /root/boots") == f"{before}boot\n"
        assert vm.output("systemctl --failed --no-legend --plain") == ""
    # Every command here runs by the new key.
    interfaces = json.loads(second.output("ip -json -4 address show scope global"))
    found = [[each["local"] for each in i["addr_info"]] for i in interfaces]
    assert found == [[ANEW], [DYNAMIC[1]]]
    assert interfaces[0]["mtu"] == 1300
    assert second.output("hostname") == "renamed\n"
    assert second.output("cat /etc/ssh/vicinal_owner_keys") == f"{public(key)}\n"
    hosts = second.output("grep -v '^#' /etc/openmpi/openmpi-default-hostfile").split()
    assert hosts[-2:] == ["mpi-0", "renamed"]
    assert "mpi-1" not in hosts
    assert has_password(second, "another")
    assert has_password(first, PASSWORD)
    assert second.output("ssh -o BatchMode=yes mpi-0 hostname") == "mpi-0\n"
