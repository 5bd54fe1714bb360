"""What libvirt leaves behind in /dev/shm: the file of a <shmem>, which it never removes."""

import os
import stat
from contextlib import suppress

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.vm.devices import SharedRegion


def remove_leftover(region: SharedRegion, owners: frozenset[int] = frozenset()) -> bool:
    """Remove the file of a region that no domain has any more; returns whether there was one.

    Files there are shared by their names alone, so it must be a plain file of the expected length
    that belongs to this user or to one of `owners` (user ids; QEMU's, see Hypervisor.qemu_user).
    Raises VicinalError for any other, and touches nothing then.
    """
    path = region.path
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    allowed = {os.geteuid(), *owners}
    wrong = None
    if not stat.S_ISREG(status.st_mode):
        wrong = "is no plain file"
    elif status.st_uid not in allowed:
        wrong = f"belongs to the user {status.st_uid}"
    elif status.st_size != region.size_bytes:
        wrong = f"is {status.st_size} bytes long instead of {region.size_bytes}"
    if wrong is not None:
        raise VicinalError(f"{path} {wrong}, and so is not of this cluster", "remove it by hand")
    try:
        with suppress(FileNotFoundError):
            path.unlink()
    except OSError as error:
        raise VicinalError(
            f"{path} cannot be removed ({describe_os_error(error)})",
            "remove it as its owner or as root",
        ) from error
    return True
