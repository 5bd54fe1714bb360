"""Who each guest of a cluster is: its name, its addresses, its neighbours, and the keys of all.

    keys = make_keys(directory, identities)
    keys.archive("node0")

A guest's image knows nothing of this, so that all guests can boot the same. Each unpacks an archive
of its own in its root directory, which it gets through QEMU's firmware configuration. Keys are made
for one run of a cluster and are gone with it.
"""

import hashlib
import hmac
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.image.layout import GUESTS_FILE, HOME, PREFIX_BITS, USER_ID

_KEYGEN = "ssh-keygen"
_KEYGEN_SECONDS = 60
_USER_KEY, _HOST_KEY = "user-key", "host-key"
_KEY_FILES = (_USER_KEY, f"{_USER_KEY}.pub", _HOST_KEY, f"{_HOST_KEY}.pub")

KeyTexts = Mapping[str, str]
"""The keys of a cluster by the names of their files, as one host hands them to another."""


@dataclass(frozen=True)
class Card:
    """A network card of a guest, known by its hardware address."""

    mac: str
    peer: str | None = None
    """IPv4 address of the one neighbour that is reached by it; None: all are."""
    network: str | None = None
    """None: it is of the guests' own network. Else it is of another, and this its address there,
    with the network's length; "" for none."""
    name: str = "lan0"
    """What the guest calls it, if it is of another network."""


@dataclass(frozen=True)
class Identity:
    """One guest of a cluster."""

    number: int
    """Counted from 0."""
    name: str
    """Its host name."""
    address: str
    """IPv4 address, which its first card in the guests' own network bears."""
    cards: tuple[Card, ...]
    drivers: tuple[str, ...] = ()
    """Those of the SR-IOV functions among them."""


@dataclass(frozen=True)
class Keys:
    """Files of one run's keys, and of what each guest gets."""

    directory: Path

    @property
    def user(self) -> Path:
        """Private key of the user, for the host and between guests."""
        return self.directory / _USER_KEY

    @property
    def known_hosts(self) -> Path:
        """The host key, which is that of all guests, with their names."""
        return self.directory / "known-hosts"

    def archive(self, name: str) -> Path:
        """What the guest of that name unpacks, a tar archive."""
        return self.directory / f"{name}.tar"


def card_address(number: int, peer: int = 0xFFFF) -> str:
    """Hardware address of a guest's card: that on the common network, or on the wire to one peer.

    Both are counted from 0; the first byte says that no manufacturer gave it away.
    """
    parts = (0x52, 0x54, number >> 8, number & 0xFF, peer >> 8, peer & 0xFF)
    return ":".join(f"{part:02x}" for part in parts)


def make_keys(directory: Path, guests: Sequence[Identity]) -> Keys:
    """Make the user's and the hosts' key in `directory`, the same for all, and each its archive."""
    generate_keys(directory)
    return write_archives(directory, guests)


def check_keygen() -> None:
    """Raise VicinalError where there is no tool that makes keys."""
    if shutil.which(_KEYGEN) is None:
        raise VicinalError(f"{_KEYGEN} was not found", "install openssh-client")


def generate_keys(directory: Path) -> None:
    """Make the user's and the hosts' key. Raises VicinalError."""
    for name in (_USER_KEY, _HOST_KEY):
        _generate(directory / name)


def keys_of_secret(secret: bytes, purpose: str) -> KeyTexts:
    """The keys that every host which has the secret makes for this purpose.

    No host has to send keys to another one.
    """
    return _derive_keys(secret, purpose, {_USER_KEY: "user", _HOST_KEY: "hosts"})


def read_keys(directory: Path) -> KeyTexts:
    """The keys that are there. Raises OSError where some are missing."""
    return {name: (directory / name).read_text() for name in _KEY_FILES}


def write_keys(directory: Path, keys: KeyTexts) -> None:
    """Put keys there that were made elsewhere, for this user alone."""
    for name in _KEY_FILES:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(directory / name, flags, 0o600), "w") as file:
            file.write(keys[name])


def fingerprint(keys: KeyTexts) -> str:
    """What tells these keys from any others, and is no secret."""
    public = keys[f"{_USER_KEY}.pub"] + keys[f"{_HOST_KEY}.pub"]
    return hashlib.sha256(public.encode()).hexdigest()[:32]


def write_archives(
    directory: Path, guests: Sequence[Identity], commands: Mapping[str, str] | None = None
) -> Keys:
    """Make the archive of each guest, with the keys that are in `directory`.

    `commands` is what some are to run before anybody gets in, by their names.
    """
    keys, host = Keys(directory), directory / _HOST_KEY
    names = [name for guest in guests for name in (guest.name, guest.address)]
    keys.known_hosts.write_text(f"{','.join(names)} {host.with_suffix('.pub').read_text()}")
    for guest in guests:
        with tarfile.open(keys.archive(guest.name), "w") as tar:
            _add(tar, "etc/hostname", f"{guest.name}\n".encode(), 0o644)
            _add(tar, "etc/hosts", _hosts(guests).encode(), 0o644)
            _add(tar, "etc/vicinal/guest", _settings(guest).encode(), 0o644)
            _add(tar, GUESTS_FILE.lstrip("/"), _names(guests).encode(), 0o644)
            if commands is not None and guest.name in commands:
                _add(tar, "etc/vicinal/commands", commands[guest.name].encode(), 0o600)
            _add_keys(tar, keys, host)
        keys.archive(guest.name).chmod(0o600)
    return keys


def _hosts(guests: Sequence[Identity]) -> str:
    lines = [f"{guest.address} {guest.name}\n" for guest in guests]
    return "127.0.0.1 localhost\n" + "".join(lines)


def _names(guests: Sequence[Identity]) -> str:
    return "".join(f"{guest.name}\n" for guest in guests)


def _settings(guest: Identity) -> str:
    """What the guest's first process reads, as assignments of the shell: guest_init.sh."""
    own = [card for card in guest.cards if card.network is None]
    cards = " ".join(card.mac + (f"={card.peer}" if card.peer else "") for card in own)
    others = (card for card in guest.cards if card not in own)
    links = " ".join(f"{card.mac}={card.name}={card.network}" for card in others)
    address = f"{guest.address}/{PREFIX_BITS}"
    lists = f"cards='{cards}'\nlinks='{links}'\ndrivers='{' '.join(guest.drivers)}'\n"
    return f"node={guest.number}\naddress={address}\n{lists}"


def _add_keys(tar: tarfile.TarFile, keys: Keys, host: Path) -> None:
    _add(tar, "etc/ssh/host_key", host.read_bytes(), 0o600)
    # ssh takes no private key that others may read: it belongs to the user.
    _add(tar, "etc/ssh/user_key", keys.user.read_bytes(), 0o600, owner=USER_ID)
    _add(tar, "etc/ssh/known_hosts", keys.known_hosts.read_bytes(), 0o644)
    _add_directory(tar, f"{HOME.lstrip('/')}/.ssh", 0o700, owner=USER_ID)
    public = keys.user.with_suffix(".pub").read_bytes()
    _add(tar, f"{HOME.lstrip('/')}/.ssh/authorized_keys", public, 0o600, owner=USER_ID)


def _generate(file: Path) -> None:
    command = [_KEYGEN, "-q", "-t", "ed25519", "-N", "", "-C", "vicinal", "-f", str(file)]
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KEYGEN_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise VicinalError(f"{_KEYGEN} was not found", "install openssh-client") from error
    except subprocess.CalledProcessError as error:
        raise VicinalError(
            f"ssh-keygen failed ({error.stderr.strip()})", "see whether it works by hand"
        ) from error


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int, owner: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.uid, entry.gid = len(content), mode, owner, owner
    tar.addfile(entry, io.BytesIO(content))


def _add_directory(tar: tarfile.TarFile, name: str, mode: int, owner: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
    tar.addfile(entry)


def _derive_keys(secret: bytes, purpose: str, names: Mapping[str, str]) -> dict[str, str]:
    """The files of keys: `names` has those of private halves, and what tells each from others.

    A public half is beside its private one, with `.pub`. Who has a key does not know the secret,
    nor the keys of other purposes. The keys are Ed25519 (RFC 8032), whose private half may be any
    32 bytes; ssh-keygen makes those of random bytes alone.
    """
    # Few callers derive keys, and the library takes long to load.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    found = {}
    for name, use in names.items():
        seed = hmac.digest(secret, f"{purpose}: {use}".encode(), hashlib.sha256)
        key = Ed25519PrivateKey.from_private_bytes(seed)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        found[name] = private.decode()
        found[f"{name}.pub"] = f"{public.decode()}\n"
    return found
