"""The settings of a search: knobs, each with an ordered row of values.

A point is a setting as indices: for each knob, the index of its value in the knob's row.
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
    """Knobs by name with their values in order, and the host's present setting."""

    knobs: Mapping[str, tuple[Value, ...]]
    present: Point

    @classmethod
    def of(cls, knobs: Mapping[str, Sequence[Value]], present: Setting) -> "Space":
        """The space of knobs' values around the present setting.

        A present value outside of its knob's row is inserted: before the first larger value if all
        values are numbers, otherwise at the end. Raises VicinalError if a knob has no value, a
        repeated value or no present value, or if there is nothing to choose.
        """
        rows: dict[str, tuple[Value, ...]] = {}
        for name, values in knobs.items():
            if name not in present:
                raise VicinalError(
                    f"the present value of {name} is unknown", "remove the knob from the search"
                )
            if not values or len(set(values)) != len(values):
                raise VicinalError(
                    f"the values of {name} ({', '.join(map(str, values)) or 'none'}) are missing "
                    "or repeated",
                    "give each knob at least one value, and no value twice",
                )
            rows[name] = _including(tuple(values), present[name])
        if all(len(row) == 1 for row in rows.values()):
            raise VicinalError(
                "no knob has a value other than its present one", "add values to try"
            )
        return cls(rows, tuple(row.index(present[name]) for name, row in rows.items()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the knobs, in the order of a point."""
        return tuple(self.knobs)

    @cached_property
    def rows(self) -> tuple[tuple[Value, ...], ...]:
        """The values of each knob, in the order of a point."""
        return tuple(self.knobs.values())

    @property
    def size(self) -> int:
        """Number of settings."""
        return prod(len(row) for row in self.rows)

    def setting(self, point: Point) -> dict[str, Value]:
        """The setting of a point."""
        return {
            name: row[index] for (name, row), index in zip(self.knobs.items(), point, strict=True)
        }

    def point(self, setting: Setting) -> Point:
        """The point of a setting. Raises KeyError or ValueError if the space does not have the
        setting.
        """
        return tuple(row.index(setting[name]) for name, row in self.knobs.items())

    def changes(self, point: Point) -> dict[str, tuple[Value, Value]]:
        """The knobs that differ from the present setting, with present and new value."""
        return {
            name: (row[before], row[after])
            for (name, row), before, after in zip(
                self.knobs.items(), self.present, point, strict=True
            )
            if before != after
        }

    def neighbours(self, point: Point, knobs: Sequence[int]) -> Iterator[Point]:
        """Points that differ in one of `knobs`: by an adjacent number, or by any other word."""
        for knob in knobs:
            row, index = self.rows[knob], point[knob]
            near = (index - 1, index + 1) if self.is_numeric(knob) else range(len(row))
            for other in near:
                if 0 <= other < len(row) and other != index:
                    yield (*point[:knob], other, *point[knob + 1 :])

    def is_numeric(self, knob: int) -> bool:
        """Whether a knob's values are numbers, so that adjacent values are similar."""
        return not any(isinstance(value, str) for value in self.rows[knob])


def _including(row: tuple[Value, ...], value: Value) -> tuple[Value, ...]:
    if value in row:
        return row
    index = len(row)
    if not isinstance(value, str) and not any(isinstance(other, str) for other in row):
        larger = (at for at, other in enumerate(row) if other > value)  # type: ignore[operator]
        index = next(larger, index)
    return (*row[:index], value, *row[index:])
