"""The identity of each guest of a cluster: its name, addresses, peers, and the cluster's keys.

    keys = make_keys(directory, identities)
    keys.archive("node0")

All guests boot the same image, which has none of this. Each guest gets an archive of its own
through QEMU's firmware configuration, and unpacks it in its root directory. Keys are made for one
run of a cluster and removed with it.
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
"""The contents of a cluster's key files by their names; one host sends them to another."""


@dataclass(frozen=True)
class Card:
    """A network card of a guest, identified by its hardware address."""

    mac: str
    peer: str | None = None
    """IPv4 address of the only peer that this card reaches; None: it reaches all peers."""
    network: str | None = None
    """None for a card in the guests' own network. For a card in another network: its address there
    with the prefix length, or "" for no address.
    """
    name: str = "lan0"
    """The interface's name in the guest, if the card is in another network."""


@dataclass(frozen=True)
class Identity:
    """The identity of one guest of a cluster."""

    number: int
    """The guest's index, from 0."""
    name: str
    """The guest's host name."""
    address: str
    """IPv4 address of the first card in the guests' own network."""
    cards: tuple[Card, ...]
    drivers: tuple[str, ...] = ()
    """Drivers of the SR-IOV VFs among the cards."""


@dataclass(frozen=True)
class Keys:
    """Paths of the keys of one run, and of each guest's archive."""

    directory: Path

    @property
    def user(self) -> Path:
        """The user's private key, for connections from the host and between guests."""
        return self.directory / _USER_KEY

    @property
    def known_hosts(self) -> Path:
        """The host key, which all guests share, with the guests' names."""
        return self.directory / "known-hosts"

    def archive(self, name: str) -> Path:
        """The tar archive that the guest of this name unpacks."""
        return self.directory / f"{name}.tar"


def card_address(number: int, peer: int = 0xFFFF) -> str:
    """Hardware address of a guest's card: in the common network, or on the wire to one peer.

    `number` and `peer` count from 0. The first byte marks a locally administered address.
    """
    parts = (0x52, 0x54, number >> 8, number & 0xFF, peer >> 8, peer & 0xFF)
    return ":".join(f"{part:02x}" for part in parts)


def make_keys(directory: Path, guests: Sequence[Identity]) -> Keys:
    """Generate the user's and the host key in `directory`, and write each guest's archive."""
    generate_keys(directory)
    return write_archives(directory, guests)


def check_keygen() -> None:
    """Raise VicinalError if ssh-keygen is missing."""
    if shutil.which(_KEYGEN) is None:
        raise VicinalError(f"{_KEYGEN} was not found", "install openssh-client")


def generate_keys(directory: Path) -> None:
    """Generate the user's key and the host key. Raises VicinalError if ssh-keygen fails."""
    for name in (_USER_KEY, _HOST_KEY):
        _generate(directory / name)


def keys_of_secret(secret: bytes, purpose: str) -> KeyTexts:
    """Derive keys from a secret: each host that has the secret derives the same keys.

    So no host has to send keys to another. `purpose` separates independent uses of the secret.
    """
    return _derive_keys(secret, purpose, {_USER_KEY: "user", _HOST_KEY: "hosts"})


def read_keys(directory: Path) -> KeyTexts:
    """Read the keys in a directory. Raises OSError if a file is missing."""
    return {name: (directory / name).read_text() for name in _KEY_FILES}


def write_keys(directory: Path, keys: KeyTexts) -> None:
    """Write keys from elsewhere into a directory, readable by this user only."""
    for name in _KEY_FILES:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(directory / name, flags, 0o600), "w") as file:
            file.write(keys[name])


def fingerprint(keys: KeyTexts) -> str:
    """A string that identifies these keys and is not secret."""
    public = keys[f"{_USER_KEY}.pub"] + keys[f"{_HOST_KEY}.pub"]
    return hashlib.sha256(public.encode()).hexdigest()[:32]


def write_archives(
    directory: Path, guests: Sequence[Identity], commands: Mapping[str, str] | None = None
) -> Keys:
    """Write the archive of each guest, with the keys in `directory`.

    `commands` has, by guest name, commands that a guest runs before it accepts connections.
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
    """The guest's settings as shell assignments, which guest_init.sh reads."""
    own = [card for card in guest.cards if card.network is None]
    cards = " ".join(card.mac + (f"={card.peer}" if card.peer else "") for card in own)
    others = (card for card in guest.cards if card not in own)
    links = " ".join(f"{card.mac}={card.name}={card.network}" for card in others)
    address = f"{guest.address}/{PREFIX_BITS}"
    lists = f"cards='{cards}'\nlinks='{links}'\ndrivers='{' '.join(guest.drivers)}'\n"
    return f"node={guest.number}\naddress={address}\n{lists}"


def _add_keys(tar: tarfile.TarFile, keys: Keys, host: Path) -> None:
    _add(tar, "etc/ssh/host_key", host.read_bytes(), 0o600)
    # ssh refuses a private key that others may read, so the key belongs to the user.
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
            f"ssh-keygen failed ({error.stderr.strip()})", "check whether it works by hand"
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
    """Derive key files from a secret. `names` has the private keys' file names and their uses.

    The file of a public key has the suffix `.pub`. A key reveals neither the secret nor keys of
    other purposes. The keys are Ed25519 (RFC 8032), whose private key may be any 32 bytes.
    ssh-keygen cannot be used, because it makes keys only from random bytes.
    """
    # Imported here: few callers derive keys, and the library is slow to import.
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
