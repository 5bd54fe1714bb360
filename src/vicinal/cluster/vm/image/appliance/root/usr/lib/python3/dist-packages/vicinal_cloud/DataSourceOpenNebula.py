"""cloud-init's data source for OpenNebula, extended by parts of a context that it ignores.

cloud-init's data source finds and reads the disk, and applies keys, host name and user data.
`vicinal.cluster.vm.image.appliance.context.cloud` makes network, instance, user and password.
"""

import json
import sys
from pathlib import Path
from typing import Any

from cloudinit import log, sources
from cloudinit.event import EventScope, EventType
from cloudinit.sources import DataSourceOpenNebula as Theirs

# cloud-init runs with Debian's Python, whose own libraries take precedence.
sys.path += map(str, Path("/usr/lib/vicinal/lib").glob("python3*/site-packages"))

from vicinal.cluster.vm.image.appliance.context import cloud

_LOG = log.getLogger(__name__)


class _NoNetwork:
    """Replaces cloud-init's network reader, which derives addresses from hardware addresses."""

    def __init__(self, *_: object) -> None: ...

    def gen_conf(self) -> None:
        """Return nothing, because cloud.network_config() makes the network."""


Theirs.OpenNebulaNetwork = _NoNetwork


class DataSourceOpenNebula(Theirs.DataSourceOpenNebula):  # type: ignore[misc] # untyped
    """The context of an OpenNebula VM."""

    # OpenNebula writes the context at each start, with the NICs of that time.
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
            # The owner's key was applied before, so the owner can log in and find the cause.
            _LOG.warning("parts of the context were not applied: %r", error)
        return True

    def _add(self, context: dict[str, str]) -> None:
        names = Theirs.get_physical_nics_by_mac(self.distro)
        self.network = cloud.network_config(context, names, _LOG.warning)
        self.metadata["instance-id"] = cloud.instance_id(context)
        config = cloud.cloud_config(context, _LOG.warning)
        if config:
            self.vendordata_raw = f"#cloud-config\n{json.dumps(config)}\n"


def get_datasource_list(depends: Any) -> Any:
    """The data sources of this module for a stage of the boot; cloud-init calls it."""
    return sources.list_from_depends(depends, [(DataSourceOpenNebula, (sources.DEP_FILESYSTEM,))])
