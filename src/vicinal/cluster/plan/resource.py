"""What a cluster consists of: things that are made in order and taken away in the reverse order.

Each is known by its kind, its name and its settings alone, so that what one command made another
can find and take away, even if the first was killed and the cluster's file has changed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self, TypeAlias, TypeVar

from vicinal.base.codec import decode, encode

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Settings: TypeAlias = Mapping[str, Json]


class Condition(StrEnum):
    """What is there of a resource."""

    ABSENT = "absent"
    READY = "ready"
    STOPPED = "stopped"
    """Whole, but it does not run."""
    BROKEN = "broken"
    """Half made, or ended by itself, or not as it was made."""
    CHANGING = "changing"
    """Another command is at work on its cluster, as `status` finds: nothing is wrong with it."""


@dataclass(frozen=True)
class Observation:
    """What was seen."""

    condition: Condition
    why: str = ""
    """A phrase, for those that are broken."""


@dataclass(frozen=True)
class Held:
    """What a resource has of the host now, and another can have once it is taken away."""

    things: frozenset[str] = frozenset()
    """What only one can have, as `tap tap0`."""
    shared_bytes: int = 0
    """In /dev/shm."""
    memory_bytes: int = 0
    """Beside that."""

    def __add__(self, other: "Held") -> "Held":
        return Held(
            self.things | other.things,
            self.shared_bytes + other.shared_bytes,
            self.memory_bytes + other.memory_bytes,
        )


class Described:
    """What a resource has of these if it is a dataclass, of which the fields are the settings."""

    KIND: ClassVar[str]

    @property
    def key(self) -> str:
        """Its key, if a cluster has one of the kind on this host."""
        return f"{self.KIND}/main"

    @property
    def settings(self) -> Settings:
        """Its fields, in their order."""
        return encode(self)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """The one that has these settings, such as those of a journal."""
        return decode(cls, settings)


class Undemanding(Described):
    """What a resource has of these if it takes nothing of the host that could be missing."""

    @property
    def held(self) -> Held:
        """Nothing."""
        return Held()

    def check(self, released: Held) -> None:
        """Nothing to look at."""


class Standing(Undemanding):
    """What a resource has of these if nothing runs in it, and it is never stopped."""

    @property
    def needs(self) -> tuple[str, ...]:
        """It stands on nothing."""
        return ()

    @property
    def runs(self) -> bool:
        """It does not."""
        return False

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""


class Recorded(Protocol):
    """What the journal has lines of: a resource, or what another host has of the cluster."""

    @property
    def key(self) -> str:
        """KIND/NAME, one of its own in the cluster."""

    @property
    def settings(self) -> Settings:
        """All that it is made by, and found again by: equal settings make the same."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of those that it stands on: made before it, and it anew with one of them."""


class Resource(Recorded, Protocol):
    """One thing of a cluster."""

    @property
    def runs(self) -> bool:
        """Whether there is something to stop and to start."""

    def observe(self) -> Observation:
        """Look at what is there. Changes nothing."""

    @property
    def held(self) -> Held:
        """What it has of the host now; nothing of what is not known."""

    def check(self, released: Held) -> None:
        """See whether this host can give it, as far as that is known before it is made.

        Changes nothing. `released` is what others give back first. Raises VicinalError.
        """

    def create(self) -> None:
        """Make it, where it is absent. Raises VicinalError, and may leave a part behind."""

    def start(self) -> None:
        """Let it run again, where it is stopped. Raises VicinalError."""

    def stop(self) -> None:
        """End what runs in it, and keep the rest. Raises VicinalError."""

    def remove(self) -> None:
        """Take it away, or a part of it, or nothing if nothing is there. Raises VicinalError."""


class _OfKind(Resource, Protocol):
    KIND: ClassVar[str]


_Kind = TypeVar("_Kind", bound=_OfKind)


def find(resources: Mapping[str, Resource], kind: type[_Kind], name: str = "main") -> _Kind | None:
    """The resource of this kind and name; None where there is none."""
    found = resources.get(f"{kind.KIND}/{name}")
    return found if isinstance(found, kind) else None


def all_of(resources: Mapping[str, Resource], kind: type[_Kind]) -> list[_Kind]:
    """The resources of this kind, in their order."""
    return [each for each in resources.values() if isinstance(each, kind)]
