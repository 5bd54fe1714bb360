"""What tests with a real Slurm share: one that runs."""

from collections.abc import Iterator

import pytest
from slurm_option_support import OptionHosts
from slurm_shared_hosts import SharedHosts


@pytest.fixture(scope="session")
def shared_hosts() -> Iterator[SharedHosts]:
    shared = SharedHosts()
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def hosts(shared_hosts: SharedHosts) -> OptionHosts:
    """The hosts have a directory `work`, to which every user may write."""
    return shared_hosts.get(OptionHosts)


@pytest.fixture
def clean(hosts: OptionHosts) -> Iterator[OptionHosts]:
    """Hosts that have nothing of jobs before, and nothing after, and go on taking jobs."""
    with hosts.clean():
        yield hosts
    assert "drain" not in hosts.at_head("sinfo", "-h").stdout
