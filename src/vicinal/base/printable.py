"""Somebody else's words, made fit for a terminal."""


def printable(text: str) -> str:
    """Text without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
