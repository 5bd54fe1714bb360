"""Resources, the parts of a cluster: created in order, and removed in reverse order.

A resource's kind, name and settings identify it. So a command can find and remove a resource of an
earlier command, even if that command was killed and the cluster's file has changed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self, TypeAlias, TypeVar

from vicinal.base.codec import decode, encode

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Settings: TypeAlias = Mapping[str, Json]


class Condition(StrEnum):
    """The present state of a resource."""

    ABSENT = "absent"
    READY = "ready"
    STOPPED = "stopped"
    """Complete, but not running."""
    BROKEN = "broken"
    """Half made, ended by itself, or changed since its creation."""
    CHANGING = "changing"
    """Another command works on the cluster. Only `status` reports this; it is no fault."""


@dataclass(frozen=True)
class Observation:
    """The result of observing a resource."""

    condition: Condition
    why: str = ""
    """The reason, as a phrase; always set if the resource is broken."""


@dataclass(frozen=True)
class Held:
    """What a resource occupies of the host, and what its removal releases."""

    things: frozenset[str] = frozenset()
    """Things that only one resource can have, such as `tap tap0`."""
    shared_bytes: int = 0
    """Memory in /dev/shm."""
    memory_bytes: int = 0
    """Other memory."""

    def __add__(self, other: "Held") -> "Held":
        return Held(
            self.things | other.things,
            self.shared_bytes + other.shared_bytes,
            self.memory_bytes + other.memory_bytes,
        )


class Described:
    """Base of resources that are dataclasses whose fields are the settings."""

    KIND: ClassVar[str]

    @property
    def key(self) -> str:
        """KIND/main, the key of a kind of which a cluster has one resource on a host."""
        return f"{self.KIND}/main"

    @property
    def settings(self) -> Settings:
        """The fields, in order of declaration."""
        return encode(self)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the resource with these settings, for example from a journal."""
        return decode(cls, settings)


class Undemanding(Described):
    """Base of resources that need nothing of the host that could be missing."""

    @property
    def held(self) -> Held:
        """Nothing."""
        return Held()

    def check(self, released: Held) -> None:
        """Check nothing."""


class Standing(Undemanding):
    """Base of resources in which nothing runs, so that they are never started or stopped."""

    @property
    def needs(self) -> tuple[str, ...]:
        """No other resource."""
        return ()

    @property
    def runs(self) -> bool:
        """False: there is nothing to start or stop."""
        return False

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class Recorded(Protocol):
    """What the journal records: a resource, or another host's part of the cluster."""

    @property
    def key(self) -> str:
        """KIND/NAME, unique in the cluster."""

    @property
    def settings(self) -> Settings:
        """All values by which the resource is created and found again.

        Resources with equal settings are the same.
        """

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the resources that must exist first.

        If one of them is recreated, this resource is recreated too.
        """


class Resource(Recorded, Protocol):
    """A part of a cluster."""

    @property
    def runs(self) -> bool:
        """Whether the resource can be started and stopped."""

    def observe(self) -> Observation:
        """Return the present state. Changes nothing."""

    @property
    def held(self) -> Held:
        """What the resource occupies of the host now, as far as that is known."""

    def check(self, released: Held) -> None:
        """Check whether this host can provide the resource, as far as known before its creation.

        Changes nothing. `released` is what other resources release first. Raises VicinalError.
        """

    def create(self) -> None:
        """Create an absent resource. Raises VicinalError, and may leave a part behind."""

    def start(self) -> None:
        """Start a stopped resource. Raises VicinalError."""

    def stop(self) -> None:
        """End what runs in the resource, and keep the rest. Raises VicinalError."""

    def remove(self) -> None:
        """Remove the resource, or what exists of it. Raises VicinalError."""


class _OfKind(Resource, Protocol):
    KIND: ClassVar[str]


_Kind = TypeVar("_Kind", bound=_OfKind)


def find(resources: Mapping[str, Resource], kind: type[_Kind], name: str = "main") -> _Kind | None:
    """Return the resource of this kind and name; None without one."""
    found = resources.get(f"{kind.KIND}/{name}")
    return found if isinstance(found, kind) else None


def all_of(resources: Mapping[str, Resource], kind: type[_Kind]) -> list[_Kind]:
    """Return the resources of this kind, in order of creation."""
    return [each for each in resources.values() if isinstance(each, kind)]
