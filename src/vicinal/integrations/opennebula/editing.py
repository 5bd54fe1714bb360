"""Changing a deployment file where an XML parser says; all else stays byte by byte.

OpenNebula's stock script changes paths of disks by their text, quotes and all.
"""

import re
from dataclasses import dataclass
from xml.parsers import expat

from vicinal.base.errors import VicinalError


@dataclass(frozen=True)
class Tag:
    """An element of the document, and where it is: bytes from its beginning."""

    start: int
    end_tag: int
    """Where its end tag begins; `start` where it has none, and no content."""
    end: int
    """Behind it."""


def find_tags(document: bytes, *path: str) -> list[Tag]:
    """The elements of a path from the root on, such as "domain", "cputune". It can be parsed.

    Raises VicinalError unless the document is in an encoding whose tags are ASCII.
    """
    found: list[Tag] = []
    names: list[str] = []
    starts: list[int] = []
    closing = re.compile(rf"</{re.escape(path[-1])}\s*>".encode())
    parser = expat.ParserCreate()

    def begin(name: str, _: object) -> None:
        names.append(name)
        starts.append(parser.CurrentByteIndex)

    def end(_: str) -> None:
        start, here = starts.pop(), parser.CurrentByteIndex
        # The file may be long, with very many tags in it: so nothing here takes longer for that.
        if len(names) == len(path) and tuple(names) == path:
            # Of one without content, expat says where it ends.
            closed = closing.match(document, here) is not None
            behind = document.find(b">", here) + 1 if closed else here
            found.append(Tag(start, here if closed else start, behind))
        names.pop()

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.Parse(document, True)
    for tag in found:
        if not document.startswith(f"<{path[-1]}".encode(), tag.start):
            raise VicinalError(
                "the deployment file is in an encoding other than UTF-8", "OpenNebula writes that"
            )
    return found


def replaced(document: bytes, start: int, end: int, text: bytes) -> bytes:
    """The document with other bytes there."""
    return document[:start] + text + document[end:]
