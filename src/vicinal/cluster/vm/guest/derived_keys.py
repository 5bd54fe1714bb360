"""ssh keys that several hosts make alike, of one secret: so none has to be sent to another.

    write_keys(directory, keys_of_secret(bytes.fromhex(secret), "slurm job 12"))

The keys are Ed25519 (RFC 8032), whose private half may be any 32 bytes; ssh-keygen makes those of
random bytes alone.
"""

import hashlib
import hmac
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def derive_keys(secret: bytes, purpose: str, names: Mapping[str, str]) -> dict[str, str]:
    """The files of keys: `names` has those of private halves, and what tells each from others.

    A public half is beside its private one, with `.pub`. Who has a key does not know the secret,
    nor the keys of other purposes.
    """
    found = {}
    for name, use in names.items():
        seed = hmac.digest(secret, f"{purpose}: {use}".encode(), hashlib.sha256)
        key = Ed25519PrivateKey.from_private_bytes(seed)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        found[name] = private.decode()
        found[f"{name}.pub"] = f"{public.decode()}\n"
    return found
