"""make_seeds.py DIRECTORY - inputs for fuzz_receive that go through each protocol once."""

import struct
import sys
from pathlib import Path

# enum wire_kind
INLINE, SHORT, CONTINUATION, EAGER, RENDEZVOUS = 1, 2, 3, 4, 5
EARLY, CLEAR, PIECE, ACKNOWLEDGE, RECLAIM = 6, 7, 8, 9, 10

# Indices into the kinds of take_slot()
NET_OFFER, NET_SWITCH = 3, 4

# Kinds of one-sided operations, as differences from the first
WRITE, WRITE_CHUNK, READ, ATOMIC, ATOMIC_CHUNK, REPLY, REPLY_CHUNK, DONE = range(8)

# The style of hostile_push() for such an operation: 11 modulo 12; a bit says that addresses
# count words
REMOTE = 71
assert REMOTE % 12 == 11
assert REMOTE & 64

# Indices into the lengths of take_length()
SMALL, SHORT_LENGTH, EAGER_LENGTH, LARGE, MIDDLE = 5, 7, 11, 15, 22


PAYLOAD_TAKEN = {EAGER: 2, RENDEZVOUS: 10, EARLY: 0, CLEAR: 6, PIECE: 0, ACKNOWLEDGE: 0}
"""The bytes of input from which hostile_push() makes the payload; 48 for other kinds."""


def push(kind: int, length: int, word: int = 1, flags: int = 1, more: bytes = b"") -> bytes:
    """A slot in the hostile ring; `offset` fields stay zero: chunk 0 at section offset 0."""
    header = struct.pack("<BBBHB", 0, kind, flags, length, word) + struct.pack("<HH", 0, 0)
    return header + more.ljust(PAYLOAD_TAKEN.get(kind, 48), b"\0")


def remote(
    kind: int, length: int, more: bytes, word: int = 1, flags: int = 12, unusual: int = 0
) -> bytes:
    """A request under key `word`, or an answer, in the hostile ring; addresses count in words."""
    header = struct.pack("<BBBHB", 0, REMOTE, flags, length, word) + struct.pack("<HH", 0, 0)
    return header + bytes([kind, unusual]) + more


def write(length: int, word: int = 1, address: int = 3, flags: int = 12) -> bytes:
    return remote(WRITE, length, bytes(range(48)) + struct.pack("<H", address), word, flags)


def read(length: int, word: int = 1, address: int = 3) -> bytes:
    return remote(READ, length, struct.pack("<H", address), word)


def atomic(count: int, datatype: int = 7, operation: int = 2, form: int = 0, key: int = 1) -> bytes:
    """An atomic with its operands in slots; by default a sum of 64-bit integers."""
    length = count * 8 * (2 if form == 2 else 1)
    more = struct.pack("<HHBBB", 3, count, datatype, operation, form)
    return remote(ATOMIC, length, bytes(range(48)) + more, key)


def reply(length: int, ahead: int = 1) -> bytes:
    return remote(REPLY, length, bytes([ahead]))


def done(ahead: int = 1, error: int = 0) -> bytes:
    return remote(DONE, 0, bytes([error, ahead]))


def begin(kind: int, length: int, form: int = 0, style: int = 1) -> bytes:
    """The victim's own operation on the hostile member: 0 a write, 1 a read, 2 an atomic."""
    header = struct.pack("<BBBHB", 13 | 16, style | kind << 3, length, 8, 8)
    return header + (bytes([form]) if kind == 2 else b"")


def expose(style: int = 0, words: int = 0, more: bytes = b"") -> bytes:
    """A line of the hostile member's table of exposed memory; valid by default."""
    return struct.pack("<BBB", 14 | 32, style, words) + more


def rendezvous(first: int, total: int, early: int) -> bytes:
    return push(RENDEZVOUS, first, more=struct.pack("<BIBI", 1, total, 0, early))


def clear(accepted: int) -> bytes:
    return push(CLEAR, 0, more=struct.pack("<BIB", 9, accepted, 0))


def transfer(index: int, claimed: int, done: int, style: int = 0) -> bytes:
    """The hostile member's line for single copies, of the first transfer at that index."""
    return struct.pack("<BBBIIB", 14 | 16, style, index, claimed, done, 0)


def identity(style: int = 0) -> bytes:
    """The identity in another region of the hostile member, or with style 1 of the victim.

    Style 32 includes the nonce.
    """
    return struct.pack("<BB", 14 | 16 | 32, style)


def offer(index: int, total: int, early: int = 0) -> bytes:
    """The RENDEZVOUS of a large message whose sender's buffer is in its heap."""
    more = struct.pack("<BIBIB", 1, total, 0, early, index)  # style 137: RENDEZVOUS with an offer
    return struct.pack("<BBBHB", 0, 137, 1, early, 1) + struct.pack("<HH", 0, 0) + more


def clear_once(accepted: int, index: int, way: int = 1) -> bytes:
    """The CLEAR for an offer: the receive's buffer is in the hostile member's heap."""
    more = struct.pack("<BIBBB", 9, accepted, 0, way, index)  # style 67: CLEAR that accepts it
    return struct.pack("<BBBHB", 0, 67, 1, 0, 1) + struct.pack("<HH", 0, 0) + more


def resume(start: int) -> bytes:
    """Style 131: RESUME instead of a one-sided operation."""
    header = struct.pack("<BBBHB", 0, 131, 1, 0, 1) + struct.pack("<HH", 0, 0)
    return header + struct.pack("<I", start)


def credit(style: int = 2) -> bytes:
    return struct.pack("<BB", 4, style)


def send(length: int, style: int = 0x41, tag: int = 1) -> bytes:
    return struct.pack("<BBBB", 8, style, length, tag)


def receive(length: int, style: int = 0, tag: int = 1) -> bytes:
    return struct.pack("<BBBB", 10, style, length, tag)


def peek(style: int, length: int = LARGE) -> bytes:
    return struct.pack("<BBB", 12, style, length)


def network(what: int, style: int = 0, more: bytes = b"") -> bytes:
    """A step of network.c."""
    return struct.pack("<BBB", 14 | 64, style, what) + more


def frame_slot(kind: int, length: int = 0, payload: bytes = b"") -> bytes:
    """The input of take_slot(). SWITCH and OFFER have no length, and SWITCH is only a kind."""
    choice = struct.pack("<B", kind)
    if kind == NET_SWITCH:
        return choice
    return choice + (b"" if kind == NET_OFFER else struct.pack("<H", length)) + b"\1\1" + payload


def frame(*slots: bytes, style: int = 0) -> bytes:
    return network(5, style | (len(slots) - 1), b"".join(slots))


CONNECT = struct.pack("<BB", 5, 2)
PROGRESS = struct.pack("<B", 15 | 16)
CHECK = struct.pack("<B", 14)
LET_GO = struct.pack("<BB", 13 | 16 | 32, 0)
REJOIN = struct.pack("<B", 7 | 16)
OPEN = CONNECT + PROGRESS

# A receive into a heap, from a sender that reports its whole message as copied. Then from a sender
# that offers the message when half of it is left for the receiver to copy.
ONCE = OPEN + transfer(5, 80000, 80000) + receive(MIDDLE, 0x10)
ONCE_BY_HALF = ONCE + transfer(5, 40000, 80000) + offer(5, 80000) + PROGRESS

REQUEST, BEGIN, SWITCH, LOOK = network(0), network(1), network(3), network(4)
PONG, SWITCHED = network(5, 8, b"\7"), network(5, 8, b"\10")
HELLO, FAILOVER = network(5, 8, b"\2"), network(5, 8, b"\11")
# Both know each other in the network, and the hostile member has left its ring.
SWITCHED_OUT = OPEN + REQUEST + BEGIN + SWITCH + PROGRESS

SEEDS = {
    "switches-out": SWITCHED_OUT + frame(frame_slot(0, 30, bytes(48))) * 2 + LOOK + receive(SMALL),
    "switches-back": SWITCHED_OUT
    + frame(frame_slot(0, 30, bytes(48)), frame_slot(NET_SWITCH))
    + LOOK
    + PROGRESS
    + CONNECT
    + push(INLINE, 40)
    + PROGRESS,
    "switches-twice": SWITCHED_OUT + frame(frame_slot(NET_SWITCH)) * 2 + LOOK + SWITCH + PROGRESS,
    "switches-with-chunks": OPEN
    + push(EAGER, 4000) * 3
    + REQUEST
    + BEGIN
    + SWITCH
    + PROGRESS
    + frame(frame_slot(1, 4000, bytes(24)))
    + LOOK
    + receive(EAGER_LENGTH) * 3,
    "victim-switches": OPEN
    + send(SMALL)
    + REQUEST
    + BEGIN
    + PONG
    + LOOK
    + BEGIN
    + credit(2)
    + PROGRESS
    + send(LARGE)
    + network(0, 32)
    + BEGIN
    + SWITCHED
    + LOOK
    + PROGRESS,
    "victim-switches-and-die": OPEN
    + send(LARGE)
    + REQUEST
    + BEGIN
    + PONG
    + LOOK
    + BEGIN
    + REJOIN
    + CHECK
    + CONNECT
    + PROGRESS,
    "offered": SWITCHED_OUT
    + receive(LARGE)
    + network(5, 0, frame_slot(NET_OFFER | 64, 0, b"\1" * 40))
    + LOOK * 3
    + PROGRESS,
    "frames-without-a-switch": OPEN + REQUEST + BEGIN + frame(frame_slot(0, 30, bytes(48))) + LOOK,
    "switched-without-a-switch": OPEN + REQUEST + BEGIN + SWITCHED + LOOK,
    "fails-over": OPEN
    + REQUEST
    + BEGIN
    + send(LARGE)
    + receive(SMALL)
    + push(200, 1)
    + PROGRESS * 2
    + FAILOVER
    + LOOK
    + PROGRESS
    + HELLO
    + frame(frame_slot(0, 30, bytes(48)))
    + LOOK
    + receive(SMALL)
    + send(SMALL)
    + PROGRESS,
    "failover-of-a-liar": OPEN
    + REQUEST
    + BEGIN
    + receive(SMALL)
    + FAILOVER
    + LOOK * 2
    + PROGRESS * 2
    + FAILOVER * 2
    + LOOK
    + frame(frame_slot(0, 30, bytes(48)), style=4)
    + LOOK
    + CHECK
    + PROGRESS,
    "hello": OPEN + REQUEST + network(5, 8, b"\2") + LOOK + BEGIN + SWITCH + PROGRESS,
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
    "peek": OPEN + push(EAGER, 100) + PROGRESS + peek(0) + peek(2) + peek(4),
    "claim-and-leave": OPEN
    + rendezvous(100, 60000, 200)
    + PROGRESS
    + peek(4)
    + REJOIN
    + CONNECT
    + PROGRESS,
    "claim-and-take": OPEN
    + push(EAGER, 4000) * 2
    + PROGRESS
    + peek(4) * 2
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
    "write": OPEN
    + write(30)
    + write(30, word=9)
    + write(30, word=2)
    + write(8, flags=10)
    + PROGRESS,
    "write-short": OPEN + write(100) + push(CONTINUATION, 0) * 2 + PROGRESS,
    "write-chunk": OPEN
    + remote(WRITE_CHUNK, 4000, struct.pack("<H", 3), flags=14) * 3
    + remote(WRITE_CHUNK, 4000, struct.pack("<H", 3), word=2) * 3
    + PROGRESS,
    "read": OPEN + read(30) + read(400) + read(4000) + read(16000) + read(8, word=3) + PROGRESS,
    "read-without-credit": OPEN
    + (b"\x10" + read(4000)[1:]) * 2
    + PROGRESS
    + credit()
    + PROGRESS * 4,
    "atomic": OPEN + atomic(2) + atomic(2, form=1) + atomic(1, operation=12, form=2) + PROGRESS,
    "atomic-unknown": OPEN + atomic(1, datatype=17) + atomic(1, operation=21) + PROGRESS,
    "atomic-refused": OPEN + b"".join(atomic(2, form=1, key=key) for key in range(8)) + PROGRESS,
    "reads-that-wait": OPEN + b"\x10" + read(4000)[1:] + (PROGRESS + credit()) * 6,
    "let-go": OPEN + b"\x10" + read(16000)[1:] + PROGRESS + LET_GO + credit() + PROGRESS * 4,
    "atomic-chunk": OPEN
    + remote(ATOMIC_CHUNK, 800, bytes(48) + struct.pack("<HHBBB", 3, 100, 7, 2, 1)) * 2
    + PROGRESS,
    "remote-write": OPEN + begin(0, 1) * 3 + PROGRESS + done(2) + PROGRESS + done(1) + PROGRESS,
    "remote-refused": OPEN
    + begin(0, 1)
    + begin(1, 3)
    + PROGRESS
    + done(1, 1)
    + done(1, 2)
    + PROGRESS,
    "remote-read": OPEN + begin(1, 3) * 2 + PROGRESS + reply(48) * 2 + PROGRESS,
    "remote-fetch": OPEN + begin(2, 1, form=1) + begin(2, 1, form=2) + reply(16) * 2 + PROGRESS,
    "remote-long": OPEN
    + begin(0, 9)
    + begin(1, 10)
    + (PROGRESS + done(3) + credit()) * 4
    + remote(REPLY_CHUNK, 16320, bytes([1])) * 3
    + PROGRESS,
    "remote-and-die": OPEN + begin(0, 9) + begin(1, 10) + begin(2, 1, 1) + REJOIN + CONNECT + CHECK,
    "remote-to-itself": b"".join(begin(kind, 9, 1, style=0) for kind in range(3)) + PROGRESS * 5,
    "once-received": ONCE
    + offer(5, 80000)
    + PROGRESS
    + transfer(5, 40000, 60000)
    + PROGRESS
    + transfer(5, 40000, 40000)
    + PROGRESS,
    "once-received-privately": OPEN
    + transfer(5, 80000, 80000)
    + offer(5, 80000)
    + PROGRESS
    + receive(MIDDLE)
    + PROGRESS
    + transfer(5, 0, 80000)
    + PROGRESS,
    "once-received-and-die": ONCE
    + offer(5, 80000)
    + transfer(5, 10000, 80000)
    + PROGRESS
    + CHECK
    + REJOIN
    + CHECK,
    "once-received-in-pieces": ONCE_BY_HALF
    + transfer(5, 0, 0, 16)
    + bytes(4)
    + PROGRESS
    + push(PIECE, 10000) * 2
    + PROGRESS,
    "once-received-and-broken": ONCE_BY_HALF
    + push(EARLY, 0)
    + PROGRESS * 2
    + transfer(5, 40000, 40000)
    + PROGRESS,
    "once-sent": OPEN
    + send(MIDDLE, 0xC1)
    + PROGRESS
    + transfer(5, 20000, 0)
    + clear_once(80000, 5)
    + PROGRESS * 3
    + push(ACKNOWLEDGE, 0)
    + PROGRESS,
    "once-sent-and-resumed": OPEN
    + send(MIDDLE, 0xC1)
    + PROGRESS
    + transfer(5, 20000, 0)
    + clear_once(80000, 5)
    + PROGRESS
    + resume(30000)
    + PROGRESS * 3
    + credit()
    + PROGRESS,
    "once-to-itself": send(MIDDLE, 0xC0) + receive(MIDDLE, 0x10) + PROGRESS * 4,
    "direct": expose() + begin(0, 1) + begin(0, 9) + begin(1, 8) + begin(2, 1, 1) + PROGRESS,
    "direct-withdrawn": OPEN
    + expose()
    + begin(1, 3)
    + expose(32)
    + begin(1, 3)
    + expose(0, 1, b"\2")
    + begin(0, 3)
    + PROGRESS,
    "direct-elsewhere": expose(0, 16, struct.pack("<QB", 4096, 0)) + begin(0, 1) + PROGRESS + CHECK,
    "direct-too-long": expose(0, 4, struct.pack("<QB", 1 << 40, 0)) + begin(0, 1) + PROGRESS,
    "direct-in-ours": expose(0, 32 | 64, b"\0\1") + begin(0, 1) + begin(2, 1, 1) + PROGRESS,
    "direct-in-nobodys": expose(0, 32 | 64, b"\1\0") + begin(0, 1) + PROGRESS,
    "direct-and-die": expose()
    + begin(0, 9)
    + REJOIN
    + begin(0, 9)
    + CHECK
    + begin(1, 1)
    + PROGRESS,
    "identity": OPEN + identity() + identity(8) + send(SMALL) + PROGRESS,
    "identity-twice": OPEN + identity() + identity(32 | 1) + PROGRESS + CHECK,
    "scribble": OPEN + struct.pack("<BIB4s", 6, 4096, 3, b"abcd") + PROGRESS + CHECK,
    "bad-offer": struct.pack("<BIQBB", 5 | 16, 64, 8192, 3, 1) + PROGRESS + send(SMALL),
}


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (directory / name).write_bytes(data)


main()
