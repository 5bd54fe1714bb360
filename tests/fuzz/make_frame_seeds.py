"""make_frame_seeds.py DIRECTORY - inputs for fuzz_frames that go through each protocol once."""

import struct
import sys
from pathlib import Path

# enum wire_kind
INLINE, SHORT, CONTINUATION, EAGER, RENDEZVOUS = 1, 2, 3, 4, 5
EARLY, CLEAR, PIECE, ACKNOWLEDGE, RECLAIM, RESUME, OFFER = 6, 7, 8, 9, 10, 11, 12
WRITE, WRITE_CHUNK, READ, ATOMIC, ATOMIC_CHUNK, REPLY, REPLY_CHUNK, DONE = range(16, 24)
CORE_WRITE, CORE_READ, GRANT, RETURN, ENDED = range(24, 29)

# enum frame_kind
HELLO, LEAVE, LEFT, REFUSE, PING = 2, 3, 4, 5, 6

# The lengths in write_slot()
LENGTHS = [0, 1, 8, 24, 40, 48, 49, 100, 440, 4096, 16384, 65535]
# Indices into the lengths in take_length()
SMALL, EAGER_LENGTH, FRAME_LENGTH, OFFERED, HUGE = 1, 5, 7, 9, 10

TAGGED, ANY_SOURCE, ANY_TAG, TWO_PIECES = 4, 8, 16, 64
PROGRESS = bytes([255]) * 2


def slot(
    kind: int, length: int, payload: bytes = b"", word: int = 0, flags: int | None = None
) -> bytes:
    """One slot. Its length is an index into LENGTHS, or four bytes if it is not there."""
    number = kind % 30
    with_flags = b""
    if flags is not None:
        number = next(each for each in range(128, 256) if each % 30 == kind)
        with_flags = bytes([flags])
    shape = bytes([128]) + struct.pack("<I", length)
    if length in LENGTHS:
        shape = bytes([LENGTHS.index(length)])
    # taken in this order: the kind, the shape with the length, the flags, the word, the payload
    return bytes([number]) + shape + with_flags + bytes([word]) + payload.ljust(48, b"\0")


def frame(*slots: bytes, chunk: int = 0) -> bytes:
    assert 1 <= len(slots) <= 4
    style = len(slots) - 1 + (16 if chunk else 0)
    return bytes([0, style]) + (struct.pack("<H", chunk) if chunk else b"") + b"".join(slots)


def notice(kind: int) -> bytes:
    return bytes([0, 192, 1, kind])


def receive(length: int, style: int = ANY_SOURCE | ANY_TAG) -> bytes:
    return bytes([130, style, length])


def send(length: int, style: int = 0) -> bytes:
    return bytes([170, style, length])


def reach(length: int, style: int = 1) -> bytes:
    """A read (style 4) or write of the sender's memory."""
    return bytes([210, style, length, 0])


def core_write(total: int, key: int = 1, flags: int = 8) -> bytes:
    header = struct.pack("<QQQQQQ", key, 0, total, 5, 6, 7)
    return frame(slot(CORE_WRITE, 0, header, word=1, flags=flags))


def core_read(total: int, key: int = 1) -> bytes:
    return frame(slot(CORE_READ, 0, struct.pack("<QQQ", key, 0, total), word=1))


def grant(word: int = 0) -> bytes:
    return frame(slot(GRANT, 0, struct.pack("<QQQ", 1, 2, 3), word))


def ended(error: int, word: int = 0) -> bytes:
    return frame(slot(ENDED, 0, struct.pack("<Q", error), word))


def eager(length: int) -> bytes:
    return frame(slot(EAGER, length, struct.pack("<QQII", 1, 2, 0, 0)), chunk=length)


def rendezvous(total: int, early: int, first: int) -> bytes:
    header = struct.pack("<QQQIIII", 1, 2, total, early, 0, 0, 0)
    return frame(slot(RENDEZVOUS, first, header), chunk=first)


def piece(kind: int, length: int, word: int = 0) -> bytes:
    return frame(slot(kind, length, struct.pack("<II", 0, 0), word), chunk=length)


def offer(total: int) -> bytes:
    return frame(slot(OFFER, 0, struct.pack("<QQQQQ", 1, 2, total, 3, 4)))


def clear(accepted: int) -> bytes:
    return frame(slot(CLEAR, 0, struct.pack("<QQQIIQ", 9, accepted, 0, 0, 0, 0)))


SEEDS = {
    "inline-expected": receive(SMALL) + frame(slot(INLINE, 8)) + PROGRESS,
    "inline-unexpected": frame(slot(INLINE, 8), slot(INLINE, 48)) + receive(SMALL) + PROGRESS,
    "short": receive(EAGER_LENGTH) + frame(slot(SHORT, 100), slot(CONTINUATION, 0)) + PROGRESS,
    "eager-expected": receive(EAGER_LENGTH) + eager(4096) + PROGRESS,
    "eager-unexpected": eager(4096) + eager(16384) + receive(EAGER_LENGTH) + PROGRESS,
    "eager-cut": receive(SMALL) + eager(4096) + PROGRESS,
    "rendezvous": receive(OFFERED)
    + rendezvous(100000, 4096, 4096)
    + PROGRESS
    + piece(PIECE, 16384) * 3
    + PROGRESS,
    "rendezvous-too-long": receive(OFFERED)
    + rendezvous(98000, 4096, 4096)
    + PROGRESS
    + piece(PIECE, 16384) * 6,
    "rendezvous-unexpected": rendezvous(60000, 32768, 16384)
    + piece(EARLY, 16384)
    + receive(HUGE)
    + PROGRESS
    + piece(PIECE, 16384)
    + PROGRESS,
    "offer-expected": receive(OFFERED) + offer(100000) + PROGRESS * 2,
    "offer-unexpected": offer(1100000) + receive(HUGE, ANY_SOURCE | TWO_PIECES) + PROGRESS * 3,
    "offer-cut": receive(SMALL) + offer(1 << 40) + PROGRESS * 2,
    "offered": send(OFFERED) + PROGRESS + frame(slot(ACKNOWLEDGE, 0)) + PROGRESS,
    "sent-by-pieces": send(HUGE, TWO_PIECES) + PROGRESS + clear(1100000) + PROGRESS * 4,
    "acknowledged": send(SMALL, 8) + PROGRESS + frame(slot(ACKNOWLEDGE, 0)) + PROGRESS,
    "asked-for": frame(slot(INLINE, 8, flags=5)) + receive(SMALL, TAGGED | 8 | 16) + PROGRESS,
    "write": frame(slot(WRITE, 8, struct.pack("<Q", 0)), slot(CONTINUATION, 0), slot(WRITE, 8)),
    "read": frame(slot(READ, 100, word=1)) + PROGRESS,
    "answers": frame(slot(REPLY, 8), slot(DONE, 0)) + PROGRESS,
    "writes-by-the-core": core_write(100000) + core_write(100000, flags=10) + PROGRESS * 3,
    "writes-refused": core_write(100000, key=2) + core_write(200001) + PROGRESS,
    "reads-by-the-core": core_read(100000)
    + core_read(200000)
    + PROGRESS
    + frame(slot(RETURN, 0), slot(RETURN, 0, word=1))
    + PROGRESS
    + frame(slot(RETURN, 0)),
    "granted-and-never-returned": core_read(100000) * 3 + PROGRESS,
    "core-writes": reach(HUGE) + reach(HUGE, 9) + ended(0) + ended(13, 1) + PROGRESS,
    "core-reads": reach(HUGE, 5) + reach(HUGE, 69) + grant() + grant(1) + PROGRESS * 3,
    "core-reads-twice": reach(HUGE, 5) + grant() + grant() + PROGRESS,
    "core-refused": reach(HUGE, 5)
    + reach(HUGE, 1)
    + ended(0xFFFFFFFF)
    + ended(0xFFFFFFFF, 1)
    + PROGRESS * 3,
    "notices": notice(PING)
    + notice(LEFT)
    + notice(HELLO)
    + notice(LEAVE)
    + notice(REFUSE)
    + PROGRESS,
    "no-room": bytes([200, 0x91]) + send(SMALL) * 5 + PROGRESS * 3,
    "core-error": bytes([200, 14]) + send(SMALL) + PROGRESS + receive(SMALL),
    "anything": bytes([120, 32]) + bytes(range(32)) + PROGRESS,
}


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (directory / name).write_bytes(data)


main()
