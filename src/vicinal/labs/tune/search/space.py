"""The settings that a search chooses from: some knobs, each with an ordered row of values.

A point is a setting by the places of its values in those rows, one integer for each knob.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from vicinal.base.errors import VicinalError

Value = int | float | str
Setting = Mapping[str, Value]
Point = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """Knobs by name, their values in order, and which of them the machine has now."""

    knobs: Mapping[str, tuple[Value, ...]]
    present: Point

    @classmethod
    def of(cls, knobs: Mapping[str, Sequence[Value]], present: Setting) -> "Space":
        """The space of some knobs' values around the present setting.

        A present value that is none of its knob's is put among them: before the first larger one
        where all are numbers, else at the end. Raises VicinalError if a knob has a value twice or
        none, if it has no present value, or if there is nothing to choose.
        """
        rows: dict[str, tuple[Value, ...]] = {}
        for name, values in knobs.items():
            if name not in present:
                raise VicinalError(
                    f"the present value of {name} is not known", "leave the knob out of the search"
                )
            if not values or len(set(values)) != len(values):
                raise VicinalError(
                    f"the values of {name} ({', '.join(map(str, values)) or 'none'}) are no choice",
                    "give each knob at least one value, and none twice",
                )
            rows[name] = _including(tuple(values), present[name])
        if all(len(row) == 1 for row in rows.values()):
            raise VicinalError(
                "no knob has a value beside its present one", "give knobs values to choose from"
            )
        return cls(rows, tuple(row.index(present[name]) for name, row in rows.items()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The knobs', in the order of a point's places."""
        return tuple(self.knobs)

    @cached_property
    def rows(self) -> tuple[tuple[Value, ...], ...]:
        """Each knob's values, in the same order."""
        return tuple(self.knobs.values())

    @property
    def size(self) -> int:
        """How many settings there are."""
        return prod(len(row) for row in self.rows)

    def setting(self, point: Point) -> dict[str, Value]:
        """A point in values."""
        return {
            name: row[place] for (name, row), place in zip(self.knobs.items(), point, strict=True)
        }

    def point(self, setting: Setting) -> Point:
        """A setting of all knobs as places. Raises KeyError or ValueError if it is none."""
        return tuple(row.index(setting[name]) for name, row in self.knobs.items())

    def changes(self, point: Point) -> dict[str, tuple[Value, Value]]:
        """What a point has other than the present setting: from which value to which."""
        return {
            name: (row[before], row[after])
            for (name, row), before, after in zip(
                self.knobs.items(), self.present, point, strict=True
            )
            if before != after
        }

    def neighbours(self, point: Point, knobs: Sequence[int]) -> Iterator[Point]:
        """Points that differ in one of some knobs: the next number, or any other word."""
        for knob in knobs:
            row, place = self.rows[knob], point[knob]
            near = (place - 1, place + 1) if self.is_numeric(knob) else range(len(row))
            for other in near:
                if 0 <= other < len(row) and other != place:
                    yield (*point[:knob], other, *point[knob + 1 :])

    def is_numeric(self, knob: int) -> bool:
        """Whether a knob's values are numbers, so that those side by side are alike."""
        return not any(isinstance(value, str) for value in self.rows[knob])


def _including(row: tuple[Value, ...], value: Value) -> tuple[Value, ...]:
    if value in row:
        return row
    place = len(row)
    if not isinstance(value, str) and not any(isinstance(other, str) for other in row):
        larger = (at for at, other in enumerate(row) if other > value)  # type: ignore[operator]
        place = next(larger, place)
    return (*row[:place], value, *row[place:])
