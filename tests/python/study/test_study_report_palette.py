"""Colours and markers of reports: for any eyes, and one for each comparison."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from vicinal.labs.report.palette import GLYPHS, ROLES, comparison_styles, styles_of
from vicinal.labs.study.file.model import Comparison

SEEN_BY: dict[str, Sequence[Sequence[float]]] = {
    "anyone": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopes": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopes": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopes": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""What of linear red, green and blue is seen: Machado, Oliveira and Fernandes (2009), table 1, of
full severity."""

TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]
WHITE = [0.95047, 1.0, 1.08883]


def lab(color: str, sight: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """CIE 1976 L*a*b* of a colour as it is seen."""
    parts = np.array([int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = np.array(TO_XYZ) @ np.clip(np.array(sight) @ linear, 0, 1) / np.array(WHITE)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("whose", SEEN_BY)
def test_colours_are_told_apart_by_any_eyes(whose: str) -> None:
    """A difference of 2.3 is just noticeable. Two of the colours once differed by 0.2."""
    roles = [role for role in ROLES if role.variable.startswith("--environment")]
    for one, other in itertools.combinations(roles, 2):
        for scheme in ("light", "dark"):
            colors = (getattr(role, scheme) for role in (one, other))
            left, right = (lab(color, SEEN_BY[whose]) for color in colors)
            assert np.linalg.norm(left - right) > 15, (scheme, one, other)


def compared_with(*pairs: tuple[str, str]) -> tuple[Comparison, ...]:
    return tuple(Comparison(base, test) for base, test in pairs)


def test_each_comparison_has_a_colour_and_a_marker_of_its_own() -> None:
    names = ("native", "network", "region", "guests")
    looks = styles_of({name: name for name in names}, "network")
    asked = compared_with(("network", "region"), ("native", "region"), ("native", "network"))
    found = comparison_styles(asked, looks)
    assert found[asked[0]].role == looks["region"].role
    assert found[asked[2]].role == looks["network"].role
    assert found[asked[1]].role not in {each.role for each in looks.values()}
    assert found[asked[1]].title == "region / native"
    many = compared_with(*itertools.permutations(names, 2))
    for count in range(1, 8):
        shown = comparison_styles(many[:count], looks).values()
        assert len({each.role for each in shown}) == count
        assert len({each.marker for each in shown}) == count
    every = comparison_styles(many, looks).values()
    assert len({(each.role, each.marker) for each in every}) == len(many)
    assert {each.marker for each in every} <= set(GLYPHS)
