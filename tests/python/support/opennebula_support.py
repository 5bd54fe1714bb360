"""OpenNebula's side of its KVM driver: documents, its folder of scripts, and their calls.

The documents were written after its documentation and sources, and come from no installation.
Stand-ins replace the stock scripts. They start no VM, but write what runs into the file that
libvirt's own test driver reads. So the driver asks the real library.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

ATTRIBUTE = "<VICINAL_REGION><JOB>{job}</JOB><SIZE>{size}</SIZE>{more}</VICINAL_REGION>"

_VM = """<VM><ID>{vm}</ID><UID>{owner}</UID><GID>100</GID><UNAME>ada</UNAME><GNAME>users</GNAME>
<NAME>node {vm}</NAME><STATE>3</STATE><LCM_STATE>2</LCM_STATE><DEPLOY_ID/>
<TEMPLATE><CPU><![CDATA[1]]></CPU><MEMORY><![CDATA[256]]></MEMORY><VMID><![CDATA[{vm}]]></VMID>
<CONTEXT><TARGET><![CDATA[hda]]></TARGET></CONTEXT></TEMPLATE>
<USER_TEMPLATE><DESCRIPTION><![CDATA[VICINAL is &not; meant here]]></DESCRIPTION>{asked}
</USER_TEMPLATE>
<HISTORY_RECORDS><HISTORY><OID>{vm}</OID><HOSTNAME>node1</HOSTNAME><VM_MAD>vicinal</VM_MAD></HISTORY>
</HISTORY_RECORDS></VM>"""

_DOMAIN = """<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
	<name>one-{vm}</name>
	<title>node &lt;{vm}&gt;</title>
	<vcpu><![CDATA[2]]></vcpu>
	<cputune>
		<shares>1024</shares>
		<vcpupin vcpu='0' cpuset='2'/>
		<vcpupin vcpu='1' cpuset='3'/>
		<emulatorpin cpuset='2,3'/>
	</cputune>
	<memory>262144</memory>
	<os>
		<type arch='x86_64' machine='q35'>hvm</type>
	</os>
	<cpu mode='host-passthrough'>
		<topology sockets='1' cores='2' threads='1'/>
		<numa>
			<cell id='0' memory='262144' cpus='0-1' memAccess='shared'/>
		</numa>
	</cpu>
	<numatune>
		<memnode cellid='0' mode='strict' nodeset='0'/>
		<memory mode='strict' nodeset='0'/>
	</numatune>
	<memoryBacking>
		<hugepages>
			<page size='2048'/>
		</hugepages>
	</memoryBacking>
	<devices>
		<emulator><![CDATA[/usr/bin/qemu-system-x86_64]]></emulator>
		<disk type='file' device='disk'>
			<source file='/var/lib/one//datastores/0/{vm}/disk.0'/>
			<target dev='vda' bus='virtio'/>
			<driver name='qemu' type='qcow2' cache='none' discard='unmap'/>
		</disk>
	</devices>
	<devices>
		<controller index='0' type='pci' model='pcie-root'/>
		<controller type='pci' model='pcie-root-port'/>
		<controller type='pci' model='pcie-root-port'/>
		<controller type='pci' model='pcie-to-pci-bridge'/>
	</devices>
	<features>
		<acpi/>
	</features>
	<!-- RAW of the template -->
	<qemu:commandline><qemu:arg value='-no-hpet'/></qemu:commandline>
	<metadata>
		<one:vm xmlns:one="http://opennebula.org/xmlns/libvirt/1.0">
			<one:system_datastore><![CDATA[/var/lib/one//datastores/0/{vm}]]></one:system_datastore>
			<one:uid>{owner}</one:uid>
		</one:vm>
	</metadata>
</domain>
"""

_STOCK = '''\
#!{python}
"""A stand-in for OpenNebula's script of this name: starts no VM, but says so to libvirt."""
import os, pathlib, re, signal, sys, time

action, where = pathlib.Path(sys.argv[0]).name, pathlib.Path(os.environ["STAND_IN"])
log = where.with_name("calls")
given = sys.stdin.read()
with log.open("a") as calls:
    print(action, *sys.argv[1:], file=calls)
how = os.environ.get("STAND_IN_HOW", "")
domain = "<domain type='test'><name>%s</name><memory>8192</memory><os><type>hvm</type></os>"
domain += "</domain>"
if how == "fail":
    print(f"ERROR: {{action}}: Command failed", file=sys.stderr)
    sys.exit("Could not do it")
if how == "ended":
    os.kill(os.getpid(), signal.SIGTERM)
if how in ("wait", "hang"):  # until somebody writes into the gate, or for ever
    gate = where.with_name("gate")
    gate.with_name("began").open("w").close()
    gate.read_text() if how == "wait" else time.sleep(300)
if how == "killed":
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(1)
text = where.read_text()
if action == "deploy":
    pathlib.Path(sys.argv[1]).write_text(given)
    name = re.search("<name>(.*?)</name>", given)[1]
    where.write_text(text.replace("</node>", domain % name + "</node>"))
    print("c0ffee00-0000-4000-8000-000000000001")
elif action in ("cancel", "shutdown"):
    where.write_text(text.replace(domain % sys.argv[1], ""))
if how == "fail-after":
    sys.exit("Could not finish")
if how == "kill-after":
    os.kill(os.getppid(), signal.SIGKILL)
'''

_COMMON = """\
function error_message
{
    (
        echo "ERROR MESSAGE --8<------"
        echo "$1"
        echo "ERROR MESSAGE ------>8--"
    ) 1>&2
}
"""


def vm_document(vm: int, owner: int, asked: str = "", chosen: str = "") -> str:
    """vm.xml of a VM. `chosen` is what its template adds to the usual text."""
    text = _VM.format(vm=vm, owner=owner, asked=asked)
    return text.replace("</TEMPLATE>", f"{chosen}</TEMPLATE>", 1)


def deployment_file(vm: int, owner: int = 5) -> str:
    """The file that OpenNebula writes for a pinned VM with huge pages."""
    return _DOMAIN.format(vm=vm, owner=owner)


def asks(job: str = "job42", size: str = "8M", more: str = "") -> str:
    """The attribute, in a document."""
    return ATTRIBUTE.format(job=escape(job), size=escape(size), more=more)


def owner_of_tests() -> int:
    """An OpenNebula user that no other test uses: all users share one directory of regions."""
    return 10**8 + secrets.randbelow(10**8)


@dataclass
class Host:
    """A host of OpenNebula with its scripts, and the regions of one owner."""

    directory: Path
    owner: int = field(default_factory=owner_of_tests)

    def __post_init__(self) -> None:
        self.nodes.write_text("<node></node>")
        for action in ("deploy", "cancel", "shutdown", "save", "restore", "migrate", "reboot"):
            script = self.remotes / "vmm/kvm" / action
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(_STOCK.format(python=sys.executable))
            script.chmod(0o755)
        (self.remotes / "scripts_common.sh").write_text(_COMMON)
        self.probes.mkdir(parents=True)
        (self.remotes / "vnm").mkdir()
        settings = self.remotes / "etc/vmm/kvm/kvmrc"
        settings.parent.mkdir(parents=True)
        settings.write_text(f"export LIBVIRT_URI=test://{self.nodes}\n")

    @property
    def remotes(self) -> Path:
        return self.directory / "remotes"

    @property
    def probes(self) -> Path:
        """The scripts that OpenNebula runs to monitor the host."""
        return self.remotes / "im/kvm-probes.d/host/system"

    @property
    def nodes(self) -> Path:
        """The file that libvirt's test driver reads."""
        return self.directory / "nodes.xml"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def region(self, job: str = "job42") -> Path:
        return Path(f"/dev/shm/vicinal-one-{self.owner}-{job}")

    def folder(self, vm: int) -> Path:
        return self.directory / f"datastores/0/{vm}"

    def calls(self) -> list[str]:
        """The arguments of the stock scripts' calls."""
        log = self.directory / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def prepare(self, vm: int, asked: str, chosen: str = "") -> Path:
        """Do what OpenNebula does before a deployment. Returns the deployment file's path."""
        folder = self.folder(vm)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vm.xml").write_text(vm_document(vm, self.owner, asked, chosen))
        return folder / "deployment.0"

    def act(
        self, action: str, *arguments: str, vm: int, given: str = "", how: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Call a script as one_vmm_exec does over ssh."""
        return subprocess.run(
            self.command(action, *arguments, vm=vm),
            input=given or "<VMM_DRIVER_ACTION_DATA/>",
            capture_output=True,
            text=True,
            env=self.variables(how),
        )

    def command(self, action: str, *arguments: str, vm: int) -> list[str]:
        script = self.remotes / "vmm/vicinal" / action
        return [str(script), *arguments, str(vm), "node1"]

    def variables(self, how: str = "") -> Mapping[str, str]:
        return os.environ | {
            "VICINAL_OPENNEBULA_STATE": str(self.state),
            "STAND_IN": str(self.nodes),
            "STAND_IN_HOW": how,
        }

    def deploy(
        self, vm: int, asked: str | None = None, how: str = ""
    ) -> subprocess.CompletedProcess[str]:
        file = self.prepare(vm, asks() if asked is None else asked)
        domain = deployment_file(vm, self.owner)
        return self.act("deploy", str(file), "node1", vm=vm, given=domain, how=how)

    def end(
        self, vm: int, action: str = "cancel", how: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return self.act(action, f"one-{vm}", "node1", vm=vm, how=how)

    def lose(self, vm: int) -> None:
        """Let a VM end by itself, without a call of a script."""
        text = self.nodes.read_text()
        start = text.index(f"<domain type='test'><name>one-{vm}<")
        end = text.index("</domain>", start) + len("</domain>")
        self.nodes.write_text(text[:start] + text[end:])


def error_text(stderr: str) -> str:
    """The cause that OpenNebula reads: the text between its marks, found as OpenNebula finds it."""
    marks = "^ERROR MESSAGE --8<------\\n(.*?)ERROR MESSAGE ------>8--$"
    found = re.search(marks, stderr, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""
