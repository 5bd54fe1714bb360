"""Keys for one run of guests: made for it, and gone with it."""

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from vicinal.cluster.image_layout import HOME, MOST_GUESTS, USER_ID, guest_address, guest_name
from vicinal.errors import VicinalError

_KEYGEN_SECONDS = 60


@dataclass(frozen=True)
class Keys:
    """Files of the keys of one run."""

    user: Path
    """Private key of the user, for the host and between guests."""
    known_hosts: Path
    archive: Path
    """What a guest needs of them, as a tar archive to unpack in its root directory."""


def make_keys(directory: Path) -> Keys:
    """Make a user's and a host's key in `directory`, both guests having the same."""
    user, host = directory / "user-key", directory / "host-key"
    for file in (user, host):
        _generate(file)
    host_line = host.with_suffix(".pub").read_text()
    names = [name for n in range(MOST_GUESTS) for name in (guest_name(n), guest_address(n))]
    known_hosts = directory / "known-hosts"
    known_hosts.write_text(f"{','.join(names)} {host_line}")
    archive = directory / "keys.tar"
    with tarfile.open(archive, "w") as tar:
        _add(tar, "etc/ssh/host_key", host.read_bytes(), 0o600)
        # ssh takes no private key that others may read: it belongs to the user.
        _add(tar, "etc/ssh/user_key", user.read_bytes(), 0o600, owner=USER_ID)
        _add(tar, "etc/ssh/known_hosts", known_hosts.read_bytes(), 0o644)
        _add_directory(tar, f"{HOME.lstrip('/')}/.ssh", 0o700, owner=USER_ID)
        public = user.with_suffix(".pub").read_bytes()
        name = f"{HOME.lstrip('/')}/.ssh/authorized_keys"
        _add(tar, name, public, 0o600, owner=USER_ID)
    return Keys(user, known_hosts, archive)


def _generate(file: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vicinal", "-f", str(file)]
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
        raise VicinalError("ssh-keygen was not found", "install openssh-client") from error
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
