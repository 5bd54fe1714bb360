"""The owner of a VM: public keys that may log in, and the password, from each boot's context.

cloud-init sets both only once for each VM. Here changes of the context while the VM was off take
effect, as with OpenNebula's own packages.
"""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from vicinal.cluster.vm.image.appliance.context.cloud import password_of, user_of
from vicinal.cluster.vm.image.appliance.context.files import Account, put

KEYS_FILE = "etc/ssh/vicinal_owner_keys"
"""Below the VM's root directory, and outside of the user's home, where root writes nothing."""
_SERVER_FILE = "etc/ssh/sshd_config.d/71-vicinal-owner.conf"
_PASSWORD_SECONDS = 30


def set_up_owner(
    context: Mapping[str, str], root: Path, account: Account | None, say: Callable[[str], None]
) -> list[str]:
    """Let the context's keys log in instead of an earlier context's, and set the password.

    Returns the services that must reload their configuration.
    """
    keys = keys_of(context)
    if account is None:
        if keys or password_of(context, say):
            say(f"owner: there is no user {user_of(context)}: the first boot creates users")
        keys = []
    put(root / KEYS_FILE, "".join(f"{key}\n" for key in keys) or None)
    server = None
    if keys and account is not None:
        # The job's file comes first if it exists, and has these settings too.
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
    """The owner's public keys without duplicates, from the variables that cloud-init reads."""
    text = context.get("SSH_KEY") or context.get("SSH_PUBLIC_KEY", "")
    lines = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def _set_password(context: Mapping[str, str], account: Account, say: Callable[[str], None]) -> str:
    """Set the context's password; returns "a password" or "". `say` receives what is wrong."""
    password = password_of(context, say)
    if password is None:
        return ""
    if "\n" in password.text:
        say("password: it has several lines, and stays unchanged")
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
