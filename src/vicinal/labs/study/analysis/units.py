"""Units: which units are comparable, and conversion between them."""

from vicinal.labs.study.file.model import Quantity

RATIO_UNITS = {"", "1", "%", "ratio", "percent"}
"""Units of figures that are not absolute values."""

_KINDS: tuple[dict[str, float], ...] = (
    {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0}
    | {"sec": 1.0, "seconds": 1.0, "min": 60.0},
    {"B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "MiB/s": 2.0**20, "GiB/s": 2.0**30}
    | {"Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8},
    {"1/s": 1.0, "messages/s": 1.0, "M/s": 1e6},
    {"FLOPS": 1.0, "MFLOPS": 1e6, "GFLOPS": 1e9, "TFLOPS": 1e12}
    | {"Mflop/s": 1e6, "Gflop/s": 1e9, "Tflop/s": 1e12},
    {"TEPS": 1.0, "KTEPS": 1e3, "MTEPS": 1e6, "GTEPS": 1e9},
    {"op/s": 1.0, "Mop/s": 1e6, "Gop/s": 1e9, "GUP/s": 1e9},
)
_TIMES, _BANDWIDTHS, _RATES = _KINDS[:3]

_KIND_OF = {
    Quantity.LATENCY: _TIMES,
    Quantity.TIME: _TIMES,
    Quantity.BANDWIDTH: _BANDWIDTHS,
    Quantity.MESSAGE_RATE: _RATES,
}


def can_be(unit: str, quantity: Quantity) -> bool:
    """Whether a figure in this unit can be of this quantity.

    Any unit except a unit of time can be of a performance.
    """
    if quantity is Quantity.PERFORMANCE:
        return unit not in _TIMES
    return unit in _KIND_OF[quantity]


def is_time(unit: str) -> bool:
    """Whether this is a unit of time."""
    return unit in _TIMES


def convert(value: float, unit: str, into: str) -> float | None:
    """The value in another unit; None if the units are not comparable."""
    if unit == into:
        return value
    for kind in _KINDS:
        if unit in kind and into in kind:
            return value * kind[unit] / kind[into]
    return None
