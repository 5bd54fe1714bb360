"""The owner of a VM: whose keys may log in, and the password, as the context says at each boot.

cloud-init gives the user both, but once for each VM. Here a context that was changed while the VM
was off is heeded, as OpenNebula's own packages heed it.
"""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from vicinal.cluster.vm.image.appliance.context.cloud import password_of, user_of
from vicinal.cluster.vm.image.appliance.context.files import Account, put

KEYS_FILE = "etc/ssh/vicinal_owner_keys"
"""Below the machine's root directory; no part of the user's home, where root writes nothing."""
_SERVER_FILE = "etc/ssh/sshd_config.d/71-vicinal-owner.conf"
_PASSWORD_SECONDS = 30


def set_up_owner(
    context: Mapping[str, str], root: Path, account: Account | None, say: Callable[[str], None]
) -> list[str]:
    """Let the context's keys log in, and no others of an earlier one; set the password.

    Returns the services that have to read their configuration again.
    """
    keys = keys_of(context)
    if account is None:
        if keys or password_of(context, say):
            say(f"owner: no user {user_of(context)} is here: users are made at the first boot")
        keys = []
    put(root / KEYS_FILE, "".join(f"{key}\n" for key in keys) or None)
    server = None
    if keys and account is not None:
        # The job's file, which comes first where there is one, has the same and more.
        server = f"Match User {account.name}\n\tAuthorizedKeysFile .ssh/authorized_keys"
        server += f" /{KEYS_FILE}\n"
    changed = put(root / _SERVER_FILE, server)
    if account is not None:
        password = _set_password(context, account, say)
        count = f"{len(keys)} key{'' if len(keys) == 1 else 's'}" if keys else ""
        if given := " and ".join(filter(None, (count, password))):
            say(f"owner: {given}, for {account.name}")
    return ["ssh"] if changed else []


def keys_of(context: Mapping[str, str]) -> list[str]:
    """The owner's public keys, each once, as cloud-init takes them."""
    text = context.get("SSH_KEY") or context.get("SSH_PUBLIC_KEY", "")
    lines = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def _set_password(context: Mapping[str, str], account: Account, say: Callable[[str], None]) -> str:
    """Set it, if the context has one; what was set, in words. What cannot be is said."""
    password = password_of(context, say)
    if password is None:
        return ""
    if "\n" in password.text:
        say("password: it has several lines: it is as it was")
        return ""
    command = ["chpasswd", "--encrypted"] if password.crypted else ["chpasswd"]
    try:
        subprocess.run(
            command,
            input=f"{account.name}:{password.text}\n",
            capture_output=True,
            text=True,
            timeout=_PASSWORD_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        say(f"password: not set ({error})")
        return ""
    return "a password"
