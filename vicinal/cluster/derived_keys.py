"""ssh keys that several hosts make alike, of one secret: so none has to be sent to another.

    write_keys(directory, derive_keys(bytes.fromhex(secret), "slurm job 12"))

The keys are Ed25519 (RFC 8032), whose private half may be any 32 bytes; ssh-keygen makes those of
random bytes alone. The files are as ssh reads them (PROTOCOL.key in OpenSSH's sources).
"""

import base64
import hashlib
import hmac
import struct
from collections.abc import Mapping

_KIND, _COMMENT = b"ssh-ed25519", b"vicinal"
_BLOCK = 8
"""Private halves that are not enciphered are filled up to whole ones."""
_LINE = 70

_FIELD = 2**255 - 19
_CURVE = -121665 * pow(121666, -1, _FIELD) % _FIELD
_BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)

_Point = tuple[int, int, int, int]
"""X, Y, Z and T of a point x = X/Z, y = Y/Z, xy = T/Z: no division is needed to add such."""


def derive_keys(secret: bytes, purpose: str, names: Mapping[str, str]) -> dict[str, str]:
    """The files of keys: `names` has those of private halves, and what tells each from others.

    A public half is beside its private one, with `.pub`. Who has a key does not know the secret,
    nor the keys of other purposes.
    """
    found = {}
    for name, use in names.items():
        seed = hmac.digest(secret, f"{purpose}: {use}".encode(), hashlib.sha256)
        public = public_half(seed)
        found[name] = _private_text(seed, public)
        found[f"{name}.pub"] = f"{_KIND.decode()} {_encoded(_blob(public))} {_COMMENT.decode()}\n"
    return found


def public_half(seed: bytes) -> bytes:
    """The public key of a private one."""
    digest = hashlib.sha512(seed).digest()
    factor = int.from_bytes(digest[:32], "little")
    factor = factor & ((1 << 254) - 8) | 1 << 254
    x, y, z, _ = _times(factor)
    scale = pow(z, -1, _FIELD)
    x, y = x * scale % _FIELD, y * scale % _FIELD
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _times(factor: int) -> _Point:
    """The base point so many times. It takes as long for every factor of this many bits."""
    found: _Point = (0, 1, 1, 0)
    point: _Point = (*_BASE, 1, _BASE[0] * _BASE[1] % _FIELD)
    for bit in range(255):
        added = _sum(found, point)
        found = added if factor >> bit & 1 else found
        point = _sum(point, point)
    return found


def _sum(one: _Point, other: _Point) -> _Point:
    """The sum of two points, which may be the same one."""
    a = (one[1] - one[0]) * (other[1] - other[0])
    b = (one[1] + one[0]) * (other[1] + other[0])
    c = 2 * _CURVE * one[3] * other[3]
    d = 2 * one[2] * other[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % _FIELD, g * h % _FIELD, f * g % _FIELD, e * h % _FIELD)


def _private_text(seed: bytes, public: bytes) -> str:
    # Two numbers that are the same show who deciphers a key that the word was right.
    check = hashlib.sha256(public).digest()[:4] * 2
    private = check + _texts(_KIND, public, seed + public, _COMMENT)
    private += bytes(range(1, 1 + -len(private) % _BLOCK))
    whole = b"openssh-key-v1\0" + _texts(b"none", b"none", b"")
    text = _encoded(whole + struct.pack(">I", 1) + _texts(_blob(public), private))
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    frame = "{} OPENSSH PRIVATE KEY".format
    return "\n".join((f"-----{frame('BEGIN')}-----", *lines, f"-----{frame('END')}-----", ""))


def _blob(public: bytes) -> bytes:
    return _texts(_KIND, public)


def _texts(*texts: bytes) -> bytes:
    """Each with its length before it."""
    return b"".join(struct.pack(">I", len(text)) + text for text in texts)


def _encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()
