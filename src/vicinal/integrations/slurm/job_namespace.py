"""What Slurm's namespaces hide from a job: job_container/tmpfs, and namespace/* since 25.11.

A plugin of NamespaceType, or of JobContainerType before, gives each job its own directories in
place of the host's. A region there would be another one than the plugin made.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from vicinal.integrations.slurm.files import setting

_HIDDEN = ("/tmp", "/dev/shm")
"""What these plugins replace if nothing else is set. Source: job_container.conf(5),
namespace.yaml(5).
"""
_NONE = ("none", "job_container/none", "namespace/none")
_DIRS = re.compile(r"^[^#\n]*?\bDirs\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class JobNamespace:
    """The namespaces of each job."""

    kind: str
    """The plugin, such as namespace/tmpfs; "" without one."""
    hidden: tuple[str, ...] = ()
    """Directories of the host that jobs do not see."""
    flags: tuple[str, ...] = ()
    """What namespace/linux creates besides, such as CLONE_NEWPID."""

    def hides(self, path: Path) -> bool:
        return any(path.is_relative_to(each) for each in self.hidden)


def job_namespace(slurm_conf: Path) -> JobNamespace:
    """What slurm.conf and the files beside it say. A file that is missing sets nothing."""
    kinds = (setting(slurm_conf, name) for name in ("NamespaceType", "JobContainerType"))
    kind = next((each.lower() for each in kinds if each), "")
    if kind in ("", *_NONE):
        return JobNamespace("")
    if kind == "namespace/linux":
        directories, flags = _of_yaml(slurm_conf.with_name("namespace.yaml"))
    else:
        directories, flags = _of_conf(slurm_conf.with_name("job_container.conf")), set()
    return JobNamespace(kind, tuple(sorted(directories or _HIDDEN)), tuple(sorted(flags)))


def _split(directories: object) -> set[str]:
    return {each.strip() for each in str(directories).split(",") if each.strip()}


def _of_conf(path: Path) -> set[str]:
    """All directories that any line of job_container.conf names."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    return {each for named in _DIRS.findall(text) for each in _split(named)}


def _of_yaml(path: Path) -> tuple[set[str], set[str]]:
    """The directories and flags of all nodes in namespace.yaml. A broken file sets nothing, and
    slurmd does not start with it.
    """
    try:
        read = YAML(typ="safe", pure=True).load(path) if path.is_file() else None
    except YAMLError:
        read = None
    top = read if isinstance(read, dict) else {}
    nodes = top.get("node_confs")
    parts = [top.get("defaults"), *(nodes if isinstance(nodes, list) else ())]
    options = [each.get("options", each) for each in parts if isinstance(each, dict)]
    found = [each for each in options if isinstance(each, dict)]
    directories = {path for each in found if "dirs" in each for path in _split(each["dirs"])}
    lists = [each.get("clone_ns_flags") for each in found]
    return directories, {str(flag) for each in lists if isinstance(each, list) for flag in each}
