"""The privileged helper of `vicinal functions`: all that it does as root is in this file.

It is run as `python3 -I THIS-FILE`, by root or through sudo, reads one request from standard input
as JSON, and answers on standard output in the same way. It knows five operations, each with fields
of fixed names and forms. Paths are made here, from a PCI address whose form and whose place in
sysfs were checked; nothing of a request reaches a shell. docs/functions.md says what to audit.

Who did what is kept in a file of records, which is written before anything is changed. So what a
killed command leaves behind can be told, and released. The file is in /run, as short-lived as the
functions themselves. A lock that the kernel drops keeps two helpers apart.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Form = re.Pattern[str] | range | type
Records = dict[str, dict[str, dict[str, Any]]]

PROTOCOL = 1
VFIO = "vfio-pci"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
_GUID = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){7}")
_STATE = re.compile(r"auto|enable|disable")
_ETHERNET_CLASS, _NETWORK_CLASS = "0x0200", "0x02"
_LOCK_SECONDS = 10.0
_COMMAND_SECONDS = 20.0
_REQUEST_BYTES = 65536
_POLICY = {"auto": "Follow", "enable": "Up", "disable": "Down"}
_ETHERNET: dict[str, Form] = {
    "mac": _MAC,
    "vlan": range(4095),
    "qos": range(8),
    "spoofchk": bool,
    "trust": bool,
    "state": _STATE,
    "min_tx_rate": range(1 << 24),
    "max_tx_rate": range(1 << 24),
}
_INFINIBAND: dict[str, Form] = {
    "node_guid": _GUID,
    "port_guid": _GUID,
    "policy": _STATE,
    "pkey_index": range(128),
    "port": range(1, 3),
}
_BINDINGS = re.compile("vfio-pci|native")


class RefusedError(Exception):
    """Why something was not done, and what to do about it."""


class Host:
    """Where this system keeps what the helper reads and writes; tests put a fake one in place."""

    sysfs = Path("/sys")
    records = Path("/run/vicinal-functions")
    groups = Path("/dev/vfio")

    def device(self, address: str) -> Path:
        """The directory of a PCI device."""
        return self.sysfs / "bus/pci/devices" / address

    def read(self, path: Path) -> str:
        """The text of an attribute without the end of its line; empty if there is none."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""

    def write(self, path: Path, text: str) -> None:
        """Write an attribute at once. Raises OSError."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def run(self, name: str, *arguments: str) -> str:
        """Output of a program of the system. Raises RefusedError with what it complained of."""
        places = [Path(place) / name for place in ("/usr/sbin", "/sbin", "/usr/bin", "/bin")]
        program = next((place for place in places if place.is_file()), None)
        if program is None:
            raise RefusedError(f"the program {name} was not found", "install its package")
        done = subprocess.run(
            [program, *arguments],
            env={"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            complaint = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            raise RefusedError(f"`{name} {' '.join(arguments)}`: {complaint}", _TAKEN_BY_DRIVER)
        return done.stdout

    def link(self, path: Path) -> str:
        """The last part of what a symbolic link points to; empty if there is none."""
        return path.readlink().name if path.is_symlink() else ""

    def functions(self, physical: str) -> list[str]:
        """Addresses of the virtual functions of a physical one, by their numbers."""
        links = {int(each.name[6:]): each for each in self.device(physical).glob("virtfn[0-9]*")}
        return [self.link(links[number]) for number in sorted(links)]

    def names(self, address: str, kind: str) -> list[str]:
        """Names of a device's network interfaces ("net") or RDMA devices ("infiniband")."""
        place = self.device(address) / kind
        return sorted(each.name for each in place.iterdir()) if place.is_dir() else []

    def use(self, address: str) -> str:
        """Why a function must not be taken from whoever has it; empty if it may be."""
        device = self.device(address)
        driver = self.link(device / "driver")
        if driver == VFIO:
            # Only an open vfio device is enabled: all users can see that, the processes not.
            return (
                "a program has it open through vfio-pci" if self._number(device, "enable") else ""
            )
        interfaces = self.names(address, "net")
        for name in interfaces:
            if self._number(device / "net" / name, "flags") & 1:
                return f"its interface {name} is up"
        ethernet = self.read(device / "class").startswith(_ETHERNET_CLASS)
        if driver and ethernet and not interfaces:
            return f"its interface, of driver {driver}, is in another network namespace"
        return ""

    def _number(self, place: Path, name: str) -> int:
        try:
            return int(self.read(place / name) or "0", 0)
        except ValueError:
            return 0


_TAKEN_BY_DRIVER = (
    "see whether the card's driver takes this setting (rates only while its link is up), and what"
    " `dmesg` says"
)
_IOMMU_OFF = "switch it on: intel_iommu=on (or AMD's in the firmware) on the kernel's command line"


def perform(host: Host, user: int, request: object) -> dict[str, Any]:
    """Do what a request asks for, for a user. Raises RefusedError or OSError."""
    if not isinstance(request, dict) or request.pop("protocol", None) != PROTOCOL:
        raise RefusedError(
            f"the privileged helper is of another version ({PROTOCOL}) than the command",
            "install the helper again, see docs/functions.md",
        )
    operation = request.pop("operation", None)
    handler, forms = _OPERATIONS.get(str(operation), (None, {}))
    if handler is None or set(request) != set(forms):
        raise RefusedError("this is no request that the helper knows", "see docs/functions.md")
    for name, form in forms.items():
        _check(name, request[name], form)
    with _locked(host.records):
        records = _load(host)
        return handler(host, user, records, **request)


def _count(
    host: Host, user: int, records: Records, physical: str, count: int, owner: str
) -> dict[str, Any]:
    """Make a physical function have this many virtual ones."""
    device = host.device(physical)
    total = host.read(device / "sriov_totalvfs")
    if not total or not host.read(device / "class").startswith(_NETWORK_CLASS):
        raise RefusedError(
            f"{physical} is no network card that can have virtual functions",
            "see `vicinal functions list` for those that can",
        )
    if count > int(total):
        raise RefusedError(
            f"{count} virtual functions were asked of {physical}, whose firmware allows {total}",
            "ask for fewer, or raise the limit in the firmware (mstconfig: SRIOV_EN, NUM_OF_VFS)",
        )
    before = int(host.read(device / "sriov_numvfs") or "0")
    _check_owner(records["physical"].get(physical), physical, user, owner)
    for function in host.functions(physical):
        record = records["functions"].get(function)
        if record is not None and count != before:
            raise RefusedError(
                f"{function} of {physical} is assigned to {record['owner']}",
                f"release it first: vicinal functions release {function}",
            )
        reason = host.use(function)
        if reason and count != before:
            raise RefusedError(
                f"{function} of {physical} is in use: {reason}", "end what uses it, then try again"
            )
    if before and count not in (0, before) and physical not in records["physical"]:
        raise RefusedError(
            f"{physical} has {before} virtual functions already, which are not ours",
            f"use those, or remove them first: vicinal functions remove {physical}",
        )
    try:
        if count != before:
            records["physical"][physical] = {"owner": owner, "user": user, "count": count}
            _save(host, records)
            _set_count(host, device, before, count)
    finally:
        if host.read(device / "sriov_numvfs") == "0":
            records["physical"].pop(physical, None)
            _save(host, records)
    return {"before": before, "count": count, "made": count != before}


def _set_count(host: Host, device: Path, before: int, count: int) -> None:
    attribute = device / "sriov_numvfs"
    try:
        if before:
            host.write(attribute, "0")
        if count:
            host.write(attribute, str(count))
    except OSError as error:
        now = host.read(attribute)
        raise RefusedError(
            f"{count} virtual functions of {device.name} were refused"
            f" ({(error.strerror or str(error)).lower()}), {now or 'no'} are there",
            _REMEDIES.get(error.errno or 0, "see what `dmesg` says"),
        ) from error
    now = host.read(attribute)
    if now != str(count):
        # Some firmware takes the number without a word and makes fewer, or none.
        if now != "0":
            host.write(attribute, "0")
        raise RefusedError(
            f"{count} virtual functions were asked of {device.name}, and without an error"
            f" {now or 'none'} came; now there are none",
            "see the limits in the firmware (mstconfig: SRIOV_EN, NUM_OF_VFS) and what dmesg says",
        )


_REMEDIES = {
    errno.EBUSY: "one of them is in use, by a virtual machine or a driver: end that first",
    errno.ENOENT: "the driver makes functions only when it is loaded: give it num_vfs=N as a"
    " module parameter (mlx4_core), and load it again",
    errno.ENOMEM: "see that the firmware gives SR-IOV devices address space, or boot with"
    " pci=realloc",
    errno.EINVAL: "switch SR-IOV on in the machine's and in the card's firmware",
}


def _claim(host: Host, user: int, records: Records, function: str, owner: str) -> dict[str, Any]:
    """Note that a function is an owner's, and how it was before."""
    _physical(host, function)
    record = records["functions"].get(function)
    _check_owner(record, function, user, owner)
    if record is None:
        reason = host.use(function)
        if reason:
            raise RefusedError(
                f"{function} is in use: {reason}", "take another one, or end what uses it"
            )
        driver = host.link(host.device(function) / "driver")
        record = {"owner": owner, "user": user, "driver": driver, "before": {}}
        record["since"] = int(time.time())
        records["functions"][function] = record
        _save(host, records)
    return {"record": record}


def _bind(
    host: Host, user: int, records: Records, function: str, owner: str, binding: str
) -> dict[str, Any]:
    """Give a function to vfio-pci, or anew to the driver that it had, so that it reads settings."""
    record = _own(records, function, user, owner)
    reason = host.use(function)
    if reason:
        raise RefusedError(f"{function} is in use: {reason}", "end what uses it, then try again")
    if binding != VFIO:
        return {"driver": _bind_native(host, function, record["driver"])}
    group = host.link(host.device(function) / "iommu_group")
    if not group:
        raise RefusedError(f"{function} is in no IOMMU group: the IOMMU is off", _IOMMU_OFF)
    if not (host.sysfs / "bus/pci/drivers" / VFIO).is_dir():
        host.run("modprobe", VFIO)
    _rebind(host, function, VFIO)
    if host.link(host.device(function) / "driver") != VFIO:
        raise RefusedError(
            f"vfio-pci did not take {function}", "see what `dmesg` says of vfio-pci and the IOMMU"
        )
    _hand_over(host, function, user)  # so that QEMU can run as the user who asked
    return {"driver": VFIO, "group": group}


def _configure(
    host: Host, user: int, records: Records, function: str, owner: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """Set what the card lets its host set of a function; only what is named is touched."""
    record = _own(records, function, user, owner)
    physical, number = _physical(host, function)
    ethernet, infiniband = set(settings) <= set(_ETHERNET), set(settings) <= set(_INFINIBAND)
    if not (ethernet or infiniband):
        raise RefusedError("these settings are not known together", "see docs/functions.md")
    forms = _ETHERNET if ethernet else _INFINIBAND
    for name, value in settings.items():
        _check(name, value, forms[name])
    changes = (_ethernet if ethernet else _infiniband)(host, physical, function, number, settings)
    for path, words in changes:
        if path is not None:
            record["before"].setdefault(str(path), host.read(path))
            _save(host, records)
            try:
                host.write(path, words[0])
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise RefusedError(
                    f"{path.parent.name}/{path.name} of {function} did not take {words[0]}"
                    f" ({reason})",
                    _TAKEN_BY_DRIVER,
                ) from error
        else:
            _note(host, physical, number, record, words)
            _save(host, records)
            host.run("ip", "link", "set", "dev", _interface(host, physical), "vf", *words)
    return {"set": sorted(settings)}


Changes = list[tuple[Path | None, list[str]]]


def _ethernet(
    _host: Host, _physical: str, _function: str, number: int, settings: dict[str, Any]
) -> Changes:
    """What `ip link set` is to be told: one call for each setting, so that errors name it."""
    vf = str(number)
    together = [("mac",), ("vlan", "qos"), ("spoofchk",), ("trust",), ("state",)]
    together.append(("min_tx_rate", "max_tx_rate"))
    changes: Changes = []
    for names in together:
        words = [word for name in names if name in settings for word in (name, settings[name])]
        if words:
            changes.append((None, [vf, *(_word(word) for word in words)]))
    return changes


def _infiniband(
    host: Host, physical: str, function: str, number: int, settings: dict[str, Any]
) -> Changes:
    """What is written where: mlx5 of the vendor's drivers, mlx4, or `ip link` for the kernel's."""
    device = host.device(physical)
    own = device / "sriov" / str(number)
    names = {"node_guid": "node", "port_guid": "port", "policy": "policy"}
    port = settings.pop("port", 1)
    iov = [device / "infiniband" / name / "iov" for name in host.names(physical, "infiniband")]
    iov = [each for each in iov if each.is_dir()]
    if own.is_dir() and "pkey_index" not in settings:
        texts = {name: _POLICY.get(value, value) for name, value in settings.items()}
        return [(own / names[name], [text]) for name, text in texts.items()]
    if iov and set(settings) <= {"port_guid", "pkey_index"}:
        return [_mlx4(host, iov[0], function, number, port, *each) for each in settings.items()]
    if iov or "pkey_index" in settings:
        raise RefusedError(
            f"the driver of {physical} cannot set {' and '.join(sorted(settings))}",
            "set on mlx4 the port GUID and the partition, on mlx5 GUIDs and policy",
        )
    words = {"policy": "state"}
    pairs = settings.items()
    return [(None, [str(number), words.get(name, name), value]) for name, value in pairs]


def _mlx4(
    host: Host, iov: Path, function: str, number: int, port: int, name: str, value: Any
) -> tuple[Path, list[str]]:
    tables = iov / function / "ports" / str(port)
    if name == "pkey_index":
        return tables / "pkey_idx/0", [str(value)]
    # Entry 0 is the physical function's own.
    index = host.read(tables / "gid_idx/0") or str(number + 1)
    if not index.isdigit() or index == "0":
        raise RefusedError(f"{function} has no GUID entry of its own", "see what `dmesg` says")
    guid = "0x" + value.replace(":", "")
    return iov / "ports" / str(port) / "admin_guids" / index, [guid]


def _release(host: Host, user: int, records: Records, function: str, owner: str) -> dict[str, Any]:
    """Put a function back as it was when it was claimed; nothing is to be done if it is gone."""
    if function not in records["functions"]:
        return {"released": False, "notes": []}
    record = _own(records, function, user, owner)
    notes: list[str] = []
    if host.device(function).is_dir():
        reason = host.use(function)
        if reason:
            raise RefusedError(
                f"{function} is in use: {reason}", "end what uses it, then release it again"
            )
        physical, _number = _physical(host, function)
        _hand_over(host, function, 0)
        for place, text in reversed(list(record["before"].items())):
            try:
                if place.startswith("vf "):
                    words = text.split()
                    host.run("ip", "link", "set", "dev", _interface(host, physical), *words)
                elif text:
                    host.write(Path(place), text)
            except (OSError, RefusedError) as error:
                notes.append(f"{place} was not set back: {error.args[0]}")
        if record["before"] or record["driver"] != host.link(host.device(function) / "driver"):
            _bind_native(host, function, record["driver"])
    del records["functions"][function]
    _save(host, records)
    return {"released": True, "notes": notes}


def _note(host: Host, physical: str, number: int, record: dict[str, Any], words: list[str]) -> None:
    """Keep what `ip` says of settings now, as the words that set them back."""
    listed = json.loads(host.run("ip", "-j", "link", "show", "dev", _interface(host, physical)))
    all_of_it = (listed[0] if listed else {}).get("vfinfo_list", [])
    now: dict[str, Any] = next((each for each in all_of_it if each.get("vf") == number), {})
    values = {
        "mac": now.get("address"),
        "vlan": (now.get("vlan_list") or [{}])[0].get("vlan", 0),
        "spoofchk": now.get("spoofchk"),
        "trust": now.get("trust"),
        "state": now.get("link_state"),
        "max_tx_rate": now.get("rate", {}).get("max_tx"),
        "min_tx_rate": now.get("rate", {}).get("min_tx"),
    }
    for name in words[1::2]:
        value = values.get(name)
        if value is not None:
            key = f"vf {number} {name}"
            record["before"].setdefault(key, f"vf {number} {name} {_word(value)}")


def _hand_over(host: Host, function: str, user: int) -> None:
    """Let a user open what vfio-pci offers of a function."""
    node = host.groups / (host.link(host.device(function) / "iommu_group") or "none")
    if node.exists():
        os.chown(node, user, -1)


def _bind_native(host: Host, function: str, driver: str) -> str:
    """Bind a function anew to whichever driver wants it; to none if it had none."""
    _rebind(host, function, "" if driver else None)
    now = host.link(host.device(function) / "driver")
    if driver and now != driver:
        raise RefusedError(
            f"{function} went back to {now or 'no driver'}, and had {driver}",
            f"load the module of {driver}, and see what `dmesg` says",
        )
    return now


def _rebind(host: Host, function: str, override: str | None) -> None:
    device = host.device(function)
    host.write(device / "driver_override", f"{override or ''}\n")
    if host.link(device / "driver"):
        host.write(device / "driver" / "unbind", function)
    if override is not None:
        # Its answer says nothing: the caller looks which driver has the function afterwards.
        with contextlib.suppress(OSError):
            host.write(host.sysfs / "bus/pci/drivers_probe", function)


def _physical(host: Host, function: str) -> tuple[str, int]:
    """The physical function of a virtual one, and its number there; both ends must agree."""
    physical = host.link(host.device(function) / "physfn")
    if not physical or function not in (functions := host.functions(physical)):
        raise RefusedError(
            f"{function} is no virtual function of this host", "see `vicinal functions list`"
        )
    return physical, functions.index(function)


def _interface(host: Host, physical: str) -> str:
    interfaces = host.names(physical, "net")
    if not interfaces:
        raise RefusedError(
            f"{physical} has no network interface here, by which its functions are set",
            "load its driver (for InfiniBand ib_ipoib too), and see that no namespace has it",
        )
    return interfaces[0]


def _own(records: Records, function: str, user: int, owner: str) -> dict[str, Any]:
    record = records["functions"].get(function)
    if record is None:
        raise RefusedError(f"{function} is not assigned", "assign it first")
    _check_owner(record, function, user, owner)
    return record


def _check_owner(record: dict[str, Any] | None, what: str, user: int, owner: str) -> None:
    if record is None:
        return
    if record["owner"] != owner:
        raise RefusedError(
            f"{what} belongs to {record['owner']}, not to {owner}",
            f"name that with --owner {record['owner']}, or take another function",
        )
    if user not in (0, record["user"]):
        raise RefusedError(
            f"{what} belongs to {record['owner']} of user {record['user']}",
            "let that user or root do it, or choose another name",
        )


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _check(name: str, value: object, form: Form) -> None:
    if isinstance(form, re.Pattern):
        good = isinstance(value, str) and form.fullmatch(value) is not None
    elif isinstance(form, range):
        good = isinstance(value, int) and not isinstance(value, bool) and value in form
    else:
        good = isinstance(value, form)
    if not good:
        raise RefusedError(f"{name} cannot be {str(value)[:60]!r}", "see docs/functions.md")


def _load(host: Host) -> Records:
    records: Records = {"physical": {}, "functions": {}}
    text = host.read(host.records / "records.json")
    if text:
        records.update(json.loads(text))
    return records


def _save(host: Host, records: Records) -> None:
    fresh = host.records / "records.part"
    fresh.write_text(json.dumps(records, indent=1))
    fresh.chmod(0o644)
    fresh.replace(host.records / "records.json")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RefusedError(
                        "another `vicinal functions` is changing functions", "try again after it"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(lock)


_ONE: dict[str, Form] = {"function": _ADDRESS, "owner": _OWNER}
_OPERATIONS: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Form]]] = {
    "count": (_count, {"physical": _ADDRESS, "count": range(1024), "owner": _OWNER}),
    "claim": (_claim, _ONE),
    "configure": (_configure, {**_ONE, "settings": dict}),
    "bind": (_bind, {**_ONE, "binding": _BINDINGS}),
    "release": (_release, _ONE),
}


def main() -> int:
    """Answer the one request on standard input."""
    if os.geteuid() != 0:
        answer: dict[str, Any] = {"error": ["the helper was not run as root", "use sudo"]}
    else:
        os.umask(0o022)
        user = int(os.environ.get("SUDO_UID", "0"))
        try:
            answer = perform(Host(), user, json.loads(sys.stdin.read(_REQUEST_BYTES)))
        except RefusedError as error:
            answer = {"error": list(error.args)}
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answer = {"error": [f"the helper failed ({error})", "see what `dmesg` says"]}
    sys.stdout.write(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
