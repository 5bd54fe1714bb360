"""cloud-init's data source for OpenNebula, with what that does not make of a context.

It finds the disk, reads it and takes keys, host name and user data; network, instance, user and
password are by `vicinal.cluster.vm.image.appliance.context.cloud`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from cloudinit import log, sources
from cloudinit.event import EventScope, EventType
from cloudinit.sources import DataSourceOpenNebula as Theirs

# cloud-init runs with Debian's Python. What that has of its own comes first.
sys.path += map(str, Path("/usr/lib/vicinal/lib").glob("python3*/site-packages"))

from vicinal.cluster.vm.image.appliance.context import cloud

_LOG = log.getLogger(__name__)


class _NoNetwork:
    """In place of the one that makes addresses of hardware addresses, or fails."""

    def __init__(self, *_: object) -> None: ...

    def gen_conf(self) -> None:
        """Nothing: the network is made here."""


Theirs.OpenNebulaNetwork = _NoNetwork


class DataSourceOpenNebula(Theirs.DataSourceOpenNebula):  # type: ignore[misc] # untyped
    """The context of an OpenNebula VM."""

    # OpenNebula writes the context anew for each start, with the NICs that there are then.
    default_update_events = {  # noqa: RUF012 - as cloud-init's own
        EventScope.NETWORK: {EventType.BOOT_NEW_INSTANCE, EventType.BOOT}
    }
    sensitive_metadata_keys = (
        *sources.DataSource.sensitive_metadata_keys,
        *cloud.SECRETS,
    )

    def _get_data(self) -> bool:
        if not super()._get_data():
            return False
        try:
            self._add({name: text for name, text in self.metadata.items() if isinstance(text, str)})
        except Exception as error:
            # The owner's key is there, and lets them in to see what it was.
            _LOG.warning("not all of the context was used: %r", error)
        return True

    def _add(self, context: dict[str, str]) -> None:
        names = Theirs.get_physical_nics_by_mac(self.distro)
        self.network = cloud.network_config(context, names, _LOG.warning)
        self.metadata["instance-id"] = cloud.instance_id(context)
        config = cloud.cloud_config(context, _LOG.warning)
        if config:
            self.vendordata_raw = f"#cloud-config\n{json.dumps(config)}\n"


def get_datasource_list(depends: Any) -> Any:
    """What there is of it for a stage of the boot, as cloud-init asks."""
    return sources.list_from_depends(depends, [(DataSourceOpenNebula, (sources.DEP_FILESYSTEM,))])
