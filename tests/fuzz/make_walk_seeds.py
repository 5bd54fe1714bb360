"""make_walk_seeds.py DIRECTORY - inputs for fuzz_walk: each change once, between messages."""

import sys
from pathlib import Path

A, B, C = 0, 1, 2
ANY = 3

# Steps, by their numbers in step()
SEND, RECEIVE, REQUEST, LOOK, PLUG, FRAME = 0, 5, 9, 11, 13, 14
CORE, LOSS, DEATH, EVICTION, SECOND, ROUNDS = 16, 17, 18, 19, 21, 23
BURST = 8  # with BURSTS

# enum walk_fault
FRAMES, LOSSES, DEATHS, EVICTIONS, BURSTS = 1, 2, 4, 8, 16
# What a burst does, and variants by the bits of the style that are not for the tags
SENDS, RECEIVES, LOOKS, CANCELS = 0, 1, 2, 3
PEEKS, DISCARDS, CLAIMS = 0, 4, 8
THIRDS = 8
ONE_TAG, MANY_TAGS = 0, 0x80
# The bits of its pattern: the order, the ignored bits of tags, the sources, the sizes
LAST_FIRST, ALL_BITS, HALF_OF_THEM, ONE_BIT_EACH, HALF_ANY, ALL_ANY = 1, 2, 4, 6, 8, 24
EIGHT_SLOTS = 3 << 5
# enum requested_route
REGION, NETWORK, LEAVE, RETURN = 0, 1, 2, 3
# Indices into lengths[]
EMPTY, SMALL, SHORT, EAGER, PIECES, LARGE = 0, 1, 4, 6, 8, 9

TAGGED, IN_HEAP, WITH_DATA, DELIVERED, TWO_PIECES = 1, 2, 4, 8, 128
HEAPS, SINGLE_COPIES, SEND_QUEUES = 1, 14, 112
# The regions of the three endpoints: indices into the lists of begin(), three bits each
TOGETHER, APART, OVERLAPPING = 0, 0o20, 0o23


def begin(choice: int, style: int = 0, faults: int = 0) -> bytes:
    return bytes([choice, style, faults])


def send(at: int, to: int, size: int, style: int = TAGGED) -> bytes:
    return bytes([SEND, at + 16 * to, style, size])


def receive(at: int, source: int, size: int, style: int = TAGGED) -> bytes:
    """`size` is an index into lengths[], as for a send. The step counts from 8 bytes on."""
    return bytes([RECEIVE, at + 16 * source, style, size - 1])


def route(at: int, wanted: int) -> bytes:
    return bytes([REQUEST, at, wanted])


def traffic(style: int = TAGGED) -> bytes:
    """Messages of every protocol in both directions, some of them received before they are sent."""
    steps = b""
    for size in (SMALL, SHORT, EAGER, PIECES, LARGE):
        steps += receive(B, A, size, style) + send(A, B, size, style)
        steps += send(B, A, size, style) + receive(A, ANY, size, style)
    return steps + send(A, C, SHORT, style) + send(C, B, EAGER, 0)


def frame(to: int, sender: int, kind: int) -> bytes:
    """A frame that the sender could send, by its number in enum frame_kind."""
    return bytes([FRAME, to + 16 * sender + (kind - 1) // 4 * 64, 64 + (kind - 1) % 4, 0])


def burst(
    at: int, other: int, style: int, pattern: int = 0, count: int = 64, tags: int = MANY_TAGS
) -> bytes:
    return bytes([BURST, at + 16 * other, style | tags, pattern, count - 1])


SETTLE = bytes([ROUNDS + 24 * 8]) * 2
PASS = bytes([LOOK]) + SETTLE + bytes([SECOND, LOOK]) + SETTLE


def death(at: int) -> bytes:
    return bytes([DEATH, at])


CHANGES = {
    "messages": b"",
    "network-switch": route(A, NETWORK) + PASS + traffic() + route(A, REGION) + PASS,
    "detach-and-reattach": route(A, LEAVE) + PASS + traffic() + route(A, RETURN) + PASS + PASS,
    "called-back": route(A, LEAVE) + bytes([LOOK]) + send(A, B, LARGE) + route(A, RETURN) + PASS,
    "all-detach": b"".join(route(each, LEAVE) for each in (A, B, C)) + PASS + traffic() + PASS,
    "other-region": route(A, LEAVE) + PASS + bytes([PLUG, 1]) + PASS + PASS,
    "slow-core": route(A, NETWORK) + bytes([CORE, A, 0x4D, CORE, B, 0x32]) + PASS + traffic(),
}

FAULTS = {
    "death": death(C) + PASS + death(C) + bytes([0]) + traffic() + PASS,
    "death-while-it-leaves": route(C, LEAVE)
    + bytes([LOOK])
    + death(C)
    + PASS
    + death(C)
    + bytes([1]),
    "loss": route(A, NETWORK)
    + PASS
    + bytes([LOSS, B])
    + traffic()
    + SETTLE
    + bytes([LOSS, B])
    + PASS,
    "eviction": bytes([EVICTION, A + 16 * B, 0]) + PASS + traffic() + PASS,
    "violation": bytes([EVICTION, A + 16 * B, 1]) + PASS + traffic() + PASS,
    "given-up": bytes([EVICTION, A + 16 * B, 66]) + PASS + traffic() + PASS,
    "frames": route(A, NETWORK)
    + PASS
    + b"".join(frame(B, A, kind) for kind in range(1, 12))
    + PASS,
    "changed-frames": route(A, NETWORK)
    + PASS
    + traffic()
    + bytes([FRAME, B, 0xA4, 3, 0, 1]) * 3
    + bytes([FRAME, A + 16 * B, 0x88, 40, 0, 7, 60, 0, 1])
    + PASS,
}


# Eight slots each: the ring is full twice, grows, and shrinks when it was not full for a while.
GROW = (burst(A, B, SENDS, EIGHT_SLOTS) + SETTLE) * 3
SHRINK = (bytes([LOOK]) + SETTLE) * 8

BURST_CHANGES = {
    "rings-grow-and-shrink": (GROW + SHRINK + burst(B, A, CANCELS)) * 3,
    "grown-and-switched": GROW
    + route(A, NETWORK)
    + PASS
    + traffic()
    + route(A, REGION)
    + PASS
    + GROW,
    "grown-and-left": GROW + route(A, LEAVE) + PASS + traffic() + route(A, RETURN) + PASS + GROW,
    "posted": burst(B, A, RECEIVES)
    + burst(A, B, SENDS, LAST_FIRST)
    + SETTLE
    + burst(B, A, RECEIVES, HALF_ANY | ONE_BIT_EACH) * 2
    + burst(B, A, CANCELS | THIRDS, 0, 20)
    + burst(A, B, SENDS, LAST_FIRST) * 2
    + SETTLE,
    "few-left": burst(B, A, RECEIVES, HALF_ANY | ONE_BIT_EACH, 40, ONE_TAG)
    + burst(A, B, SENDS, LAST_FIRST, 2)
    + SETTLE
    + burst(B, A, CANCELS, 0, 35)
    + burst(A, B, SENDS, 0, 8, ONE_TAG)
    + SETTLE,
    "patterns": burst(B, A, RECEIVES, ONE_BIT_EACH)
    + burst(B, A, RECEIVES, ONE_BIT_EACH | ALL_ANY)
    + burst(A, B, SENDS, LAST_FIRST)
    + SETTLE
    + burst(B, A, CANCELS)
    + burst(C, B, SENDS)
    + SETTLE
    + burst(B, A, CANCELS),
    "unexpected": burst(A, B, SENDS)
    + burst(C, B, SENDS, LAST_FIRST)
    + SETTLE
    + burst(B, A, RECEIVES, LAST_FIRST, 20)
    + burst(B, A, RECEIVES, ALL_ANY | ALL_BITS, 20)
    + burst(B, C, RECEIVES, HALF_ANY | HALF_OF_THEM | LAST_FIRST)
    + SETTLE,
    "looks": burst(A, B, SENDS)
    + SETTLE
    + burst(B, A, LOOKS | PEEKS, LAST_FIRST)
    + burst(B, A, LOOKS | DISCARDS, LAST_FIRST, 20)
    + burst(B, A, LOOKS | CLAIMS, ALL_ANY, 30)
    + SETTLE
    + burst(B, A, CANCELS)
    + SETTLE,
    "posted-and-left": burst(B, A, RECEIVES)
    + burst(B, C, RECEIVES, ALL_BITS)
    + burst(A, B, SENDS, LAST_FIRST, 30)
    + route(A, LEAVE)
    + PASS
    + burst(A, B, SENDS)
    + PASS,
}

BURST_FAULTS = {
    "grown-and-dead": GROW + death(B) + PASS + death(B) + bytes([0]) + GROW + SHRINK,
    "grown-and-evicted": GROW + bytes([EVICTION, A + 16 * B, 0]) + PASS + traffic() + GROW,
    "posted-and-given-up": burst(B, A, RECEIVES)
    + burst(B, A, RECEIVES, ONE_BIT_EACH)
    + burst(B, C, RECEIVES, LAST_FIRST)
    + burst(C, B, SENDS, LAST_FIRST, 30)
    + burst(A, B, SENDS, LAST_FIRST, 20)
    + SETTLE
    + bytes([EVICTION, B + 16 * A, 66])
    + PASS
    + burst(C, B, SENDS)
    + PASS,
    "unexpected-and-dead": burst(C, B, SENDS)
    + burst(A, B, SENDS)
    + SETTLE
    + burst(B, C, LOOKS | CLAIMS, LAST_FIRST, 20)
    + death(C)
    + PASS
    + death(C)
    + bytes([0])
    + burst(B, C, RECEIVES)
    + burst(C, B, SENDS)
    + PASS,
}


def seeds() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for layout, where in (("together", TOGETHER), ("apart", APART), ("overlapping", OVERLAPPING)):
        for name, change in CHANGES.items():
            found[f"{name}-{layout}"] = begin(where) + traffic() + change + traffic()
        for name, change in FAULTS.items():
            found[f"{name}-{layout}"] = begin(where, 0, 15) + traffic() + change + traffic()
        for name, change in BURST_CHANGES.items():
            found[f"burst-{name}-{layout}"] = begin(where, SEND_QUEUES, BURSTS) + change + traffic()
        for name, change in BURST_FAULTS.items():
            found[f"burst-{name}-{layout}"] = begin(where, SEND_QUEUES, 15 | BURSTS) + change
    heap = TAGGED | IN_HEAP | DELIVERED
    for name, change in CHANGES.items():
        start = begin(TOGETHER, HEAPS | SINGLE_COPIES | SEND_QUEUES)
        found[f"{name}-heaps"] = start + traffic(heap) + change + traffic(heap | TWO_PIECES)
    return found


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (directory / name).write_bytes(data)


main()
