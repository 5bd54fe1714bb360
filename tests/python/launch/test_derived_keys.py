"""Keys that hosts derive from one secret: ssh accepts them, and every host derives the same."""

import random
import subprocess
from pathlib import Path

import pytest

from vicinal.cluster.vm.guest.identity import keys_of_secret, read_keys, write_keys

SECRET = bytes(range(32))
DRAWN = random.Random(20261)


@pytest.mark.parametrize("secret", [SECRET, *(DRAWN.randbytes(32) for _ in range(8))], ids=range(9))
def test_ssh_keygen_reads_them(tmp_path: Path, secret: bytes) -> None:
    """ssh-keygen reads the private key, derives the public key from it, and can sign and verify."""
    write_keys(tmp_path, keys_of_secret(secret, "job 1"))
    for name in ("user-key", "host-key"):
        file = tmp_path / name
        assert file.stat().st_mode & 0o777 == 0o600
        shown = ["ssh-keygen", "-y", "-f", str(file)]
        public = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
        assert public == file.with_suffix(".pub").read_text()
        (tmp_path / "text").write_text("said")
        sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", "test", "-f"]
        subprocess.run([*sign, file, tmp_path / "text"], check=True, capture_output=True)
        (tmp_path / "allowed").write_text(f"me {public}")
        verify = ["ssh-keygen", "-Y", "verify", "-n", "test", "-I", "me"]
        verify += ["-f", str(tmp_path / "allowed"), "-s", str(tmp_path / "text.sig")]
        subprocess.run(verify, check=True, input=b"said", capture_output=True)
        (tmp_path / "text.sig").unlink()


def test_who_has_them_is_told_by_secret_and_purpose(tmp_path: Path) -> None:
    keys = keys_of_secret(SECRET, "job 1")
    made = [keys, keys_of_secret(SECRET, "job 2"), keys_of_secret(bytes(32), "job 1")]
    halves = [each[name] for each in made for name in ("user-key.pub", "host-key.pub")]
    assert len(set(halves)) == len(halves)
    again = keys_of_secret(SECRET, "job 1")
    assert [again[name] for name in ("user-key.pub", "host-key.pub")] == halves[:2]
    write_keys(tmp_path, keys)
    assert read_keys(tmp_path) == keys
