"""XML as OpenNebula writes it: read without trust, and changed where the parser says.

Users' words are in it. All else of a changed document stays byte by byte: OpenNebula's stock script
changes paths of disks by their text, quotes and all.
"""

import base64
import binascii
import re
import sys
from dataclasses import dataclass
from typing import NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from vicinal.base.errors import VicinalError

_LONGEST = 16 << 20
"""Bytes; OpenNebula keeps a VM's document in a field of its database that holds no more."""


class _Builder(ElementTree.TreeBuilder):
    """Refuses a document type: nothing of OpenNebula's has one, and entities are declared there."""

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> NoReturn:
        raise VicinalError("the document declares a type", "OpenNebula writes none: see who did")


def parse(document: bytes, what: str, *tags: str) -> Element:
    """The root of a document, whose tag is one of `tags`. Raises VicinalError, naming `what`."""
    if len(document) > _LONGEST:
        raise VicinalError(f"{what} has {len(document)} bytes", "OpenNebula writes shorter ones")
    parser = ElementTree.XMLParser(target=_Builder(insert_comments=True))
    try:
        parser.feed(document)
        root = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise VicinalError(
            f"{what} is no XML ({error})", "see the VM's log for what came before"
        ) from error
    if root.tag not in tags:
        raise VicinalError(
            f"{what} begins with {shown(root.tag)} instead of {' or '.join(tags)}",
            "see that the driver is called as OpenNebula's KVM driver is",
        )
    return root


def given_in_base64() -> bytes:
    """The document that OpenNebula gives its network drivers to read. Raises VicinalError."""
    try:
        return base64.b64decode(sys.stdin.buffer.read(), validate=False)
    except binascii.Error as error:
        raise VicinalError(
            "what OpenNebula gave to read is not in base64", "see that it calls this driver"
        ) from error


def shown(text: str, longest: int = 40) -> str:
    """Somebody else's words for a line of a log: quoted, on one line, and not longer than that."""
    return ascii(text if len(text) <= longest else text[:longest] + "...")


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
