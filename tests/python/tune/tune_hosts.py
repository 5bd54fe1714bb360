"""A simulated host with a known best setting and the noise of real hosts.

The cost of a setting is the sum of one curve for each knob and of one interaction. All of them are
drawn anew for each seed, so the best values differ between seeds. These effects disturb the time
of a trial:

- its start (where memory lies, which cores it gets): 3 %, normal, in the logarithm. Two equal sides
  differ by this effect, as in an A/A control;
- its surroundings: up to a few percent more, never less (gamma);
- interruptions: one trial in twelve takes longer, by 25 % on average (exponential);
- drift: 3 % that come and go within a hundred trials;
- regimes: sometimes the hypervisor moves the processors, and for about thirty trials everything
  takes 40 % longer.
"""

from collections.abc import Iterator, Mapping
from math import exp

import numpy as np
from scipy import signal

from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Point, Setting, Space
from vicinal.labs.tune.search.trial import Measured

KNOBS: Mapping[str, tuple[int | str, ...]] = {
    "eth0/rx-usecs": (0, 1, 3, 8, 20, 40, 80, 160),
    "eth0/rx-frames": (1, 2, 4, 8, 16, 32, 64, 88, 128),
    "eth0/adaptive-rx": ("off", "on"),
    "poll-window": (0, 5, 20, 50, 100),
    "irq-affinity": ("same", "next", "other"),
    "chunk": (8, 16, 32, 64, 128),
}
"""10 800 settings."""


class SimulatedHost:
    """A host whose true costs and noise are drawn from a seed."""

    def __init__(self, seed: int, *, flat: bool = False, at_optimum: bool = False) -> None:
        truth = np.random.default_rng((seed, 1))
        lengths = [len(row) for row in KNOBS.values()]
        self._curves = [np.zeros(length) for length in lengths]
        self._interaction = np.zeros((lengths[0], lengths[2]))
        self._cpu = np.linspace(0.5, 0, lengths[0])
        if not flat:
            self._draw(truth)
        total = self.costs()
        best = np.unravel_index(int(total.argmin()), total.shape)
        self.optimum: Point = tuple(int(index) for index in best)
        present = self.optimum if at_optimum else self._worse_setting(truth, total, flat=flat)
        rows = list(KNOBS.items())
        setting = {name: row[at] for (name, row), at in zip(rows, present, strict=True)}
        self.space = Space.of(KNOBS, setting)
        self._noise = self._draw_noise(np.random.default_rng((seed, 2)))

    def costs(self) -> np.ndarray:
        """The true cost of every setting: the logarithm of its P50, with one axis for each knob."""
        total = np.zeros([len(curve) for curve in self._curves])
        for axis, curve in enumerate(self._curves):
            shape = [1] * total.ndim
            shape[axis] = -1
            total = total + curve.reshape(shape)
        return total + self._interaction[:, None, :, None, None, None]

    def curve(self, knob: int) -> np.ndarray:
        """The cost of each value of a knob."""
        return self._curves[knob]

    def excess(self, point: Point) -> float:
        """How much slower a setting truly is than the best setting: 0.02 is 2 %."""
        return exp(self._cost(point) - self._cost(self.optimum)) - 1

    def measure(self, setting: Setting, phase: str) -> Measured:
        assert phase
        point = self.space.point(setting)
        p50 = 10 * exp(self._cost(point) + next(self._noise))
        return Measured(
            {
                Objective.P50: p50,
                Objective.P99: 3 * p50 * exp(next(self._noise)),
                Objective.BANDWIDTH: 5000 / p50,
                Objective.CPU: exp(self._cpu[point[0]] + next(self._noise)),
            }
        )

    def _cost(self, point: Point) -> float:
        cost = sum(float(curve[at]) for curve, at in zip(self._curves, point, strict=True))
        return cost + float(self._interaction[point[0], point[2]])

    def _draw(self, random: np.random.Generator) -> None:
        sizes = random.permutation([0.25, 0.15, 0.10, 0.05, 0.0, 0.0])
        for curve, size, row in zip(self._curves, sizes, KNOBS.values(), strict=True):
            indices = np.arange(len(curve))
            if isinstance(row[0], str):
                curve[:] = random.permutation(indices / (len(curve) - 1)) * size
            else:
                away = np.abs(indices - random.integers(len(curve))) / (len(curve) - 1)
                curve[:] = size * (away / away.max()) ** random.uniform(1, 2)
        # With adaptive moderation, other values are best.
        indices = np.arange(len(self._curves[0]))
        self._interaction[:, 1] = (
            0.08 * np.abs(indices - random.integers(len(indices))) / len(indices)
        )

    def _worse_setting(
        self, random: np.random.Generator, total: np.ndarray, *, flat: bool
    ) -> Point:
        """A random setting that is 10 to 33 % slower than the best one."""
        excess = np.exp(total - total.min()) - 1
        fits = np.argwhere(np.full(total.shape, True) if flat else (excess > 0.1) & (excess < 0.33))
        return tuple(int(index) for index in fits[random.integers(len(fits))])

    def _draw_noise(self, random: np.random.Generator, length: int = 16384) -> Iterator[float]:
        own = random.normal(0, 0.03, length) + random.gamma(2, 0.008, length)
        hit = np.where(random.random(length) < 1 / 12, random.exponential(0.25, length), 0)
        steps = random.normal(0, 0.03 * np.sqrt(0.02), length)
        drift = signal.lfilter([1], [1, -0.99], steps)
        moved = np.zeros(length, dtype=bool)
        for begin in np.flatnonzero(random.random(length) < 1 / 150):
            moved[begin : begin + random.geometric(1 / 30)] = True
        yield from own + hit + drift + np.where(moved, np.log(1.4), 0)
