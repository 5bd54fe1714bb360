"""Numbers of bytes and of things, as lines for people have them."""

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def show_bytes(count: int) -> str:
    """In the largest unit that fits, with one digit after the point where it is not whole."""
    for unit, name in _UNITS:
        if count >= unit:
            digits = 0 if count % unit == 0 else 1
            return f"{count / unit:.{digits}f} {name}"
    return f"{count} B"


def show_count(count: int, what: str) -> str:
    """A number and its noun: "1 node", "2 nodes"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
