"""Environments that studies take from a shared file."""

from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.base.faults import CollectedError
from vicinal.base.yaml import Form, read_text
from vicinal.labs.study.file import reading_environments
from vicinal.labs.study.file.json_form import study_from_json, study_to_json
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.file.reading import parse_study, read_study, whole_text
from vicinal.labs.study.file.shipped import STUDIES, list_studies
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Mpi

SHARED = """\
environments:
  - name: network
    cluster: {nodes: [{name: n, count: 2}], region: none}
    path: network
    variables: {OMPI_MCA_a: "1"}
  - name: base
    title: with a region
    cluster:
      nodes:
        - {name: n, count: 2, mounts: [., "data:/data:ro"]}
  - {from: base, name: region, progress: block}
"""

STUDY = """\
name: mine
title: Containers
question: What does a region save?
source: us
environments_from: shared/two.yaml
environments:
  - from: network
  - {from: region, mpi: openmpi}  # its own MPI library
workloads:
  - {name: latency, driver: record, operation: latency, quantity: latency, sizes: [8]}
design:
  comparisons: [{base: network, test: region}]
"""


def read(folder: Path, study: str = STUDY, shared: str = SHARED) -> Study:
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / "two.yaml").write_text(shared)
    (folder / "study.yaml").write_text(study)
    return read_study(folder / "study.yaml")


def test_a_study_has_the_keys_that_it_takes_and_its_own(tmp_path: Path) -> None:
    network, region = read(tmp_path).environments
    assert (network.name, network.path) == ("network", MessagePath.NETWORK)
    assert network.variables == {"OMPI_MCA_a": "1"}
    assert (region.name, region.title, region.mpi) == ("region", "with a region", Mpi.OPENMPI)
    assert region.progress is Progress.BLOCK
    folder = tmp_path / "shared"  # relative paths of the shared file start here
    assert region.cluster["nodes"][0]["mounts"] == [str(folder), f"{folder}/data:/data:ro"]


def test_a_key_of_the_study_replaces_the_whole_key(tmp_path: Path) -> None:
    own = "{from: region, cluster: {nodes: [{name: other}]}}"
    region = read(tmp_path, STUDY.replace("{from: region, mpi: openmpi}", own)).environments[1]
    assert region.cluster == {"nodes": [{"name": "other"}]}
    assert region.title == "with a region"


def test_an_environment_takes_keys_of_another_of_its_own_file(tmp_path: Path) -> None:
    text = STUDY.replace("environments_from: shared/two.yaml\n", "")
    own = "  - {name: network, cluster: {nodes: [{name: n}]}}\n  - {from: network, name: region}\n"
    begin, end = text.index("  - from"), text.index("workloads")
    network, region = read(tmp_path, text[:begin] + own + text[end:]).environments
    assert region.cluster == network.cluster
    assert region.title == "region"


def test_a_file_of_environments_may_take_them_from_another(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.yaml").write_text(SHARED)
    shared = "environments_from: base.yaml\nenvironments: [{from: network}, {from: region}]\n"
    assert read(tmp_path, shared=shared) == read(tmp_path)


def test_results_and_printed_files_have_the_study_whole(tmp_path: Path) -> None:
    study = read(tmp_path)
    assert study_from_json(study_to_json(study)) == study
    text = whole_text(tmp_path / "study.yaml")
    assert "from" not in text
    assert parse_study(Path("elsewhere/mine.yaml"), text) == study
    (tmp_path / "study.yaml").write_text(text)
    assert whole_text(tmp_path / "study.yaml") == text
    values = {**study_to_json(study), "environments_from": "shared/two.yaml"}
    with pytest.raises(VicinalError, match="environments_from is not possible here"):
        study_from_json(values)


# The change of the study, the change of the shared file, and the error message.
MISTAKES = [
    (
        ("from: network", "from: netwrk"),
        None,
        "study.yaml:7: there is no environment netwrk in shared/two.yaml: did you mean network?",
    ),
    (
        ("environments_from: shared/two.yaml\n", ""),
        None,
        "study.yaml:6: there is no environment network in this file: name a file that has it",
    ),
    (
        ("two.yaml", "none.yaml"),
        None,
        "study.yaml:5: the file of environments {0}/shared/none.yaml could not be read "
        "(no such file or directory): give its path from the folder {0}",
    ),
    (
        ("shared/two.yaml", "3"),
        None,
        "study.yaml:5: environments_from cannot be 3: give the path of a file of environments",
    ),
    (("shared/two.yaml", "study.yaml"), None, "study.yaml:5: study.yaml leads back to this file: "),
    (
        ("mpi: openmpi", "cma: false"),
        None,
        "study.yaml:8: region has cma, but its path is not shared-memory: leave out cma",
    ),
    (
        ("{from: region, mpi: openmpi}", "{mpi: openmpi}"),
        None,
        "study.yaml:8: environments[1] has no name: add it",
    ),
    (
        None,
        ("environments:", "environments_from: ../study.yaml\nenvironments:"),
        "shared/two.yaml:1: ../study.yaml leads back to this file: ",
    ),
    (
        None,
        ("from: base", "from: region"),
        "shared/two.yaml:11: region takes its keys from itself: write out one",
    ),
    (
        None,
        ("from: base, name: region", "from: region, name: base"),
        "shared/two.yaml:11: there is no environment region in this file: use base, network",
    ),
    (None, ("name: region", "name: base"), "shared/two.yaml:11: the name base is given twice"),
    (None, ("path: network", "path: netwrk"), "shared/two.yaml:4: environments[0].path cannot be"),
    (None, ("count: 2}]", "cuont: 2}]"), "shared/two.yaml:3: unknown key cuont in nodes[0]"),
    (None, ("progress: block", "stands_for: no"), "study.yaml:8: there is no environment no: "),
    (
        None,
        (SHARED, "- x"),
        "shared/two.yaml:1: the file is not a file of environments, which has keys",
    ),
    (None, (SHARED, "{}"), "shared/two.yaml:1: the file has no environments: add it"),
]


@pytest.mark.parametrize(("study", "shared", "said"), MISTAKES, ids=[each[2] for each in MISTAKES])
def test_what_is_said_of_mistakes(
    study: tuple[str, str] | None, shared: tuple[str, str] | None, said: str, tmp_path: Path
) -> None:
    texts = []
    for text, change in ((STUDY, study), (SHARED, shared)):
        assert change is None or change[0] in text
        texts.append(text if change is None else text.replace(*change, 1))
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, *texts)
    errors = caught.value.each
    assert str(errors[0]).startswith(f"{tmp_path}/{said.format(tmp_path)}")
    assert errors[0].remedy


def test_mistakes_of_both_files_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CollectedError) as caught:
        read(
            tmp_path,
            STUDY.replace("title: C", "titel: C"),
            SHARED.replace("path: network", "path: x").replace("count: 2}]", "cuont: 2}]"),
        )
    told = [str(each).removeprefix(f"{tmp_path}/") for each in caught.value.each]
    assert [each.split(",")[0].rpartition(": ")[0] for each in told] == [
        "study.yaml:2: unknown key titel",
        'shared/two.yaml:4: environments[0].path cannot be "x"',
        "shared/two.yaml:3: unknown key cuont in nodes[0]",
    ]


def test_a_shared_file_is_read_once_for_all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def read_and_note(form: Form, path: Path) -> str:
        read.append(path.resolve())
        return read_text(form, path)

    monkeypatch.setattr(reading_environments, "read_text", read_and_note)
    assert len(list_studies()) > 40
    assert sorted(read) == sorted(STUDIES.resolve().glob("environments/*.yaml"))
