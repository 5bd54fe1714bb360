"""Text from other parties, made safe for a terminal."""


def printable(text: str) -> str:
    """Replace each character that a terminal may interpret by `?`."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
