"""Input files of a job, which the ranks of a node write into the node's directory."""

import os
import shutil
import subprocess
from pathlib import Path

from vicinal.mpi.job import with_files

FILES = {"input": "how many particles\n" * 100, "seed": "4711\n"}


def test_a_file_is_whole_while_another_rank_writes_it(tmp_path: Path) -> None:
    """The second rank's base64 shows what the first would read just before the file is written."""
    directory, programs = tmp_path / "files", tmp_path / "programs"
    command = with_files(FILES, str(directory), ["cat", *FILES])
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    programs.mkdir()
    tool = programs / "base64"
    tool.write_text(f'#!/bin/sh\ncat input >>{tmp_path}/seen\nexec {shutil.which("base64")} "$@"\n')
    tool.chmod(0o755)
    search = f"{programs}{os.pathsep}{os.environ['PATH']}"
    second = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PATH": search}
    )
    assert first.stdout == second.stdout == "".join(FILES.values())
    assert (tmp_path / "seen").read_text() == FILES["input"] * len(FILES)
    assert {file.name: file.read_text() for file in directory.iterdir()} == FILES
