"""make_seeds.py DIRECTORY - inputs for fuzz_receive that go through each protocol once."""

import struct
import sys
from pathlib import Path

# enum wire_kind
INLINE, SHORT, CONTINUATION, EAGER, RENDEZVOUS = 1, 2, 3, 4, 5
EARLY, CLEAR, PIECE, ACKNOWLEDGE, RECLAIM = 6, 7, 8, 9, 10

# Indices into the lengths of take_length()
SMALL, SHORT_LENGTH, EAGER_LENGTH, LARGE = 5, 7, 11, 15


def push(kind: int, length: int, word: int = 1, flags: int = 1, more: bytes = b"") -> bytes:
    """A slot in the hostile ring; `place` fields stay zero: chunk 0 at section offset 0."""
    return struct.pack("<BBBHB", 0, kind, flags, length, word) + struct.pack("<HH", 0, 0) + more


def rendezvous(first: int, total: int, early: int) -> bytes:
    return push(RENDEZVOUS, first, more=struct.pack("<BIBI", 1, total, 0, early))


def clear(accepted: int) -> bytes:
    return push(CLEAR, 0, more=struct.pack("<BIB", 9, accepted, 0))


def credit(style: int = 2) -> bytes:
    return struct.pack("<BB", 4, style)


def send(length: int, style: int = 0x41, tag: int = 1) -> bytes:
    return struct.pack("<BBBB", 8, style, length, tag)


def receive(length: int, style: int = 0, tag: int = 1) -> bytes:
    return struct.pack("<BBBB", 10, style, length, tag)


def look(style: int, length: int = LARGE) -> bytes:
    return struct.pack("<BBB", 12, style, length)


CONNECT = struct.pack("<BB", 5, 2)
PROGRESS = struct.pack("<B", 15 | 16)
CHECK = struct.pack("<B", 14)
REJOIN = struct.pack("<B", 7 | 16)
OPEN = CONNECT + PROGRESS

SEEDS = {
    "inline": OPEN + receive(SMALL) + push(INLINE, 40) + PROGRESS,
    "inline-unexpected": OPEN + push(INLINE, 40) + PROGRESS + receive(SMALL),
    "inline-acknowledged": OPEN + push(INLINE, 8, flags=7) * 3 + PROGRESS + receive(SMALL) * 3,
    "short": OPEN + push(SHORT, 100) + push(CONTINUATION, 0) + PROGRESS + receive(SHORT_LENGTH),
    "eager": OPEN + receive(EAGER_LENGTH) + push(EAGER, 4000) + PROGRESS,
    "eager-unexpected": OPEN + push(EAGER, 4000) * 3 + PROGRESS + receive(EAGER_LENGTH) * 2,
    "reclaim": OPEN + push(EAGER, 4000) * 3 + push(RECLAIM, 0) + PROGRESS + receive(LARGE),
    "rendezvous-early": OPEN
    + receive(LARGE)
    + rendezvous(5000, 10000, 10000)
    + push(EARLY, 5000)
    + PROGRESS,
    "rendezvous-unexpected": OPEN
    + rendezvous(5000, 60000, 10000)
    + push(EARLY, 5000)
    + push(RECLAIM, 0)
    + PROGRESS
    + receive(LARGE)
    + PROGRESS
    + push(PIECE, 25000) * 2
    + PROGRESS,
    "rendezvous-truncated": OPEN + rendezvous(5000, 60000, 10000) + PROGRESS + receive(SMALL),
    "send-inline": send(SMALL) + CONNECT + PROGRESS + push(ACKNOWLEDGE, 0) + PROGRESS,
    "send-large": OPEN
    + send(LARGE)
    + PROGRESS
    + clear(100000)
    + PROGRESS
    + credit()
    + PROGRESS * 2
    + credit()
    + PROGRESS * 3
    + push(ACKNOWLEDGE, 0)
    + PROGRESS,
    "send-and-die": OPEN + send(LARGE) * 3 + PROGRESS + CHECK + REJOIN + CONNECT + PROGRESS + CHECK,
    "short-too-long": OPEN + push(SHORT, 1200) + push(CONTINUATION, 0) * 24 + PROGRESS,
    "early-too-many": OPEN
    + rendezvous(1, 60000, 100)
    + push(EARLY, 1) * 6
    + PROGRESS
    + receive(LARGE),
    "early-too-long": OPEN
    + rendezvous(1, 60000, 100)
    + push(RECLAIM, 0)
    + push(EARLY, 5000)
    + PROGRESS,
    "piece-too-long": OPEN
    + receive(SMALL)
    + rendezvous(0, 60000, 0)
    + PROGRESS
    + push(PIECE, 8000)
    + PROGRESS,
    "clear-too-much": OPEN + send(LARGE) + PROGRESS + clear(1 << 30) + credit() + PROGRESS * 4,
    "peek": OPEN + push(EAGER, 100) + PROGRESS + look(0) + look(2) + look(4),
    "claim-and-leave": OPEN
    + rendezvous(100, 60000, 200)
    + PROGRESS
    + look(4)
    + REJOIN
    + CONNECT
    + PROGRESS,
    "claim-and-take": OPEN
    + push(EAGER, 4000) * 2
    + PROGRESS
    + look(4) * 2
    + push(RECLAIM, 0)
    + PROGRESS
    + bytes([28, 0, 28, 1]),
    "answers-without-credit": OPEN
    + receive(LARGE, 0x38)
    + (b"\x10" + push(INLINE, 8, flags=6)[1:]) * 6
    + PROGRESS
    + credit()
    + PROGRESS,
    "several": OPEN
    + receive(LARGE, 0x38)
    + push(INLINE, 40, flags=0) * 4
    + PROGRESS
    + push(EAGER, 4000, flags=0),
    "cancel": OPEN + receive(LARGE) * 3 + bytes([13, 0, 13, 1]) + push(INLINE, 8) + PROGRESS,
    "to-itself": send(LARGE, 0x40) + receive(LARGE) + PROGRESS * 5 + send(SMALL, 0x40) + PROGRESS,
    "scribble": OPEN + struct.pack("<BIB4s", 6, 4096, 3, b"abcd") + PROGRESS + CHECK,
    "bad-offer": struct.pack("<BIQBB", 5 | 16, 64, 8192, 3, 1) + PROGRESS + send(SMALL),
}


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (directory / name).write_bytes(data)


main()
