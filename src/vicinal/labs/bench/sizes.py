"""Message sizes as people write them: 8 B, 64 KiB, 4 MiB."""

KIB = 1024
MIB = 1024 * KIB


def format_size(size: int) -> str:
    """The size in bytes in the largest binary unit that it is a whole number of."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def powers_of_two(first: int, last: int, step: int = 1) -> list[int]:
    """first, first * 2**step, ... up to and including `last`."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first <<= step
    return sizes
