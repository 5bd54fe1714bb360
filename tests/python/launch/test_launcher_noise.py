"""Only the messages of Open MPI's launcher about itself are kept from standard error."""

import os
import subprocess
import sys
import tempfile

import pytest
from launch_support import GUARD_SECONDS

from vicinal.launch.launcher_noise import LauncherErrors, filtered
from vicinal.mpi.libraries import installation

NOISE = (
    b"[head:00014] plm:ssh: Warning: setpgid(18,18) failed in parent with errno=Permission "
    b"denied(13)\n"
)
OTHERS = [
    b"[head:00014] plm:ssh: Error: setpgid(0,0) failed in child with errno=Permission denied(13)\n",
    NOISE.replace(b"Permission denied(13)", b"No such process(3)"),
    b"rank 0 says: " + NOISE,
    b"[head:1] plm\n",
    b"[no end of line",
]


def test_exactly_those_lines_are_left_out() -> None:
    data = b"a\n" + NOISE + b"".join(OTHERS[:-1]) + NOISE + OTHERS[-1]
    assert filtered(data, last=True) == (b"a\n" + b"".join(OTHERS), b"")


@pytest.mark.parametrize("cut", [1, 5, 14, 18, 60, len(NOISE) - 1])
def test_a_line_may_come_in_pieces(cut: int) -> None:
    now, held = filtered(b"a\n" + NOISE[:cut], last=False)
    assert (now, held) == (b"a\n", NOISE[:cut])
    assert filtered(held + NOISE[cut:], last=False) == (b"", b"")


@pytest.mark.parametrize("prompt", [b"name: ", b"[y/n]? ", b"[" * 300, b"[1] plx"])
def test_what_cannot_become_such_a_line_is_not_held_back(prompt: bytes) -> None:
    assert filtered(prompt, last=False) == (prompt, b"")


SAY = """
import sys, time
for text in {texts!r}:
    sys.stderr.buffer.write(text)
    sys.stderr.flush()
sys.stdin.read(1)
"""


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_all_else_is_passed_on_while_the_launcher_runs(mpi: str) -> None:
    """This includes incomplete lines, for which a reader may wait, and bytes that are not text."""
    texts = [b"\xff\n", NOISE, b"x" * 70_000 + b"\n", b"[head:1"]
    with tempfile.TemporaryFile() as seen:
        errors = LauncherErrors(installation(mpi), seen)
        with errors:
            launcher = subprocess.Popen(
                [sys.executable, "-c", SAY.format(texts=texts)],
                stdin=subprocess.PIPE,
                stderr=errors.stream,
            )
        wanted = b"".join(text for text in texts if mpi != "openmpi" or text != NOISE)
        try:
            deadline = GUARD_SECONDS
            while os.fstat(seen.fileno()).st_size < len(wanted) and deadline > 0:
                with pytest.raises(subprocess.TimeoutExpired):
                    launcher.wait(0.05)
                deadline -= 0.05
            seen.seek(0)
            assert seen.read() == wanted
        finally:
            launcher.communicate(b"x")
        errors.finish()
        seen.seek(0)
        assert seen.read() == wanted
