"""The URIs by which the command's host reaches the libvirts of a cluster's hosts."""

from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from vicinal.cluster.hosts.record import HostRecord


def uri_from_here(record: HostRecord) -> str:
    """Return the URI by which the command's host reaches a host's libvirt."""
    return record.hypervisor if record.is_this else _by_ssh(record.hypervisor, record.host)


def _by_ssh(uri: str, host: str) -> str:
    """Return the URI over ssh for qemu:///system or qemu+unix:///system?socket=PATH of a host.

    ssh does not prompt (no_tty), as in all uses of ssh.
    """
    parts = urlsplit(uri)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    query = urlencode({**options, "no_tty": "1"}, safe="/")
    return urlunsplit(("qemu+ssh", host, parts.path, query, ""))
