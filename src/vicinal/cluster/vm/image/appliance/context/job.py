"""The VMs of a job: their names, a key for ssh between them, and the hosts of mpirun.

    VICINAL_HOSTS = "mpi-[0-3]", VICINAL_SSH_KEY_BASE64 = "..."

The key is a private key that all VMs of the job have. Its public half may log in as the VM's
user. Each VM also signs its own host key with it, so that the VMs trust each other.
"""

import ipaddress
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.cluster.vm.image.appliance.context.files import Account, put
from vicinal.cluster.vm.image.appliance.context.owner import KEYS_FILE
from vicinal.cluster.vm.image.appliance.context.reading import ContextError, decoded

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_RANGE = re.compile(r"(.*)\[(\d+)-(\d+)\](.*)")
HOSTS_MAX = 1024

_KEY_SECONDS = 30
_HOSTS = "VICINAL_HOSTS"
_KEY = "VICINAL_SSH_KEY"
_KNOWN = (_HOSTS, _KEY, f"{_KEY}_BASE64")
_BEGIN = "# From OpenNebula's context, anew at each boot:"
_END = "# (end of what is from OpenNebula's context)"

# Below the VM's root directory.
_KEY_FILE = "etc/ssh/vicinal_job_key"
_PUBLIC_FILE = f"{_KEY_FILE}.pub"
_KNOWN_FILE = "etc/ssh/vicinal_known_hosts"
_CLIENT_FILE = "etc/ssh/ssh_config.d/70-vicinal.conf"
_SERVER_FILE = "etc/ssh/sshd_config.d/70-vicinal.conf"
_RESOLVER_FILE = "etc/systemd/resolved.conf.d/70-vicinal.conf"
_HOST_KEY = "etc/ssh/ssh_host_ed25519_key.pub"
_HOST_CERTIFICATE = "etc/ssh/ssh_host_ed25519_key-cert.pub"
_ALIAS = "vicinal-job"


@dataclass(frozen=True)
class Host:
    """A VM of a job."""

    name: str
    address: str | None = None
    """None: the VMs resolve the name among themselves."""


def read_hosts(text: str) -> list[Host]:
    """Parse VICINAL_HOSTS: `mpi-0 mpi-1`, `mpi-[0-3]`, `mpi-0=10.0.0.5,mpi-1=10.0.0.6`.

    Raises ContextError if the form is another, or a host occurs twice.
    """
    found: list[Host] = []
    for word in text.lower().replace(",", " ").split():
        name, is_there, address = word.partition("=")
        if is_there:
            try:
                ipaddress.ip_address(address)
            except ValueError as error:
                raise ContextError(f"'{address}' in {_HOSTS} is not an address") from error
        names = _expanded(name)
        if is_there and len(names) > 1:
            raise ContextError(f"'{word}' in {_HOSTS} gives several hosts one address")
        for each in names:
            if not _HOST.fullmatch(each):
                raise ContextError(f"'{each}' in {_HOSTS} is not a host name")
            found.append(Host(each, address if is_there else None))
        if len(found) > HOSTS_MAX:
            raise ContextError(f"{_HOSTS} has more than {HOSTS_MAX} hosts")
    twice = {host.name for host in found if sum(h.name == host.name for h in found) > 1}
    if twice:
        raise ContextError(f"{_HOSTS} has {', '.join(sorted(twice))} twice")
    return found


def _expanded(name: str) -> list[str]:
    match = _RANGE.fullmatch(name)
    if match is None:
        return [name]
    before, first, last, after = match.groups()
    if int(last) < int(first) or int(last) - int(first) >= HOSTS_MAX:
        raise ContextError(
            f"'[{first}-{last}]' in {_HOSTS} is not a range of 1 to {HOSTS_MAX} hosts"
        )
    width = len(first) if first.startswith("0") else 0
    return [f"{before}{number:0{width}}{after}" for number in range(int(first), int(last) + 1)]


def set_up_job(
    context: Mapping[str, str], root: Path, account: Account | None, say: Callable[[str], None]
) -> list[str]:
    """Write the job's files below `root`, and remove those of an earlier context.

    Without an account no user can have the key. `say` receives the present settings and what is
    wrong. Returns the services that must reload their configuration.
    """
    unknown = [name for name in context if name.startswith("VICINAL_") and name not in _KNOWN]
    for name in sorted(unknown):
        say(f"{name} is not known: use {_HOSTS} and {_KEY}_BASE64")
    hosts: list[Host] = []
    key = ""
    try:
        hosts = read_hosts(context.get(_HOSTS, ""))
    except ContextError as error:
        say(f"hosts: none, {error}")
    try:
        key = decoded(context, _KEY).strip()
        if key and account is None:
            raise ContextError("the VM has no user who could own it")
    except ContextError as error:
        say(f"key: none, {error}")
        key = ""
    changed = set()
    if _write_hosts(root, hosts):
        changed.add("systemd-resolved")
    if hosts:
        say(f"hosts: {' '.join(host.name for host in hosts)}, for mpirun")
    if _write_key(root, hosts, key, account, say):
        changed.add("ssh")
    return sorted(changed)


def _write_hosts(root: Path, hosts: Sequence[Host]) -> bool:
    """Write names and mpirun's hosts; returns whether the resolver's configuration changed."""
    addresses = [f"{host.address} {host.name}" for host in hosts if host.address]
    _put_block(root / "etc/hosts", addresses)
    _put_block(root / "etc/openmpi/openmpi-default-hostfile", [host.name for host in hosts])
    # VMs of one network resolve names by LLMNR, whatever systemd's default is.
    wanted = any(host.address is None for host in hosts)
    return put(root / _RESOLVER_FILE, "[Resolve]\nLLMNR=yes\n" if wanted else None)


def _write_key(
    root: Path, hosts: Sequence[Host], key: str, account: Account | None, say: Callable[[str], None]
) -> bool:
    """Write the job's key and its settings; returns whether sshd must reload its configuration."""
    public = ""
    # Not in the user's home, because root must not write where the user may create links.
    put(root / _KEY_FILE, f"{key}\n" if key else None, account)
    if key and account is not None:
        try:
            public = _ssh_keygen("-y", "-P", "", "-f", str(root / _KEY_FILE)).strip()
            identity = ["-h", "-I", _ALIAS, "-n", _ALIAS]
            _ssh_keygen("-q", "-s", str(root / _KEY_FILE), *identity, str(root / _HOST_KEY))
            say(f"key: of the job, for {account.name}")
        except ContextError as error:
            say(f"key: none, {error}")
            public = ""
            put(root / _KEY_FILE, None)
    known = client = server = None
    if public and account is not None:
        known = f"@cert-authority {_ALIAS} {public}\n"
        names = " ".join(each for host in hosts for each in (host.name, host.address) if each)
        client = (
            f"Host {names or 'none'}\n\tIdentityFile /{_KEY_FILE}\n\tHostKeyAlias {_ALIAS}\n"
            f"\tGlobalKnownHostsFile /{_KNOWN_FILE}\n\tUserKnownHostsFile none\n"
            "\tStrictHostKeyChecking yes\n"
        )
        server = (
            f"HostCertificate /{_HOST_CERTIFICATE}\nMatch User {account.name}\n"
            f"\tAuthorizedKeysFile .ssh/authorized_keys /{KEYS_FILE} /{_PUBLIC_FILE}\n"
        )
    else:
        (root / _HOST_CERTIFICATE).unlink(missing_ok=True)
    put(root / _KNOWN_FILE, known)
    put(root / _CLIENT_FILE, client)
    renewed = put(root / _PUBLIC_FILE, f"{public}\n" if public else None)
    return put(root / _SERVER_FILE, server) or renewed or bool(public)


def _ssh_keygen(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KEY_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or "no message").splitlines()[-1]
        raise ContextError(
            f"{_KEY} is not a private key without a passphrase ({reason})"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ContextError(f"ssh-keygen could not be run ({error})") from error
    return done.stdout


def _put_block(file: Path, lines: Sequence[str]) -> None:
    """Write these lines to the end of a file, instead of the lines of an earlier boot."""
    before = file.read_text() if file.exists() else ""
    kept = re.sub(rf"^{re.escape(_BEGIN)}\n.*?^{re.escape(_END)}\n", "", before, flags=re.M | re.S)
    block = "".join(f"{line}\n" for line in (_BEGIN, *lines, _END)) if lines else ""
    if kept and not kept.endswith("\n"):
        kept += "\n"
    if kept + block != before:
        put(file, kept + block)
