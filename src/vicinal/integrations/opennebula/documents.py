"""XML as OpenNebula writes it: users' words are in it, so it is read without trust."""

import base64
import binascii
import sys
from typing import NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

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
