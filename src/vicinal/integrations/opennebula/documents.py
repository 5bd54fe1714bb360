"""OpenNebula's XML, parsed without trust and changed at byte offsets that the parser reports.

The documents contain users' words. All bytes outside a change stay as they are, because
OpenNebula's stock script changes paths of disks by their text, including the quotes.
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
"""Bytes; the field of OpenNebula's database for a VM's document holds no more."""


class _Builder(ElementTree.TreeBuilder):
    """Refuses a document type, which can declare entities; OpenNebula's documents have none."""

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> NoReturn:
        raise VicinalError(
            "the document declares a document type, and OpenNebula declares none",
            "find out what wrote the document",
        )


def parse(document: bytes, what: str, *tags: str) -> Element:
    """The root of a document. Its tag is one of `tags`; errors call the document `what`.

    Raises VicinalError if the document is too long, is no XML, or has another root.
    """
    if len(document) > _LONGEST:
        raise VicinalError(
            f"{what} has {len(document)} bytes, and OpenNebula writes at most {_LONGEST}",
            "find out what wrote the document",
        )
    parser = ElementTree.XMLParser(target=_Builder(insert_comments=True))
    try:
        parser.feed(document)
        root = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise VicinalError(
            f"{what} is not XML ({error})", "see the earlier lines of the VM's log"
        ) from error
    if root.tag not in tags:
        raise VicinalError(
            f"{what} begins with {shown(root.tag)} instead of {' or '.join(tags)}",
            "call the driver as OpenNebula calls its KVM driver",
        )
    return root


def given_in_base64() -> bytes:
    """The document that OpenNebula passes to network drivers on standard input, decoded.

    Raises VicinalError if the input is not base64.
    """
    try:
        return base64.b64decode(sys.stdin.buffer.read(), validate=False)
    except binascii.Error as error:
        raise VicinalError(
            "standard input is not base64, and OpenNebula passes the VM's document in base64",
            "let only OpenNebula call this driver",
        ) from error


def shown(text: str, longest: int = 40) -> str:
    """A user's text for a line of a log: quoted ASCII on one line, at most `longest` characters."""
    return ascii(text if len(text) <= longest else text[:longest] + "...")


@dataclass(frozen=True)
class Tag:
    """The position of an element, in bytes from the document's beginning."""

    start: int
    end_tag: int
    """Start of the end tag; equals `start` for an element without an end tag."""
    end: int
    """First byte after the element."""


def find_tags(document: bytes, *path: str) -> list[Tag]:
    """The elements at a path from the root, such as "domain", "cputune", of a well-formed document.

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
        # A long file may have very many tags: each tag costs constant time here.
        if len(names) == len(path) and tuple(names) == path:
            # For an element without content, expat reports the element's end.
            closed = closing.match(document, here) is not None
            behind = document.find(b">", here) + 1 if closed else here
            found.append(Tag(start, here if closed else start, behind))
        names.pop()

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.Parse(document, True)
    for tag in found:
        if not document.startswith(f"<{path[-1]}".encode(), tag.start):
            raise VicinalError(
                "the deployment file is not in UTF-8, and OpenNebula writes UTF-8",
                "find out what wrote the file",
            )
    return found


def replaced(document: bytes, start: int, end: int, text: bytes) -> bytes:
    """The document with the bytes from `start` to `end` (exclusive) replaced by `text`."""
    return document[:start] + text + document[end:]
