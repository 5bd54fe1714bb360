"""Drivers of suites that only users have, on output composed from published output.

composed/README.md names the source of each file: no test shows that a real program prints exactly
this.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_support import composed, figures, read, same, stand_in, workload

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Quantity, Workload
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Tools
from vicinal.labs.study.workloads.installed import USER_TOOLS
from vicinal.mpi.libraries import Mpi

LATENCY = workload("osu", "latency", sizes=(4, 8))
MESSAGES = workload("osu", "multi-bandwidth", ranks=4, sizes=(1, 4), quantity=Quantity.MESSAGE_RATE)
BARRIER = workload("osu", "barrier")
ALLREDUCE = workload("osu", "allreduce", sizes=(4, 8, 16))
IMB = workload("imb", "latency", sizes=(8, 64, 4096))
IMB_ALLREDUCE = workload("imb", "allreduce", sizes=(8, 64, 4096))
IMB_UNIBAND = workload("imb", "bandwidth", sizes=(8, 64, 4096), quantity=Quantity.BANDWIDTH)
IMB_BARRIER = workload("imb", "barrier")
CG = workload("npb", "CG", quantity=Quantity.TIME, options={"class": "A"})
BFS = workload("graph500", "bfs", quantity=Quantity.PERFORMANCE)

COMPOSED = [
    (LATENCY, "osu-latency.txt"),
    (LATENCY, "osu-latency-old.txt"),
    (LATENCY, "osu-latency-percentiles.txt"),
    (MESSAGES, "osu-mbw-mr.txt"),
    (workload("osu", "put", sizes=(8,)), "osu-put.txt"),
    (workload("pgas", "upc-memget", sizes=(8,)), "osu-put.txt"),
    (BARRIER, "osu-barrier.txt"),
    (ALLREDUCE, "osu-allreduce-full.txt"),
    (IMB, "imb-pingpong.txt"),
    (IMB_ALLREDUCE, "imb-allreduce.txt"),
    (IMB_UNIBAND, "imb-uniband.txt"),
    (IMB_BARRIER, "imb-barrier.txt"),
    (CG, "npb-cg.txt"),
    (BFS, "graph500.txt"),
]


def test_means_of_osu_are_called_means() -> None:
    assert figures(read(LATENCY, composed("osu-latency.txt"))) == {
        ("mean", 4, "µs"): 1.62,
        ("mean", 8, "µs"): 1.64,
    }
    assert figures(read(LATENCY, composed("osu-latency-old.txt"))) == {
        ("mean", 4, "µs"): 0.43,
        ("mean", 8, "µs"): 0.44,
    }
    assert figures(read(MESSAGES, composed("osu-mbw-mr.txt"))) == {
        ("mean", 1, "MB/s"): 4.11,
        ("mean", 1, "M/s"): pytest.approx(4.11),
        ("mean", 4, "MB/s"): 16.64,
        ("mean", 4, "M/s"): pytest.approx(4.16),
    }
    assert figures(read(BARRIER, composed("osu-barrier.txt"))) == {("mean", None, "µs"): 2.41}


def test_least_and_greatest_means_of_ranks_are_no_minimum_and_maximum() -> None:
    """OSU's -f prints the least and greatest means of ranks under these names."""
    found = figures(read(ALLREDUCE, composed("osu-allreduce-full.txt")))
    assert {name for name, _, _ in found} == {"mean"}


def test_percentiles_are_those_of_samples() -> None:
    found = figures(read(LATENCY, composed("osu-latency-percentiles.txt")))
    assert [name for name, size, _ in found if size == 8] == ["mean", "median", "P90", "P99"]
    assert found["P99", 8, "µs"] == 3.12


def test_percentiles_of_rates_are_no_means() -> None:
    """Newer versions print these columns with -z, and do not document their meaning."""
    text = composed("osu-mbw-mr.txt").replace("MB/s    ", "MB/s  P50 Tail BW(MB/s)    ")
    text = text.replace("4.11 ", "4.11  9.99 ").replace("8.30 ", "8.30 9.99 ")
    text = text.replace("16.64 ", "16.64 9.99 ")
    assert same(read(MESSAGES, text), read(MESSAGES, composed("osu-mbw-mr.txt")))


def test_figures_of_imb() -> None:
    assert figures(read(IMB, composed("imb-pingpong.txt")))["mean", 64, "µs"] == 1.84
    found = figures(read(IMB_ALLREDUCE, composed("imb-allreduce.txt")))
    assert next(iter(found.items())) == (("mean", 8, "µs"), 1.69)
    assert len(found) == 3
    rates = figures(read(IMB_UNIBAND, composed("imb-uniband.txt")))
    assert rates["mean", 4096, "MB/s"] == pytest.approx(3276.8)
    assert rates["mean", 4096, "M/s"] == pytest.approx(0.8)
    assert figures(read(IMB_BARRIER, composed("imb-barrier.txt")))["mean", None, "µs"] == 2.94


def test_figures_of_applications() -> None:
    assert figures(read(CG, composed("npb-cg.txt"))) == {
        ("time", None, "s"): 1.2,
        ("rate", None, "Mop/s"): 1247.1,
    }
    measured = read(BFS, composed("graph500.txt"))
    assert figures(measured) == {
        ("mean", None, "s"): 0.0105,
        ("harmonic mean", None, "TEPS"): 9.97143e07,
    }
    assert measured.facts["validated"] is False


@pytest.mark.parametrize(("asked", "name"), COMPOSED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_output_that_was_cut_gives_all_or_nothing(
    asked: Workload, name: str, data: st.DataObject
) -> None:
    whole = composed(name)
    at = data.draw(st.integers(0, len(whole) - 1))
    try:
        measured = read(asked, whole[:at])
    except VicinalError:
        return
    assert same(measured, read(asked, whole))


@pytest.mark.parametrize(("asked", "name"), COMPOSED)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_output_with_a_wrong_character_is_an_error_or_can_be_true(
    asked: Workload, name: str, data: st.DataObject
) -> None:
    whole = composed(name)
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.sampled_from("0123456789.-eE|=\n\x00 #:") | st.characters())
    try:
        measured = read(asked, whole[:at] + other + whole[at + 1 :])
    except VicinalError:
        return
    assert measured.figures
    assert all(np.isfinite(each.value) and each.value > 0 for each in measured.figures)


@pytest.mark.parametrize(("asked", "name"), COMPOSED)
@settings(max_examples=30)
@given(text=st.text())
def test_garbage_is_refused(asked: Workload, name: str, text: str) -> None:
    del name
    with pytest.raises(VicinalError):
        read(asked, text)


@pytest.mark.parametrize(
    ("asked", "name", "old", "new", "problem"),
    [
        (LATENCY, "osu-latency.txt", "8       ", "9       ", "it prints no value for 8 bytes"),
        (LATENCY, "osu-latency.txt", "1.64", "nan", "'nan' instead of a number"),
        (LATENCY, "osu-latency.txt", "1.64", "1.64 2", "a line of 2 columns has 3"),
        (LATENCY, "osu-latency.txt", "# OSU", "# XXX", "prints its title 0 times"),
        (LATENCY, "osu-latency.txt", "Latency(us)", "Latency(us)  New", "its columns 0 times"),
        (BARRIER, "osu-barrier.txt", "2.41\n", "2.41\n   2.5\n", "2 lines instead of one"),
        (IMB, "imb-pingpong.txt", "#processes = 2", "#processes = 4", "not run on 2 ranks"),
        (IMB, "imb-pingpong.txt", "entering MPI_F", "left MPI_F", "did not finish"),
        (CG, "npb-cg.txt", "=               SUCC", "=             UNSUCC", "verification did not"),
        (CG, "npb-cg.txt", " CG Benchmark C", " MG Benchmark C", "it ran MG instead of CG"),
        (CG, "npb-cg.txt", "623.55", "523.55", "rates of all and of each rank do not agree"),
        (
            CG,
            "npb-cg.txt",
            "processes=                        2",
            "processes=  1",
            "run on 2 ranks",
        ),
        (BFS, "graph500.txt", "SCALE:                          16", "SCALE: 17", "is not 16"),
        (BFS, "graph500.txt", " 0.0105", " 0.0205", "agree"),
    ],
)
def test_what_cannot_be_true_is_named(
    asked: Workload, name: str, old: str, new: str, problem: str
) -> None:
    text = composed(name)
    assert old in text
    with pytest.raises(VicinalError, match=problem):
        read(asked, text.replace(old, new))


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (workload("osu", "latency", sizes=(100,)), "use powers of two, as the OSU programs do"),
        (workload("osu", "latency", ranks=4), "latency on 4 ranks: use 2"),
        (workload("osu", "barrier", sizes=(8,)), "barrier of its driver osu has none"),
        (workload("osu", "latency", options={"window": 4}), "option window, but latency has none"),
        (workload("osu", "bcast", options={"synchronization": "pscw"}), "bcast has none"),
        (workload("imb", "latency", ranks=3), "latency on 3 ranks: use 2, a multiple of 2"),
        (workload("npb", "SP", ranks=8), "SP on 8 ranks: use a square: 1, 4, 9"),
        (workload("npb", "CG", ranks=6), "CG on 6 ranks: use a power of two"),
        (workload("npb", "CG", options={"class": "Z"}), "choose one of S, W, A, B"),
        (workload("graph500", "bfs", ranks=3), "on 3 ranks: use a power of two"),
        (workload("spec", "milc"), "SPEC MPI 2007 must be bought"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(asked: Workload, problem: str) -> None:
    with pytest.raises(VicinalError, match=problem):
        drivers()[asked.driver].program(asked, Mpi.MPICH, Tools())


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """Directories as the suites' builds create them, with stand-ins for the programs."""
    folder = tmp_path_factory.mktemp("suites")
    deep = folder / "osu" / "libexec" / "mpi"
    for part, mpi in (("of-openmpi", Mpi.OPENMPI), ("with-mpich", Mpi.MPICH)):
        (deep / part).mkdir(parents=True)
        for name in ("osu_latency", "osu_put_bibw", "osu_upc_memget"):
            stand_in(deep / part, name, mpi)
    for tool, name in (("imb", "IMB-MPI1"), ("graph500", "graph500_reference_bfs")):
        (folder / tool).mkdir()
        stand_in(folder / tool, name, Mpi.MPICH)
    (folder / "npb" / "bin").mkdir(parents=True)
    for name in ("cg.B.x", "cg.A.2"):
        stand_in(folder / "npb" / "bin", name, Mpi.MPICH)
    return Tools({tool: folder / tool for tool in ("osu", "imb", "npb", "graph500")})


def test_what_only_users_have_is_asked_for_by_its_option() -> None:
    for name in ("osu", "imb", "npb", "graph500"):
        missing = drivers()[name].missing(
            workload(name, {"osu": "latency", "npb": "CG"}.get(name, "x")), Mpi.MPICH, Tools()
        )
        assert missing is not None
        assert f"name its path with --with-{name} PATH ({USER_TOOLS[name]})" in missing
    missing = drivers()["spec"].missing(workload("spec", "milc"), Mpi.MPICH, Tools())
    assert missing is not None
    assert "vicinal run" in missing


def test_of_several_builds_that_of_the_right_library_is_found(suites: Tools) -> None:
    driver = drivers()["osu"]
    asked = workload("osu", "latency", sizes=(64, 8), samples=200, options={"percentiles": True})
    for mpi, part in ((Mpi.MPICH, "with-mpich"), (Mpi.OPENMPI, "of-openmpi")):
        assert driver.missing(asked, mpi, suites) is None
        program, *arguments = driver.program(asked, mpi, suites).command
        assert Path(program).parent.name == part
        assert arguments == ["-i", "200", "-x", "20", "-m", "8:64", "-z"]
    both = workload("osu", "put-bidirectional", options={"window": 8, "synchronization": "fence"})
    arguments = list(driver.program(both, Mpi.MPICH, suites).command)
    assert arguments[-4:] == ["-W", "8", "-s", "fence"]
    get = workload("pgas", "upc-memget", sizes=(1, 4))
    assert drivers()["pgas"].program(get, Mpi.MPICH, suites).command[1:] == []
    missing = driver.missing(workload("osu", "bcast"), Mpi.MPICH, suites)
    assert missing is not None
    assert missing.startswith("there is no program osu_bcast in ")


def test_a_build_with_another_library_alone_is_refused(suites: Tools) -> None:
    missing = drivers()["imb"].missing(IMB, Mpi.OPENMPI, suites)
    assert missing is not None
    assert "is linked with MPICH, but the environment uses Open MPI" in missing


def test_the_others_get_what_they_are_asked_for(suites: Tools) -> None:
    imb = drivers()["imb"].program(IMB, Mpi.MPICH, suites)
    assert imb.files == {"imb-sizes.txt": "8\n64\n4096\n"}
    assert imb.command[1:4] == ["PingPong", "-npmin", "2"]
    assert imb.command[-2:] == ["-msglen", "imb-sizes.txt"]
    npb = drivers()["npb"]
    for kind, name in (("A", "cg.A.2"), ("B", "cg.B.x")):
        asked = workload("npb", "CG", options={"class": kind})
        assert npb.missing(asked, Mpi.MPICH, suites) is None
        assert Path(npb.program(asked, Mpi.MPICH, suites).command[0]).name == name
    asked = workload("graph500", "bfs", options={"scale": 10})
    assert drivers()["graph500"].program(asked, Mpi.MPICH, suites).command[1:] == ["10", "16"]
