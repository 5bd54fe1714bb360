"""What tests with a real Slurm share: a running Slurm."""

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
    """Hosts with a directory `work`, which every user may write."""
    return shared_hosts.get(OptionHosts)


@pytest.fixture
def clean(hosts: OptionHosts) -> Iterator[OptionHosts]:
    """Hosts without traces of jobs before and after the test. The test must not drain hosts."""
    with hosts.clean():
        yield hosts
    assert "drain" not in hosts.at_head("sinfo", "-h").stdout
