"""Setting knobs, and setting them back: when a command ends, fails, is ended or was killed.

    with keeper.temporarily() as work:      # back at the end, whatever happens
        work.apply({"eth0/rx-usecs": 10})
        measure()
        work.apply({"eth0/rx-usecs": 100})
    with keeper.lasting() as work:          # back only where the block fails
        work.apply(setting)

Whoever uses one holds the lock of the journal's directory (place.py), and has called recover().
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.signals import signals_wait
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs.catalogue import knob_named, order_of
from vicinal.labs.tune.knobs.machine import Machine, MachineKnob
from vicinal.labs.tune.settings.journal import Change, Journal, Kind, Operation

_FORGET = "set it by hand, and `vicinal tune restore --forget` forgets it"


class GoneError(VicinalError):
    """The device of a change is there no more, and what was set with it."""


class Keeper:
    """Changes a machine, and keeps in a journal what was there before."""

    def __init__(
        self, machine: Machine, journal: Path, forbidden: Mapping[str, str] | None = None
    ) -> None:
        """`forbidden` are interfaces that must not be touched, with the reason as a phrase."""
        self.machine = machine
        self._journal = Journal(journal)
        self._forbidden = forbidden or {}

    @property
    def boot(self) -> str:
        """What tells this start of the machine from others."""
        return self.machine.host.text("proc/sys/kernel/random/boot_id") or ""

    def operations(self) -> list[Operation]:
        """What was changed since the machine was started, and not set back."""
        return [each for each in self._journal.operations() if each.boot == self.boot]

    def recover(self) -> list[str]:
        """Set back what a command that was killed, or could not, has left; say what that was.

        Raises VicinalError where something cannot be set back; it stays in the journal.
        """
        found = self._journal.operations()
        said: list[str] = []
        if not found:
            self._journal.clear()  # of a line that was torn
        elif all(each.boot != self.boot for each in found):
            if names := sorted({name for each in found for name in each.changes}):
                said.append(
                    f"the machine was started anew, which undid what was set: {', '.join(names)}"
                )
            self._journal.clear()
        elif not found[-1].kept:
            said = self._undo(found[-1])
            if said:
                said.insert(0, "a command did not end; what it had changed is set back")
        return said

    def restore(self) -> list[str]:
        """Set back all that was changed, the last first, and say what that was.

        Raises VicinalError where something cannot be set back; it stays in the journal.
        """
        said = self.recover()
        for operation in reversed(self.operations()):
            said += self._undo(operation)
        return said

    def forget(self) -> list[str]:
        """Forget what was changed without setting it back, and say what that was."""
        said = [
            f"{change.knob} was {change.before}, and stays as it is"
            for operation in self.operations()
            for change in operation.changes.values()
        ]
        self._journal.clear()
        return said

    @contextmanager
    def temporarily(self, kind: Kind = Kind.TRIAL) -> Iterator["Work"]:
        """Changes within this block are set back at its end, and where a signal ends it."""
        self._journal.begin(kind, self.boot)
        try:
            yield Work(self)
        finally:
            with signals_wait():
                self._undo(self._last())

    @contextmanager
    def lasting(self, kind: Kind = Kind.APPLY) -> Iterator["Work"]:
        """Changes within this block stay after it; where it fails they are set back."""
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

    def knob(self, name: str) -> MachineKnob:
        """The knob of this name; raises VicinalError where there is none, or it is forbidden."""
        knob = knob_named(self.machine, name)
        if knob.interface in self._forbidden:
            raise VicinalError(
                f"{name} is left alone: {self._forbidden[knob.interface]}",
                "choose another interface, or allow it with --own-connection",
            )
        return knob

    def note(self, knob: MachineKnob, before: Value, value: Value) -> None:
        """Have it in the journal what a knob had, before it first gets another value."""
        if knob.name not in self._last().changes:
            self._journal.change(Change(knob.name, before, value, self._identity(knob)))

    def changes(self) -> list[Change]:
        """What the last operation has changed, and not set back."""
        return list(self._last().changes.values())

    def failed_at_start(self) -> bool:
        """Whether the machine went down in an earlier start, while a setting was applied."""
        return any(
            each.kind is Kind.BOOT and not each.kept and each.boot != self.boot
            for each in self._journal.operations()
        )

    def _last(self) -> Operation:
        return self._journal.operations()[-1]

    def _identity(self, knob: MachineKnob) -> dict[str, int]:
        identity = {"namespace": self.machine.network.namespace}
        for link in self.machine.network.links():
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
            raise VicinalError(f"not all is set back: {told}", failed[0].remedy)
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
        return [f"{knob.name} is {now} again, and was {had}"]

    def _find(self, change: Change) -> MachineKnob:
        """The knob that was changed, whatever its interface is called now."""
        if change.device.get("namespace") != self.machine.network.namespace:
            raise VicinalError(
                f"{change.knob} was {change.before} in another network namespace than this",
                "run `vicinal tune restore` there; if it is gone, --forget forgets it",
            )
        name = change.knob
        if (index := change.device.get("index")) is not None:
            device, _, part = name.partition("/")
            called = [each.name for each in self.machine.network.links() if each.index == index]
            if not called:
                raise GoneError(f"{device} is gone, and {name} with it", _FORGET)
            name = f"{called[0]}/{part}"
        return knob_named(self.machine, name)


class Work:
    """An operation under way."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def apply(self, setting: Setting) -> None:
        """Set the machine's knobs that it names; all of them, or none.

        Raises VicinalError for what is refused, or taken and not done.
        """
        found = [self._keeper.knob(name) for name in sorted(setting, key=order_of)]
        done: list[tuple[MachineKnob, Value]] = []
        try:
            for knob in found:
                done.append((knob, knob.read()))
                self.turn(knob, setting[knob.name])
        except VicinalError:
            # What this fails at is in the journal still, and set back at the operation's end.
            with suppress(VicinalError):
                for knob, before in reversed(done):
                    if knob.read() != before:
                        knob.write(before)
            raise

    def changes(self) -> list[Change]:
        """What this operation has changed, and not set back."""
        return self._keeper.changes()

    def turn(self, knob: MachineKnob, value: Value) -> None:
        """Set one knob, and read it back; raises VicinalError where it has another value then."""
        before, wanted = knob.read(), knob.check(value)
        if before == wanted:
            return
        self.write(knob, before, wanted)
        found = knob.read()
        if found == wanted:
            return
        ignores = "ignores it" if found == before else f"makes it {found}"
        raise VicinalError(
            f"{knob.name} {value} is taken without an error, but the driver {ignores}",
            "leave it out" if found == before else f"choose another value, such as {found}",
        )

    def write(self, knob: MachineKnob, before: Value, value: Value) -> None:
        """Set one knob that has `before`, and do not look what it has then."""
        self._keeper.note(knob, before, value)
        knob.write(value)


class KeptKnob:
    """A knob of the machine for whoever knows Knob alone: journaled, and read back."""

    def __init__(self, work: Work, knob: MachineKnob, values: Sequence[Value]) -> None:
        """`values` are those to try, such as those that try_knob() found to be taken."""
        self._work = work
        self._knob = knob
        self.name = knob.name
        self.unit = knob.unit
        self.values = values

    def read(self) -> Value:
        """The value that it has now."""
        return self._knob.read()

    def write(self, value: Value) -> None:
        """Set it; it is as before where this raises VicinalError."""
        self._work.apply({self.name: value})


def describe(change: Change) -> str:
    """A change as a line."""
    return f"{change.knob} is {change.value}, and was {change.before}"
