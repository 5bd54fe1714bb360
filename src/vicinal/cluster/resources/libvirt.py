"""Vicinal's own libvirt, which all clusters of a user with VMs in it share."""

from dataclasses import dataclass
from typing import ClassVar, Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.plan.resource import Condition, Observation, Standing
from vicinal.cluster.plan.state import cluster_names, journal_of
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.cluster.vm.libvirt.uri import is_own


@dataclass(frozen=True)
class LibvirtResource(Standing):
    """A cluster's use of Vicinal's own libvirt.

    The libvirt runs as long as a cluster uses it. The journals record which clusters do, so that a
    killed command leaves no wrong count.
    """

    KIND: ClassVar[str] = "libvirt"
    KEY: ClassVar[str] = "libvirt/main"

    cluster: str

    @classmethod
    def of(cls, cluster: str, uri: str) -> Self | None:
        """Return the resource of a cluster for VMs at a URI; None if the URI is another libvirt.

        `cluster` is the name of the cluster or host's part on this host. Raises VicinalError if the
        libvirt cannot be started, as far as that is known before its start.
        """
        if not is_own(uri):
            return None
        resource = cls(cluster)
        if not resource._daemon.answers():
            resource._daemon.check()
        return resource

    def observe(self) -> Observation:
        """Check that the cluster uses the libvirt, and that the libvirt answers."""
        if self.cluster not in _users():
            return Observation(Condition.ABSENT)
        if not self._daemon.answers():
            return Observation(Condition.STOPPED, "it does not run")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Start the libvirt if it does not run."""
        self._daemon.start()

    def start(self) -> None:
        """Start the libvirt if it does not run; it still knows its VMs."""
        self._daemon.start()

    def remove(self) -> None:
        """End the libvirt if no other cluster uses it.

        Raises VicinalError if it has VMs of no cluster.
        """
        if not self._others():
            self._check_empty()
            self._daemon.end(wanted=lambda: bool(self._others()))

    @property
    def _daemon(self) -> Daemon:
        return Daemon.of_this_user()

    def _others(self) -> set[str]:
        return _users() - {self.cluster}

    def _check_empty(self) -> None:
        """Raise VicinalError if the libvirt has a VM that a user defined, which would be lost."""
        if not self._daemon.answers():
            return
        from vicinal.cluster.vm.libvirt.binding import explained
        from vicinal.cluster.vm.libvirt.connection import connect

        try:
            with connect(self._daemon.uri) as found, explained("libvirt does not list its domains"):
                names = [domain.name() for domain in found.connection.listAllDomains()]
        except UnreachableError:
            return  # the daemon hangs, and is ended
        if names:
            raise VicinalError(
                f"Vicinal's own libvirt still has domains of no cluster: {', '.join(names)}",
                f"remove them (`virsh -c {self._daemon.uri} undefine NAME`), and call `vicinal "
                "down` again",
            )


def _users() -> set[str]:
    """Return the clusters that use the libvirt, or may use it."""
    return {name for name in cluster_names() if _has_part(name)}


def _has_part(name: str) -> bool:
    try:
        return LibvirtResource.KEY in journal_of(name).entries()
    except VicinalError:
        return True  # the journal cannot be read: rather run too long than end too early
