"""What jobs do not see of a host, by Slurm's own configuration files."""

from pathlib import Path

import pytest

from vicinal.integrations.slurm.checks import check
from vicinal.integrations.slurm.files import find_files
from vicinal.integrations.slurm.installation import Wanted
from vicinal.integrations.slurm.job_namespace import JobNamespace, job_namespace


def configure(directory: Path, **texts: str) -> Path:
    """Files of Slurm. Returns slurm.conf."""
    for name, text in texts.items():
        suffix = "yaml" if name == "namespace" else "conf"
        (directory / f"{name}.{suffix}").write_text(text)
    return directory / "slurm.conf"


@pytest.mark.parametrize("kind", ["", "JobContainerType=job_container/none", "NamespaceType=none"])
def test_without_namespaces_nothing_is_hidden(tmp_path: Path, kind: str) -> None:
    assert job_namespace(configure(tmp_path, slurm=kind)) == JobNamespace("")


@pytest.mark.parametrize(
    "kind",
    [
        "JobContainerType=job_container/tmpfs",
        "NamespaceType=namespace/tmpfs",
        "namespacetype = Namespace/Linux",
    ],
)
def test_shared_memory_and_temporary_files_are_hidden(tmp_path: Path, kind: str) -> None:
    namespace = job_namespace(configure(tmp_path, slurm=kind + "\n"))
    assert namespace.kind == kind.rpartition("=")[2].strip().lower()
    assert namespace.hides(Path("/dev/shm/regions"))
    assert namespace.hides(Path("/tmp"))
    assert not namespace.hides(Path("/tmpfs"))
    assert not namespace.hides(Path("/run/vicinal-slurm"))


def test_directories_of_all_nodes_count(tmp_path: Path) -> None:
    conf = configure(
        tmp_path,
        slurm="NamespaceType=namespace/tmpfs\n",
        job_container="BasePath=/nvme dirs=/scratch # Dirs=/no\n"
        "NodeName=n[1-4] Dirs=/run,/var/tmp BasePath=/x\n",
    )
    assert job_namespace(conf).hidden == ("/run", "/scratch", "/var/tmp")


def test_what_namespace_linux_creates(tmp_path: Path) -> None:
    text = """
defaults:
  base_path: /nvme
  clone_ns_flags: [CLONE_NEWNS, CLONE_NEWUSER]
node_confs:
  - nodes: ["n[1-2]"]
    options:
      dirs: "/run/vicinal-slurm, /tmp"
      clone_ns_flags: [CLONE_NEWPID]
"""
    conf = configure(tmp_path, slurm="NamespaceType=namespace/linux\n", namespace=text)
    namespace = job_namespace(conf)
    assert namespace.hidden == ("/run/vicinal-slurm", "/tmp")
    assert namespace.flags == ("CLONE_NEWNS", "CLONE_NEWPID", "CLONE_NEWUSER")
    here = Path(__file__)
    found = list(
        check(
            find_files(conf),
            Wanted("", ""),
            plugin=here,
            command=here,
            python=here,
            regions=Path("/run/vicinal-slurm"),
        )
    )
    lines = [each.line for each in found]
    assert any("is hidden from jobs by namespace/linux" in line for line in lines)
    assert any("gives jobs CLONE_NEWPID and CLONE_NEWUSER: Vicinal was" in line for line in lines)


@pytest.mark.parametrize("text", ["- a\n", "defaults: 1\n", "node_confs: [1]\n", "a: [\n", "\0"])
def test_a_broken_file_sets_nothing(tmp_path: Path, text: str) -> None:
    conf = configure(tmp_path, slurm="NamespaceType=namespace/linux\n", namespace=text)
    assert job_namespace(conf).hidden == ("/dev/shm", "/tmp")
