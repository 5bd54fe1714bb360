"""Vicinal's own libvirt, which all clusters of a user have in common that have machines in it."""

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
    """A cluster's part in it: it runs from when the first cluster has one until the last has none.

    Who has one is what the journals say, so a command that is killed leaves nothing wrong.
    """

    KIND: ClassVar[str] = "libvirt"
    KEY: ClassVar[str] = "libvirt/main"

    cluster: str

    @classmethod
    def of(cls, cluster: str, uri: str) -> Self | None:
        """What a cluster, by the name that it is kept as, needs for machines at a URI.

        None where that is another libvirt. Raises VicinalError where it cannot be started, as far
        as is seen without trying.
        """
        if not is_own(uri):
            return None
        resource = cls(cluster)
        if not resource._daemon.answers():
            resource._daemon.check()
        return resource

    def observe(self) -> Observation:
        """Whether the cluster has a part in it, and it runs."""
        if self.cluster not in _users():
            return Observation(Condition.ABSENT)
        if not self._daemon.answers():
            return Observation(Condition.STOPPED, "it does not run")
        return Observation(Condition.READY)

    def create(self) -> None:
        """See that it runs."""
        self._daemon.start()

    def start(self) -> None:
        """See that it runs; it knows the machines that it had."""
        self._daemon.start()

    def remove(self) -> None:
        """End it, if no other cluster needs it. Raises VicinalError where it has other machines."""
        if not self._others():
            self._check_empty()
            self._daemon.end(wanted=lambda: bool(self._others()))

    @property
    def _daemon(self) -> Daemon:
        return Daemon.of_this_user()

    def _others(self) -> set[str]:
        return _users() - {self.cluster}

    def _check_empty(self) -> None:
        """Raise VicinalError where somebody made a machine there by hand: it would be lost."""
        if not self._daemon.answers():
            return
        from vicinal.cluster.vm.libvirt.binding import explained
        from vicinal.cluster.vm.libvirt.connection import connect

        try:
            with connect(self._daemon.uri) as found, explained("libvirt does not list its domains"):
                names = [domain.name() for domain in found.connection.listAllDomains()]
        except UnreachableError:
            return  # it hangs, and is ended
        if names:
            raise VicinalError(
                f"Vicinal's own libvirt still has {', '.join(names)}, which is of no cluster",
                f"remove it (`virsh -c {self._daemon.uri} undefine NAME`), and call `vicinal down` "
                "again",
            )


def _users() -> set[str]:
    """The clusters that have, or may have, a part in it."""
    return {name for name in cluster_names() if _has_part(name)}


def _has_part(name: str) -> bool:
    try:
        return LibvirtResource.KEY in journal_of(name).entries()
    except VicinalError:
        return True  # its journal cannot be read: better too long than too short
