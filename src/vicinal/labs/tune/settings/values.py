"""Settings on a command line, such as eth0/rx-usecs=10 eth0/adaptive-rx=off."""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value


def parse_setting(values: Sequence[str]) -> dict[str, Value]:
    """Parse KNOB=VALUE words. Raises VicinalError for any other word."""
    setting: dict[str, Value] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise VicinalError(f"{text!r} is no setting", "write KNOB=VALUE: eth0/rx-usecs=10")
        setting[name] = int(value) if value.isdecimal() and value.isascii() else value
    return setting
