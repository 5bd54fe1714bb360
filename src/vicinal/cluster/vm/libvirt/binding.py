"""libvirt's Python binding, and its errors in words that help."""

from collections.abc import Iterator
from contextlib import contextmanager

from vicinal.base.errors import VicinalError

try:
    import libvirt as libvirt
except ImportError as error:
    raise VicinalError(
        f"libvirt cannot be used from Python ({error})",
        "install libvirt-dev and pkg-config, and then libvirt-python with pip",
    ) from error

_WORDS = (
    ("peer mode", "detach the region first"),
    ("ivshmem", "use a QEMU with the device ivshmem-plain, as Debian's is"),
    ("shmem", "use a QEMU with the device ivshmem-plain, as Debian's is"),
    ("kvm", "see whether KVM works here, or let the cluster use TCG"),
    ("cannot allocate memory", "end something else, or ask for less memory"),
    ("insufficient memory", "end something else, or ask for less memory"),
    ("initrd is too large", "give the machine more memory"),
    ("hugepages", "reserve huge pages, mount hugetlbfs, or do without them"),
    ("permission denied", "let the user that QEMU runs as read and write it"),
    ("network not found", "name a bridge that exists"),
    ("cannot get interface mtu", "name a bridge or a tap that exists"),
    ("in use by driver", "choose another function, or take it from its user"),
)
"""What is in libvirt's messages, in lower case, and what helps then; the first that fits."""

libvirt.registerErrorHandler(lambda *_: None, None)  # it would print what is raised as well


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn libvirt's errors into VicinalError; `what` says what was not possible."""
    try:
        yield
    except libvirt.libvirtError as error:
        message = " ".join((error.get_error_message() or str(error)).split())
        lower = message.lower()
        remedy = next((remedy for words, remedy in _WORDS if words in lower), None)
        raise VicinalError(
            f"{what} ({message})", remedy or "see libvirt's log for what came before"
        ) from error
