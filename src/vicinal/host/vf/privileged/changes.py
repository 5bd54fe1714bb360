"""The operations of the privileged helper, each a method with the operation's name.

Paths are built only here and in system.py, from a PCI address whose form and whose directory in
sysfs were checked. No part of a request reaches a shell.

A file of records names the owner of each change, and is written before the change. So the remains
of a killed command can be found and released. The file is in /run, which a reboot clears together
with the VFs.
"""

import contextlib
import errno
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .requests import INFINIBAND, OUTSIDE, RATES, Fields, check_settings, is_ethernet
from .system import (
    NOT_TAKEN,
    POLICIES,
    VFIO,
    Host,
    RefusedError,
    read_settings,
    set_by_ip,
    word,
)

_NETWORK_CLASS = "0x02"

DMESG = "see what `dmesg` says"
_END_IT = "end what uses it, then try again"
_LIST = "see `vicinal vf list`"
_COUNT_REMEDIES = {
    errno.EBUSY: "one of them is in use, by a virtual machine or a driver: end that first",
    errno.ENOENT: "the driver makes VFs only when it is loaded: give it num_vfs=N as a"
    " module parameter (mlx4_core), and load it again",
    errno.ENOMEM: "see that the firmware gives SR-IOV address space, or boot with pci=realloc",
    errno.EINVAL: "switch SR-IOV on in the machine's and in the card's firmware",
}


class Changes:
    """The changes that a user may request on this host, each a method with the request's name."""

    def __init__(self, host: Host, user: int) -> None:
        self.host, self.user = host, user
        kept = json.loads(host.read(host.records / "records.json") or "{}")
        self.made: dict[str, Fields] = kept.get("physical", {})
        """The owner of each physical function's virtual functions."""
        self.claimed: dict[str, Fields] = kept.get("vfs", {})
        """The owner of each virtual function, and the VF's former settings."""
        self._shown: dict[str, dict[int, dict[str, str]]] = {}
        """Output of `ip` for each card's VFs before the first change."""

    def count(self, physical: str, count: int, owner: str) -> Fields:
        """Create `count` virtual functions on a physical function; 0 removes all."""
        device = self.host.device(physical)
        total = self.host.read(device / "sriov_totalvfs")
        if not total or not self.host.read(device / "class").startswith(_NETWORK_CLASS):
            raise RefusedError(f"{physical} is no network card that can have VFs", _LIST)
        if count > int(total):
            raise RefusedError(
                f"{count} VFs were asked of {physical}, whose firmware allows {total}",
                "ask for fewer, or raise the limit in the firmware (mstconfig: NUM_OF_VFS)",
            )
        before = int(self.host.read(device / "sriov_numvfs") or "0")
        self._check_owner(self.made.get(physical), physical, owner)
        if count == before:
            if not count and self.made.pop(physical, {}):  # left by a killed helper
                self._save()
            return {"before": before}
        if before and count and physical not in self.made:
            what = f"{physical} has {before} VFs already, which are not ours"
            raise RefusedError(what, f"use them, or first: vicinal vf remove {physical}")
        for vf in self.host.vfs(physical):
            if vf in self.claimed:
                what = f"{vf} of {physical} is assigned to {self.claimed[vf]['owner']}"
                raise RefusedError(what, f"first: vicinal vf release {vf}")
            self._check_unused(vf, f"{vf} of {physical}")
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
            what = f"{count} VFs of {device.name} were refused ({_reason(error)})"
            raise RefusedError(what, _COUNT_REMEDIES.get(error.errno or 0, DMESG)) from error
        if (now := self.host.read(attribute)) != str(count):
            # Some firmware accepts the number without an error, and creates fewer VFs or
            # none.
            if now != "0":
                self.host.write(attribute, "0")
            raise RefusedError(
                f"{count} VFs were asked of {device.name}, and without an error"
                f" {now or 'none'} came; now there are none",
                f"see the limits in the firmware (mstconfig: SRIOV_EN, NUM_OF_VFS), and {DMESG}",
            )

    def assign(self, vfs: list[Fields], owner: str) -> Fields:
        """Assign VFs to an owner, configure them, and bind those with a binding.

        All or none: if a step fails, the newly assigned VFs are restored and free again. If a
        VF that must be free has an owner, even this owner, nothing is changed.
        """
        addresses = [each["vf"] for each in vfs]
        for each in vfs:
            check_settings(each["settings"])
        if len(set(addresses)) < len(addresses):
            raise RefusedError("a VF was named twice", "name each once")
        fresh = {each["vf"] for each in vfs if each["fresh"]}
        if fresh & self.claimed.keys():
            return {"taken": sorted(fresh & self.claimed.keys())}
        new = self._claim(addresses, owner)
        try:
            for each in vfs:
                if each["settings"]:
                    self.configure(each["vf"], owner, each["settings"])
                if each["binding"]:
                    self.bind(each["vf"], owner, each["binding"])
        except (OSError, RefusedError, subprocess.SubprocessError) as error:
            self._undo(new, owner, error)
            raise
        return {"taken": []}

    def _undo(self, vfs: list[str], owner: str, error: Exception) -> None:
        """Release VFs in reverse order. Raises RefusedError with both causes if that
        fails."""
        left = self.release(vfs[::-1], owner)["left"]
        if left:
            what = error.args[0] if isinstance(error, RefusedError) else str(error)
            why, remedy = left[0]
            raise RefusedError(f"{what}; and undoing it failed ({why})", remedy) from error

    def _claim(self, vfs: list[str], owner: str) -> list[str]:
        """Record the owner and the former state of VFs; return those that were free before.

        All records are written before any VF is changed.
        """
        found: dict[str, Fields] = {}
        for vf in vfs:
            self._physical(vf)
            self._check_owner(self.claimed.get(vf), vf, owner)
            if vf in self.claimed:
                continue
            self._check_unused(vf, vf)
            record = {"owner": owner, "user": self.user, "driver": self._driver(vf)}
            found[vf] = {**record, "before": {}, "bound": False}
        if found:
            self.claimed |= found
            self._save()
        return list(found)

    def bind(self, vf: str, owner: str, binding: str) -> Fields:
        """Bind a VF to vfio-pci, or again to its own driver, which then reads the
        settings."""
        record = self._own(vf, owner)
        self._check_unused(vf, vf)
        record["bound"] = True
        self._save()
        if binding != VFIO:
            self._bind_native(vf, record["driver"])
            return {}
        if not self.host.link(self.host.device(vf) / "iommu_group"):
            what = f"{vf} is in no IOMMU group: the IOMMU is off"
            raise RefusedError(what, "switch it on in the firmware and the kernel (intel_iommu=on)")
        if not (self.host.sysfs / "bus/pci/drivers" / VFIO).is_dir():
            self.host.run("modprobe", VFIO)
        if self._rebind(vf, VFIO) != VFIO:
            raise RefusedError(f"vfio-pci did not take {vf}", f"{DMESG} of it")
        self._hand_over(vf, self.user)  # so that QEMU can run as the requesting user
        return {}

    def grant(self, vf: str, owner: str, user: int) -> Fields:
        """Bind a VF to vfio-pci, and let another user open it; only root may request this."""
        if self.user != 0:
            raise RefusedError("only root grants VFs to others", "do it as root")
        self._own(vf, owner)["granted_to"] = user  # bind() writes this record before it binds
        self.bind(vf, owner, VFIO)
        self._hand_over(vf, user)
        return {}

    def recall(self, vf: str, owner: str) -> Fields:
        """Unbind a VF from its driver, which removes its interface from any network
        namespace.

        reset() and release() bind it again: the driver then creates an interface in the first
        namespace.
        """
        record = self._own(vf, owner)
        self._physical(vf)
        if self._driver(vf) == VFIO:
            self._check_unused(vf, vf)
        record["bound"] = True
        self._save()
        self._rebind(vf, None)
        return {}

    def configure(self, vf: str, owner: str, settings: Fields) -> Fields:
        """Change settings of a VF by its card; other settings stay.

        The settings are read back, because some firmware accepts a setting without any effect.
        """
        record = self._own(vf, owner)
        physical, number = self._physical(vf)
        check_settings(settings)
        self._set(record, physical, vf, number, dict(settings))
        infiniband = not is_ethernet(settings)
        now = read_settings(self.host, physical, infiniband=infiniband).get(number, {})
        for name in settings.keys() & now.keys():
            if word(settings[name]) != now[name]:
                raise RefusedError(
                    f"{physical} took {name} {word(settings[name])} for {vf} without an"
                    f" error, and has {now[name]}",
                    "its driver or firmware does not do this: leave it out",
                )
        return {}

    def _set(self, record: Fields, physical: str, vf: str, number: int, settings: Fields) -> None:
        if is_ethernet(settings):
            groups = (["mac"], ["vlan", "qos"], ["spoofchk"], ["trust"], ["state"], RATES)
            chosen = ([name for name in names if name in settings] for names in groups)
            for names in filter(None, chosen):
                words = [text for name in names for text in (name, word(settings[name]))]
                self._set_by_ip(record, physical, number, words)
            return
        for target, text in self._infiniband(physical, vf, number, settings):
            if isinstance(target, str):
                self._set_by_ip(record, physical, number, [target, text])
                continue
            record["before"].setdefault(str(target), self.host.read(target))
            self._save()
            try:
                self.host.write(target, text)
            except OSError as error:
                what = f"{target.parent.name}/{target.name} of {vf} did not take {text}"
                raise RefusedError(f"{what} ({_reason(error)})", NOT_TAKEN) from error

    def _infiniband(
        self, physical: str, vf: str, number: int, settings: Fields
    ) -> Iterator[tuple[Path | str, str]]:
        """Files or `ip link` names, and the value to write to each; they depend on the driver."""
        device = self.host.device(physical)
        port = str(settings.pop("port", 1))
        devices = (device / "infiniband" / name for name in self.host.names(physical, "infiniband"))
        iov = next((each / "iov" for each in devices if (each / "iov").is_dir()), None)
        vendors = device / "sriov" / str(number)
        wrong = set(settings) - ({"port_guid", "pkey_index"} if iov else set(INFINIBAND))
        if wrong or ("pkey_index" in settings and iov is None):
            what = f"the driver of {physical} cannot set {' and '.join(sorted(settings))}"
            raise RefusedError(what, "it can set the port GUID and, on mlx4, the partition")
        for name, value in settings.items():
            if iov is None and vendors.is_dir():
                file = vendors / {"node_guid": "node", "port_guid": "port"}.get(name, name)
                yield file, str(POLICIES.get(value, value))
            elif iov is None:
                yield {"policy": "state"}.get(name, name), value
            elif name == "pkey_index":
                yield iov / vf / "ports" / port / "pkey_idx/0", str(value)
            else:
                # Entry 0 is the physical function's own.
                own = self.host.read(iov / vf / "ports" / port / "gid_idx/0")
                index = int(own) if own.isdecimal() and own != "0" else number + 1
                file = iov / "ports" / port / "admin_guids" / str(index)
                yield file, "0x" + value.replace(":", "")

    def release(self, vfs: list[str], owner: str) -> Fields:
        """Restore VFs to their state before the assignment, and forget missing VFs.

        A VF that cannot be restored keeps its owner, and the answer has cause and remedy; the
        other VFs are released.
        """
        notes: list[str] = []
        left: list[tuple[object, ...]] = []
        for vf in filter(self.claimed.__contains__, vfs):
            try:
                notes += self.reset(vf, owner)["notes"]
            except (OSError, RefusedError, subprocess.SubprocessError) as error:
                left.append(error.args if isinstance(error, RefusedError) else (str(error), DMESG))
                continue
            del self.claimed[vf]
            self._save()
        return {"notes": notes, "left": left}

    def reset(self, vf: str, owner: str) -> Fields:
        """Restore a VF as release() does, but keep its owner."""
        record = self._own(vf, owner)
        notes: list[str] = []
        if self.host.device(vf).is_dir():
            self._check_unused(vf, vf)
            physical, _number = self._physical(vf)
            for attribute, text in reversed(list(record["before"].items())):
                try:
                    if attribute.startswith("vf "):
                        self._ip(physical, *attribute.split(), text)
                    elif text:
                        self.host.write(Path(attribute), text)
                except (OSError, RefusedError) as error:
                    notes.append(f"{attribute} was not set back: {error.args[0]}")
            told = {attribute.rpartition(" ")[2] for attribute in record["before"]}
            if record.get("bound", True) or not told <= OUTSIDE:  # otherwise its user keeps the VF
                self._hand_over(vf, 0)
                if record["before"] or record["driver"] != self._driver(vf):
                    self._bind_native(vf, record["driver"])
        return {"notes": notes}

    def _set_by_ip(self, record: Fields, physical: str, number: int, words: list[str]) -> None:
        """Change a setting by `ip link`, and record its former value if `ip` shows that."""
        if physical not in self._shown:
            self._shown[physical] = set_by_ip(self.host, self._net(physical))
        now = self._shown[physical].get(number, {})
        for name in now.keys() & set(words[::2]):
            record["before"].setdefault(f"vf {number} {name}", now[name])
        self._save()
        self._ip(physical, "vf", str(number), *words)

    def _ip(self, physical: str, *words: str) -> None:
        self.host.run("ip", "link", "set", "dev", self._net(physical), *words)

    def _net(self, physical: str) -> str:
        interfaces = self.host.names(physical, "net")
        if not interfaces:
            what = f"{physical} has no network interface here, by which its VFs are set"
            remedy = "load its driver (for InfiniBand ib_ipoib too), or see which namespace has it"
            raise RefusedError(what, remedy)
        return interfaces[0]

    def _hand_over(self, vf: str, user: int) -> None:
        """Make a user the owner of the VF's group file of vfio-pci."""
        group = self.host.link(self.host.device(vf) / "iommu_group")
        if group and (self.host.groups / group).exists():
            self.host.give(self.host.groups / group, user)

    def _bind_native(self, vf: str, driver: str) -> None:
        override = (
            VFIO if driver == VFIO else ""
        )  # bound by an administrator; no driver would take it by itself
        now = self._rebind(vf, override if driver else None)
        if driver and now != driver:
            what = f"{vf} went back to {now or 'no driver'}, and had {driver}"
            raise RefusedError(what, f"load the module of {driver}, and {DMESG}")

    def _rebind(self, vf: str, override: str | None) -> str:
        """Unbind a VF, and bind it: `override` names a driver, "" the default driver, None no
        driver."""
        device = self.host.device(vf)
        self.host.write(device / "driver_override", f"{override or ''}\n")
        if self._driver(vf):
            self.host.write(device / "driver" / "unbind", vf)
        if override is not None:
            # An error here is not conclusive; the driver afterwards shows the result.
            with contextlib.suppress(OSError):
                self.host.write(self.host.sysfs / "bus/pci/drivers_probe", vf)
        return self._driver(vf)

    def _driver(self, vf: str) -> str:
        return self.host.link(self.host.device(vf) / "driver")

    def _physical(self, vf: str) -> tuple[str, int]:
        """The physical function of a virtual function, and the number there. Raises RefusedError if
        they disagree."""
        physical = self.host.link(self.host.device(vf) / "physfn")
        vfs = self.host.vfs(physical) if physical else []
        if vf not in vfs:
            raise RefusedError(f"{vf} is no virtual function of this host", _LIST)
        return physical, vfs.index(vf)

    def _own(self, vf: str, owner: str) -> Fields:
        if vf not in self.claimed:
            raise RefusedError(f"{vf} is not assigned", "assign it first")
        self._check_owner(self.claimed[vf], vf, owner)
        return self.claimed[vf]

    def _check_owner(self, record: Fields | None, what: str, owner: str) -> None:
        if record is not None and record["owner"] != owner:
            whose = record["owner"]
            remedy = f"name that with --owner {whose}, or take another one"
            raise RefusedError(f"{what} belongs to {whose}, not to {owner}", remedy)
        if record is not None and self.user not in (0, record["user"]):
            whose = f"{record['owner']} of user {record['user']}"
            raise RefusedError(f"{what} belongs to {whose}", "let that user or root do it")

    def _check_unused(self, vf: str, what: str) -> None:
        reason = self.host.use(vf)
        if reason:
            raise RefusedError(f"{what} is in use: {reason}", _END_IT)

    def _save(self) -> None:
        fresh = self.host.records / "records.part"
        fresh.write_text(json.dumps({"physical": self.made, "vfs": self.claimed}, indent=1))
        fresh.chmod(0o644)
        fresh.replace(self.host.records / "records.json")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
