"""The file of a <shmem> in /dev/shm, which libvirt never removes."""

import os
import stat
from contextlib import suppress

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.vm.devices import SharedRegion


def remove_leftover(region: SharedRegion, owners: frozenset[int] = frozenset()) -> bool:
    """Remove the file of a region that no domain has any more; returns whether it existed.

    Different users share the names in /dev/shm. So the file must be a regular file of the expected
    size, and belong to this user or to one of `owners` (user ids; QEMU's, see
    Hypervisor.qemu_user). Raises VicinalError for any other file, and leaves it.
    """
    path = region.path
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    allowed = {os.geteuid(), *owners}
    wrong = None
    if not stat.S_ISREG(status.st_mode):
        wrong = "is not a regular file"
    elif status.st_uid not in allowed:
        wrong = f"belongs to the user {status.st_uid}"
    elif status.st_size != region.size_bytes:
        wrong = f"has {status.st_size} bytes instead of {region.size_bytes}"
    if wrong is not None:
        raise VicinalError(f"{path} {wrong}, so it is not this cluster's", "remove it by hand")
    try:
        with suppress(FileNotFoundError):
            path.unlink()
    except OSError as error:
        raise VicinalError(
            f"{path} cannot be removed ({describe_os_error(error)})",
            "remove it as its owner or as root",
        ) from error
    return True
