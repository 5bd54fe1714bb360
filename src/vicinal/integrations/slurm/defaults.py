"""Defaults of Slurm's plugin, which an administrator can change."""

from pathlib import Path

DEFAULT_REGIONS = Path("/run/vicinal-slurm")
"""Outside of /dev/shm and /tmp, because job_container/tmpfs replaces both for each job."""
DEFAULT_MAX_SIZE = "4G"
"""The largest region of a job."""
GRES = "vf"
"""The GRES by which users request SR-IOV VFs."""
NETWORK_PORT = 330
"""UDP port of jobs' networks over several hosts. No service has the port, and only root can open
it: on a host where a job has ended, the job's frames reach no user's process.
"""
