"""Names of coalescing and queues stand for the numbers that the kernel's header gives them."""

import re
from pathlib import Path

import pytest

from vicinal.labs.tune.knobs.coalescing import PARTS
from vicinal.labs.tune.knobs.netlink import COALESCE_SET, MODERATION, QUEUES, WORDS

HEADER = Path("/usr/include/linux/ethtool_netlink.h")


def kernel_name(name: str) -> str:
    """The header's spelling of an ethtool option."""
    text = name.upper().replace("-", "_")
    if text.startswith(("ADAPTIVE_", "CQE_MODE_")):
        return f"USE_{text}"
    if text == "SAMPLE_INTERVAL":
        return f"RATE_{text}"
    return re.sub(r"^(RX|TX)_FRAMES?(?=$|_)", r"\1_MAX_FRAMES", text)


def attributes(prefix: str) -> list[tuple[str, str]]:
    """Names and types in the header's order, without the first one, which all messages have."""
    text = HEADER.read_text()
    found = re.findall(rf"^\t{prefix}([A-Z_]+),\s*/\* (u\d+|nest)\b", text, re.MULTILINE)
    assert found[0][0] == "HEADER"
    return found[1:]


@pytest.mark.parametrize(
    ("prefix", "names"), [("ETHTOOL_A_COALESCE_", MODERATION), ("ETHTOOL_A_CHANNELS_", QUEUES)]
)
def test_numbers_are_those_of_the_header(prefix: str, names: tuple[str, ...]) -> None:
    found = attributes(prefix)
    assert len(found) >= 8
    # Older headers have fewer names, newer headers more.
    for name, (spelled, form) in zip(names, found, strict=False):
        own = kernel_name(name)
        if names is QUEUES:
            own = own if own.endswith("_MAX") else f"{own}_COUNT"
        assert own == spelled
        assert form == ("u8" if name in WORDS else "u32"), name


def test_messages_have_the_header_s_numbers() -> None:
    text = HEADER.read_text()
    listed = re.findall(r"^\t(ETHTOOL_MSG_[A-Z_]+),", text, re.MULTILINE)
    assert listed[0] == "ETHTOOL_MSG_USER_NONE"
    assert listed.index("ETHTOOL_MSG_COALESCE_SET") == COALESCE_SET


def test_every_part_has_values_to_try() -> None:
    assert set(PARTS) == set(MODERATION)
