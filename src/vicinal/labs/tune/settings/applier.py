"""Sets knobs, and restores them when a command ends or fails, or after it was killed.

    with applier.temporarily() as work:      # restored at the end, whatever happens
        work.apply({"eth0/rx-usecs": 10})
        measure()
        work.apply({"eth0/rx-usecs": 100})
    with applier.lasting() as work:          # restored only if the block fails
        work.apply(setting)

A caller holds the lock of the journal's directory (state_directory.py), and has called recover().
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.signals import signals_wait
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs.catalogue import knob_named, order_of
from vicinal.labs.tune.knobs.host import HostKnob, TunedHost
from vicinal.labs.tune.settings.journal import Change, Journal, Kind, Operation

_FORGET = "set it by hand, and run `vicinal tune restore --forget`"


class GoneError(VicinalError):
    """A change's device no longer exists, so nothing remains to restore."""


class Applier:
    """Changes a host, and records the former values in a journal."""

    def __init__(
        self, host: TunedHost, journal: Path, forbidden: Mapping[str, str] | None = None
    ) -> None:
        """`forbidden` maps interfaces that must not be changed to the reason, as a phrase."""
        self.host = host
        self._journal = Journal(journal)
        self._forbidden = forbidden or {}

    @property
    def boot(self) -> str:
        """The id of this boot of the host."""
        return self.host.system.text("proc/sys/kernel/random/boot_id") or ""

    def operations(self) -> list[Operation]:
        """The operations since this boot that are not restored."""
        return [each for each in self._journal.operations() if each.boot == self.boot]

    def recover(self) -> list[str]:
        """Restore values that a killed or failed command left; returns lines that describe this.

        Raises VicinalError if a value cannot be restored; its change stays in the journal.
        """
        found = self._journal.operations()
        said: list[str] = []
        if not found:
            self._journal.clear()  # removes an incomplete line
        elif all(each.boot != self.boot for each in found):
            if names := sorted({name for each in found for name in each.changes}):
                said.append(f"the host was rebooted, which reset {', '.join(names)}")
            self._journal.clear()
        elif not found[-1].kept:
            said = self._undo(found[-1])
            if said:
                said.insert(0, "a command did not finish; its changes are undone")
        return said

    def restore(self) -> list[str]:
        """Restore all former values, the last change first; returns lines that describe this.

        Raises VicinalError if a value cannot be restored; its change stays in the journal.
        """
        said = self.recover()
        for operation in reversed(self.operations()):
            said += self._undo(operation)
        return said

    def forget(self) -> list[str]:
        """Clear the journal without restoring values; returns lines with the former values."""
        said = [
            f"{change.knob} was {change.before}, and stays as it is"
            for operation in self.operations()
            for change in operation.changes.values()
        ]
        self._journal.clear()
        return said

    @contextmanager
    def temporarily(self, kind: Kind = Kind.TRIAL) -> Iterator["Work"]:
        """Restore the block's changes at its end, also if a signal ends the block."""
        self._journal.begin(kind, self.boot)
        try:
            yield Work(self)
        finally:
            with signals_wait():
                self._undo(self._last())

    @contextmanager
    def lasting(self, kind: Kind = Kind.APPLY) -> Iterator["Work"]:
        """Keep the block's changes after its end; restore them if the block fails."""
        self._journal.begin(kind, self.boot)
        try:
            yield Work(self)
        except BaseException:
            with signals_wait():
                self._undo(self._last())
            raise
        with signals_wait():
            if self._last().changes:
                self._journal.keep()
            else:
                self._journal.end()

    def knob(self, name: str) -> HostKnob:
        """The knob of this name. Raises VicinalError if it does not exist or is forbidden."""
        knob = knob_named(self.host, name)
        if knob.interface in self._forbidden:
            raise VicinalError(
                f"{name} is left alone: {self._forbidden[knob.interface]}",
                "choose another interface, or allow it with --own-connection",
            )
        return knob

    def note(self, knob: HostKnob, before: Value, value: Value) -> None:
        """Record a knob's former value in the journal before the knob first changes."""
        if knob.name not in self._last().changes:
            self._journal.change(Change(knob.name, before, value, self._identity(knob)))

    def changes(self) -> list[Change]:
        """The changes of the last operation that are not restored."""
        return list(self._last().changes.values())

    def failed_at_start(self) -> bool:
        """Whether the host went down in an earlier boot while a setting was applied."""
        return any(
            each.kind is Kind.BOOT and not each.kept and each.boot != self.boot
            for each in self._journal.operations()
        )

    def _last(self) -> Operation:
        return self._journal.operations()[-1]

    def _identity(self, knob: HostKnob) -> dict[str, int]:
        identity = {"namespace": self.host.network.namespace}
        for link in self.host.network.links():
            if link.name == knob.interface:
                identity["index"] = link.index
        return identity

    def _undo(self, operation: Operation) -> list[str]:
        said, failed = [], []
        for change in reversed(operation.changes.values()):
            try:
                said += self._set_back(change)
            except GoneError as gone:
                said.append(gone.message)
            except VicinalError as error:
                failed.append(error)
                continue
            self._journal.undone(change.knob)
        if failed:
            told = "; ".join(error.message for error in failed)
            raise VicinalError(f"not all values are restored: {told}", failed[0].remedy)
        self._journal.end()
        return said

    def _set_back(self, change: Change) -> list[str]:
        knob = self._find(change)
        had = knob.read()
        if had == change.before:
            return []
        try:
            knob.write(change.before)
            now = knob.read()
        except VicinalError as error:
            raise VicinalError(f"{change.knob} was {change.before}: {error}", _FORGET) from error
        if now != change.before:
            raise VicinalError(f"{change.knob} was {change.before}, and is {now}", _FORGET)
        return [f"{knob.name} is restored to {now}, and was {had}"]

    def _find(self, change: Change) -> HostKnob:
        """The changed knob, found by its interface's index, because the interface may have a
        new name.
        """
        if change.device.get("namespace") != self.host.network.namespace:
            raise VicinalError(
                f"{change.knob} was {change.before} in another network namespace",
                "run `vicinal tune restore` in that namespace; if it is gone, use --forget",
            )
        name = change.knob
        if (index := change.device.get("index")) is not None:
            device, _, part = name.partition("/")
            called = [each.name for each in self.host.network.links() if each.index == index]
            if not called:
                raise GoneError(f"{device} no longer exists, so {name} is not restored", _FORGET)
            name = f"{called[0]}/{part}"
        return knob_named(self.host, name)


class Work:
    """An operation in progress."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier

    def apply(self, setting: Setting) -> None:
        """Set the knobs of a setting: all of them, or none.

        Raises VicinalError if a value is refused, ignored or changed by the driver.
        """
        found = [self._applier.knob(name) for name in sorted(setting, key=order_of)]
        done: list[tuple[HostKnob, Value]] = []
        try:
            for knob in found:
                done.append((knob, knob.read()))
                self.turn(knob, setting[knob.name])
        except VicinalError:
            # A knob that fails here is still in the journal, and is restored at the operation's
            # end.
            with suppress(VicinalError):
                for knob, before in reversed(done):
                    if knob.read() != before:
                        knob.write(before)
            raise

    def changes(self) -> list[Change]:
        """The changes of this operation that are not restored."""
        return self._applier.changes()

    def turn(self, knob: HostKnob, value: Value) -> None:
        """Set one knob, and read it back. Raises VicinalError if it then has another value."""
        before, wanted = knob.read(), knob.check(value)
        if before == wanted:
            return
        self.write(knob, before, wanted)
        found = knob.read()
        if found == wanted:
            return
        ignores = "ignores it" if found == before else f"changes it to {found}"
        raise VicinalError(
            f"{knob.name} {value} is accepted without an error, but the driver {ignores}",
            "leave it out" if found == before else f"choose another value, such as {found}",
        )

    def write(self, knob: HostKnob, before: Value, value: Value) -> None:
        """Set one knob, whose value is `before`, without reading it back."""
        self._applier.note(knob, before, value)
        knob.write(value)


class JournaledKnob:
    """A knob of the host as a plain Knob: changes are journaled and read back."""

    def __init__(self, work: Work, knob: HostKnob, values: Sequence[Value]) -> None:
        """`values` are the values to try, such as the values that try_knob() found to work."""
        self._work = work
        self._knob = knob
        self.name = knob.name
        self.unit = knob.unit
        self.values = values

    def read(self) -> Value:
        """The present value."""
        return self._knob.read()

    def write(self, value: Value) -> None:
        """Set the value. If it is refused, raises VicinalError and leaves the knob as it was."""
        self._work.apply({self.name: value})


def describe(change: Change) -> str:
    """A change as a line of text."""
    return f"{change.knob} is {change.value}, and was {change.before}"
