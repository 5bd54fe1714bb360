"""libvirt's Python binding, and its errors with a remedy."""

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
    ("ivshmem", "use a QEMU with the device ivshmem-plain, such as Debian's"),
    ("shmem", "use a QEMU with the device ivshmem-plain, such as Debian's"),
    ("kvm", "check whether KVM works on this host, or let the cluster use TCG"),
    ("cannot allocate memory", "end other programs, or request less memory"),
    ("insufficient memory", "end other programs, or request less memory"),
    ("initrd is too large", "give the VM more memory"),
    ("hugepages", "reserve huge pages and mount hugetlbfs, or use no huge pages"),
    ("permission denied", "let the user that QEMU runs as read and write it"),
    ("network not found", "name a bridge that exists"),
    ("cannot get interface mtu", "name a bridge or a tap that exists"),
    ("in use by driver", "choose another function, or end the program that uses it"),
)
"""Parts of libvirt's messages, in lower case, each with a remedy; the first match counts."""

libvirt.registerErrorHandler(lambda *_: None, None)  # otherwise libvirt also prints raised errors


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn libvirt's errors into VicinalError; `what` says what failed."""
    try:
        yield
    except libvirt.libvirtError as error:
        message = " ".join((error.get_error_message() or str(error)).split())
        lower = message.lower()
        remedy = next((remedy for words, remedy in _WORDS if words in lower), None)
        raise VicinalError(
            f"{what} ({message})", remedy or "see the earlier messages in libvirt's log"
        ) from error
