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
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Form = re.Pattern[str] | range | type
Fields = dict[str, Any]

PROTOCOL = 2
VFIO = "vfio-pci"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
_GUID = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){7}")
_STATE = re.compile(r"auto|enable|disable")
_RATE = range(1 << 24)

_ONE: dict[str, Form] = {"function": _ADDRESS, "owner": _OWNER}
_OPERATIONS: dict[str, dict[str, Form]] = {
    "count": {"physical": _ADDRESS, "count": range(1024), "owner": _OWNER},
    "configure": {**_ONE, "settings": dict},
    "bind": {**_ONE, "binding": re.compile("vfio-pci|native")},
    **dict.fromkeys(("claim", "reset", "release"), _ONE),
}
_ETHERNET: dict[str, Form] = {"mac": _MAC, "vlan": range(4095), "qos": range(8), "spoofchk": bool}
_ETHERNET |= {"trust": bool, "state": _STATE, "min_tx_rate": _RATE, "max_tx_rate": _RATE}
_RATES = ["min_tx_rate", "max_tx_rate"]
_OUTSIDE = {*_RATES, "state"}
"""What a function's own driver never reads."""
_INFINIBAND: dict[str, Form] = {"node_guid": _GUID, "port_guid": _GUID, "policy": _STATE}
_INFINIBAND |= {"pkey_index": range(128), "port": range(1, 3)}
_POLICY = {"auto": "Follow", "enable": "Up", "disable": "Down"}

_ETHERNET_CLASS, _NETWORK_CLASS = "0x0200", "0x02"
_LOCK_SECONDS, _COMMAND_SECONDS, _REQUEST_BYTES = 10.0, 20.0, 65536

_AUDIT = "see docs/functions.md"
_DMESG = "see what `dmesg` says"
_END_IT = "end what uses it, then try again"
_LIST = "see `vicinal functions list`"
_NOT_TAKEN = "see whether the card's driver takes it (rates only while its link is up), and `dmesg`"
_COUNT_REMEDIES = {
    errno.EBUSY: "one of them is in use, by a virtual machine or a driver: end that first",
    errno.ENOENT: "the driver makes functions only when it is loaded: give it num_vfs=N as a"
    " module parameter (mlx4_core), and load it again",
    errno.ENOMEM: "see that the firmware gives SR-IOV address space, or boot with pci=realloc",
    errno.EINVAL: "switch SR-IOV on in the machine's and in the card's firmware",
}


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

    def give(self, path: Path, user: int) -> None:
        """Make a file a user's."""
        os.chown(path, user, -1)

    def run(self, name: str, *arguments: str) -> str:
        """Output of a program of the system. Raises RefusedError with what it complained of."""
        program = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
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
            raise RefusedError(f"`{name} {' '.join(arguments)}`: {complaint}", _NOT_TAKEN)
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
            opened = self.read(device / "enable") not in ("", "0")
            return "a program has it open through vfio-pci" if opened else ""
        interfaces = self.names(address, "net")
        for name in interfaces:
            if int(self.read(device / "net" / name / "flags") or "0", 0) & 1:
                return f"its interface {name} is up"
        ethernet = self.read(device / "class").startswith(_ETHERNET_CLASS)
        if driver and ethernet and not interfaces:
            return f"its interface, of driver {driver}, is in another network namespace"
        return ""


def perform(host: Host, user: int, request: object) -> Fields:
    """Do what a request asks for, for a user. Raises RefusedError or OSError."""
    if not isinstance(request, dict) or request.pop("protocol", None) != PROTOCOL:
        what = f"the privileged helper is of another version ({PROTOCOL}) than the command"
        raise RefusedError(what, f"install the helper again, {_AUDIT}")
    operation = str(request.pop("operation", None))
    forms = _OPERATIONS.get(operation, {})
    if not forms or set(request) != set(forms):
        raise RefusedError("this is no request that the helper knows", _AUDIT)
    for name, form in forms.items():
        _check(name, request[name], form)
    with _locked(host.records):
        answer: Fields = getattr(_Operations(host, user), operation)(**request)
        return answer


class _Operations:
    """What the helper can do, each operation of its vocabulary by its name."""

    def __init__(self, host: Host, user: int) -> None:
        self.host, self.user = host, user
        kept = json.loads(host.read(host.records / "records.json") or "{}")
        self.made: dict[str, Fields] = kept.get("physical", {})
        """For whom each physical function has its virtual ones."""
        self.claimed: dict[str, Fields] = kept.get("functions", {})
        """Whose each virtual function is, and how it was before."""

    def count(self, physical: str, count: int, owner: str) -> Fields:
        """Make a physical function have this many virtual ones."""
        device = self.host.device(physical)
        total = self.host.read(device / "sriov_totalvfs")
        if not total or not self.host.read(device / "class").startswith(_NETWORK_CLASS):
            raise RefusedError(f"{physical} is no network card that can have functions", _LIST)
        if count > int(total):
            raise RefusedError(
                f"{count} functions were asked of {physical}, whose firmware allows {total}",
                "ask for fewer, or raise the limit in the firmware (mstconfig: NUM_OF_VFS)",
            )
        before = int(self.host.read(device / "sriov_numvfs") or "0")
        self._check_owner(self.made.get(physical), physical, owner)
        if count == before:
            if not count and self.made.pop(physical, {}):  # of a helper that was killed
                self._save()
            return {"before": before}
        if before and count and physical not in self.made:
            what = f"{physical} has {before} functions already, which are not ours"
            raise RefusedError(what, f"use them, or first: vicinal functions remove {physical}")
        for function in self.host.functions(physical):
            if function in self.claimed:
                what = f"{function} of {physical} is assigned to {self.claimed[function]['owner']}"
                raise RefusedError(what, f"first: vicinal functions release {function}")
            self._check_unused(function, f"{function} of {physical}")
        self.made[physical] = {"owner": owner, "user": self.user}
        self._save()
        try:
            self._set_count(device, before, count)
        finally:
            if self.host.read(device / "sriov_numvfs") == "0":
                del self.made[physical]
                self._save()
        return {"before": before}

    def _set_count(self, device: Path, before: int, count: int) -> None:
        attribute = device / "sriov_numvfs"
        try:
            if before:
                self.host.write(attribute, "0")
            if count:
                self.host.write(attribute, str(count))
        except OSError as error:
            what = f"{count} functions of {device.name} were refused ({_reason(error)})"
            raise RefusedError(what, _COUNT_REMEDIES.get(error.errno or 0, _DMESG)) from error
        if (now := self.host.read(attribute)) != str(count):
            # Some firmware takes the number without a word and makes fewer, or none.
            if now != "0":
                self.host.write(attribute, "0")
            raise RefusedError(
                f"{count} functions were asked of {device.name}, and without an error"
                f" {now or 'none'} came; now there are none",
                f"see the limits in the firmware (mstconfig: SRIOV_EN, NUM_OF_VFS), and {_DMESG}",
            )

    def claim(self, function: str, owner: str) -> Fields:
        """Note that a function is an owner's, and how it was before."""
        self._physical(function)
        self._check_owner(self.claimed.get(function), function, owner)
        if function in self.claimed:
            return {"new": False}
        self._check_unused(function, function)
        record = {"owner": owner, "user": self.user, "driver": self._driver(function)}
        self.claimed[function] = {**record, "before": {}, "bound": False}
        self._save()
        return {"new": True}

    def bind(self, function: str, owner: str, binding: str) -> Fields:
        """Give a function to vfio-pci, or anew to its own driver, which so reads its settings."""
        record = self._own(function, owner)
        self._check_unused(function, function)
        record["bound"] = True
        self._save()
        if binding != VFIO:
            self._bind_native(function, record["driver"])
            return {}
        if not self.host.link(self.host.device(function) / "iommu_group"):
            what = f"{function} is in no IOMMU group: the IOMMU is off"
            raise RefusedError(what, "switch it on in the firmware and the kernel (intel_iommu=on)")
        if not (self.host.sysfs / "bus/pci/drivers" / VFIO).is_dir():
            self.host.run("modprobe", VFIO)
        if self._rebind(function, VFIO) != VFIO:
            raise RefusedError(f"vfio-pci did not take {function}", f"{_DMESG} of it")
        self._hand_over(function, self.user)  # so that QEMU can run as the user who asked
        return {}

    def configure(self, function: str, owner: str, settings: Fields) -> Fields:
        """Set what the card lets its host set of a function; only what is named is touched."""
        record = self._own(function, owner)
        physical, number = self._physical(function)
        forms = _ETHERNET if set(settings) <= set(_ETHERNET) else _INFINIBAND
        if not set(settings) <= set(forms):
            raise RefusedError("these settings are not known together", _AUDIT)
        for name, value in settings.items():
            _check(name, value, forms[name])
        if forms is _ETHERNET:
            together = (["mac"], ["vlan", "qos"], ["spoofchk"], ["trust"], ["state"], _RATES)
            chosen = ([name for name in names if name in settings] for names in together)
            for names in filter(None, chosen):
                words = [text for name in names for text in (name, word(settings[name]))]
                self._set_by_ip(record, physical, number, words)
            return {}
        for target, text in self._infiniband(physical, function, number, settings):
            if isinstance(target, str):
                self._set_by_ip(record, physical, number, [target, text])
                continue
            record["before"].setdefault(str(target), self.host.read(target))
            self._save()
            try:
                self.host.write(target, text)
            except OSError as error:
                what = f"{target.parent.name}/{target.name} of {function} did not take {text}"
                raise RefusedError(f"{what} ({_reason(error)})", _NOT_TAKEN) from error
        return {}

    def _infiniband(
        self, physical: str, function: str, number: int, settings: Fields
    ) -> Iterator[tuple[Path | str, str]]:
        """Files or names of `ip link`, and what each is to be told; it depends on the driver."""
        device = self.host.device(physical)
        port = str(settings.pop("port", 1))
        places = (device / "infiniband" / name for name in self.host.names(physical, "infiniband"))
        iov = next((each / "iov" for each in places if (each / "iov").is_dir()), None)
        vendors = device / "sriov" / str(number)
        wrong = set(settings) - ({"port_guid", "pkey_index"} if iov else set(_INFINIBAND))
        if wrong or ("pkey_index" in settings and iov is None):
            what = f"the driver of {physical} cannot set {' and '.join(sorted(settings))}"
            raise RefusedError(what, "it can set the port GUID and, on mlx4, the partition")
        for name, value in settings.items():
            if iov is None and vendors.is_dir():
                file = vendors / {"node_guid": "node", "port_guid": "port"}.get(name, name)
                yield file, str(_POLICY.get(value, value))
            elif iov is None:
                yield {"policy": "state"}.get(name, name), value
            elif name == "pkey_index":
                yield iov / function / "ports" / port / "pkey_idx/0", str(value)
            else:
                # Entry 0 is the physical function's own.
                own = self.host.read(iov / function / "ports" / port / "gid_idx/0")
                index = int(own) if own.isdecimal() and own != "0" else number + 1
                file = iov / "ports" / port / "admin_guids" / str(index)
                yield file, "0x" + value.replace(":", "")

    def release(self, function: str, owner: str) -> Fields:
        """Put a function back as it was when it was claimed; if it is gone, forget it."""
        answer = self.reset(function, owner) if function in self.claimed else {"notes": []}
        if self.claimed.pop(function, None) is not None:
            self._save()
        return answer

    def reset(self, function: str, owner: str) -> Fields:
        """The same, but it stays its owner's."""
        record = self._own(function, owner)
        notes: list[str] = []
        if self.host.device(function).is_dir():
            self._check_unused(function, function)
            physical, _number = self._physical(function)
            for place, text in reversed(list(record["before"].items())):
                try:
                    if place.startswith("vf "):
                        self._ip(physical, *place.split(), text)
                    elif text:
                        self.host.write(Path(place), text)
                except (OSError, RefusedError) as error:
                    notes.append(f"{place} was not set back: {error.args[0]}")
            told = {place.rpartition(" ")[2] for place in record["before"]}
            if record.get("bound", True) or not told <= _OUTSIDE:  # else who has it keeps it
                self._hand_over(function, 0)
                if record["before"] or record["driver"] != self._driver(function):
                    self._bind_native(function, record["driver"])
        return {"notes": notes}

    def _set_by_ip(self, record: Fields, physical: str, number: int, words: list[str]) -> None:
        """Set something by `ip link`, and keep what it was, where `ip` can say that."""
        now = set_by_ip(self.host, self._net(physical)).get(number, {})
        for name in now.keys() & set(words[::2]):
            record["before"].setdefault(f"vf {number} {name}", now[name])
        self._save()
        self._ip(physical, "vf", str(number), *words)

    def _ip(self, physical: str, *words: str) -> None:
        self.host.run("ip", "link", "set", "dev", self._net(physical), *words)

    def _net(self, physical: str) -> str:
        interfaces = self.host.names(physical, "net")
        if not interfaces:
            what = f"{physical} has no network interface here, by which its functions are set"
            remedy = "load its driver (for InfiniBand ib_ipoib too), or see which namespace has it"
            raise RefusedError(what, remedy)
        return interfaces[0]

    def _hand_over(self, function: str, user: int) -> None:
        """Let a user open what vfio-pci offers of a function."""
        group = self.host.link(self.host.device(function) / "iommu_group")
        if group and (self.host.groups / group).exists():
            self.host.give(self.host.groups / group, user)

    def _bind_native(self, function: str, driver: str) -> None:
        override = VFIO if driver == VFIO else ""  # an administrator's, that no driver asks for
        now = self._rebind(function, override if driver else None)
        if driver and now != driver:
            what = f"{function} went back to {now or 'no driver'}, and had {driver}"
            raise RefusedError(what, f"load the module of {driver}, and {_DMESG}")

    def _rebind(self, function: str, override: str | None) -> str:
        """Take a function from its driver; give it to another, "": the one that wants it."""
        device = self.host.device(function)
        self.host.write(device / "driver_override", f"{override or ''}\n")
        if self._driver(function):
            self.host.write(device / "driver" / "unbind", function)
        if override is not None:
            # An error of this says nothing: who has the function afterwards does.
            with contextlib.suppress(OSError):
                self.host.write(self.host.sysfs / "bus/pci/drivers_probe", function)
        return self._driver(function)

    def _driver(self, function: str) -> str:
        return self.host.link(self.host.device(function) / "driver")

    def _physical(self, function: str) -> tuple[str, int]:
        """The physical function of a virtual one, and its number there; both must agree."""
        physical = self.host.link(self.host.device(function) / "physfn")
        functions = self.host.functions(physical) if physical else []
        if function not in functions:
            raise RefusedError(f"{function} is no virtual function of this host", _LIST)
        return physical, functions.index(function)

    def _own(self, function: str, owner: str) -> Fields:
        if function not in self.claimed:
            raise RefusedError(f"{function} is not assigned", "assign it first")
        self._check_owner(self.claimed[function], function, owner)
        return self.claimed[function]

    def _check_owner(self, record: Fields | None, what: str, owner: str) -> None:
        if record is not None and record["owner"] != owner:
            whose = record["owner"]
            remedy = f"name that with --owner {whose}, or take another one"
            raise RefusedError(f"{what} belongs to {whose}, not to {owner}", remedy)
        if record is not None and self.user not in (0, record["user"]):
            whose = f"{record['owner']} of user {record['user']}"
            raise RefusedError(f"{what} belongs to {whose}", "let that user or root do it")

    def _check_unused(self, function: str, what: str) -> None:
        reason = self.host.use(function)
        if reason:
            raise RefusedError(f"{what} is in use: {reason}", _END_IT)

    def _save(self) -> None:
        fresh = self.host.records / "records.part"
        fresh.write_text(json.dumps({"physical": self.made, "functions": self.claimed}, indent=1))
        fresh.chmod(0o644)
        fresh.replace(self.host.records / "records.json")


def set_by_ip(host: Host, interface: str) -> dict[int, dict[str, str]]:
    """What `ip` says is set of each function of a card, in the words that would set it."""
    found = {}
    for card in json.loads(host.run("ip", "-j", "link", "show", "dev", interface)):
        for function in card.get("vfinfo_list", []):
            rate, vlans = function.get("rate", {}), function.get("vlan_list") or [{}]
            values = {"mac": function.get("address"), "vlan": vlans[0].get("vlan", 0)}
            values |= {name: function.get(name) for name in ("spoofchk", "trust")}
            values |= {f"{end}_tx_rate": rate.get(f"{end}_tx") for end in ("min", "max")}
            values["state"] = function.get("link_state")
            words = {name: word(value) for name, value in values.items() if value is not None}
            found[int(function["vf"])] = words
    return found


def _check(name: str, value: object, form: Form) -> None:
    if isinstance(form, re.Pattern):
        good = isinstance(value, str) and form.fullmatch(value) is not None
    elif isinstance(form, range):
        good = isinstance(value, int) and not isinstance(value, bool) and value in form
    else:
        good = isinstance(value, form)
    if not good:
        raise RefusedError(f"{name} cannot be {str(value)[:60]!r}", _AUDIT)


def word(value: object) -> str:
    """A setting as it is written: on and off for what is true or not."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_SECONDS
    # Others may not even read it, or they could hold it.
    with os.fdopen(os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    what = "another `vicinal functions` is changing functions"
                    raise RefusedError(what, "try again after it") from None
                time.sleep(0.05)
        yield


def main() -> int:
    """Answer the one request on standard input."""
    os.umask(0o022)
    user = int(os.environ.get("SUDO_UID", "0"))
    try:
        if os.geteuid() != 0:
            raise RefusedError("the helper was not run as root", "use sudo")
        answer = perform(Host(), user, json.loads(sys.stdin.read(_REQUEST_BYTES)))
    except RefusedError as error:
        answer = {"error": list(error.args)}
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        answer = {"error": [f"the privileged helper failed ({error})", _DMESG]}
    sys.stdout.write(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
