"""Recipes of Spack and EasyBuild: they name what Vicinal's build takes, and fit its source."""

import ast
import hashlib
import os
import re
import sys
import tarfile
import types
from pathlib import Path
from typing import Any

import pytest
from package_support import CHECKOUT, call

import vicinal

VERSION = vicinal.__version__


@pytest.fixture(scope="module")
def recipes() -> Path:
    """The directory that `scripts/packages recipes` writes."""
    call([CHECKOUT / "scripts/packages", "recipes"])
    return CHECKOUT / "build/packages/recipes"


@pytest.fixture(scope="module")
def archive(recipes: Path) -> Path:
    return recipes / f"vicinal-{VERSION}.tar.gz"


def options() -> set[str]:
    """The names of Vicinal's own options of Meson."""
    text = (CHECKOUT / "meson_options.txt").read_text()
    return set(re.findall(r"^option\('(\w+)'", text, re.MULTILINE))


class Spec:
    """A package's variants, as Spack's recipes ask for them."""

    def __init__(self, chosen: set[str]) -> None:
        self.chosen = chosen

    def __contains__(self, variant: str) -> bool:
        return variant in self.chosen


class Directives:
    """Spack's directives: each call of one is recorded."""

    def __init__(self) -> None:
        self.said: dict[str, list[tuple[Any, dict[str, Any]]]] = {}

    def module(self) -> types.ModuleType:
        """What `from spack.package import *` gives to a recipe."""
        made = types.ModuleType("spack.package")
        for name in ("conflicts", "depends_on", "license", "variant", "version"):
            setattr(made, name, self._recorder(name))
        for name in ("run_after", "run_before"):
            setattr(made, name, lambda *_: lambda function: function)
        return made

    def _recorder(self, name: str) -> Any:
        def record(*words: Any, **named: Any) -> None:
            self.said.setdefault(name, []).append((words, named))

        return record


@pytest.fixture(scope="module")
def spack(recipes: Path) -> tuple[type, Directives]:
    """The recipe's class and its directives, without Spack, which no package index has."""
    directives = Directives()
    meson = types.ModuleType("spack_repo.builtin.build_systems.meson")
    meson.MesonPackage = object  # type: ignore[attr-defined]
    modules = {
        "spack": types.ModuleType("spack"),
        "spack.package": directives.module(),
        "spack_repo.builtin.build_systems.meson": meson,
    }
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[name] = types.ModuleType(name)
    recipe = recipes / "spack/packages/vicinal/package.py"
    found: dict[str, Any] = {"__name__": "recipe"}
    before = dict(sys.modules)
    sys.modules.update(modules)
    try:
        exec(compile(recipe.read_text(), recipe, "exec"), found)
    finally:
        for name in modules:
            sys.modules.pop(name)
        sys.modules.update({name: before[name] for name in modules if name in before})
    return found["Vicinal"], directives


def test_spack_fetches_the_source_of_this_version(
    spack: tuple[type, Directives], archive: Path
) -> None:
    package, directives = spack
    (((version,), named),) = directives.said["version"]
    assert version == VERSION
    assert named["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert vars(package)["url"] == f"file://{Path.cwd()}/vicinal-{VERSION}.tar.gz"


@pytest.mark.parametrize("chosen", [set(), {"+command"}, {"+command", "+slurm"}])
def test_spack_gives_options_that_the_build_has(
    spack: tuple[type, Directives], chosen: set[str]
) -> None:
    package = spack[0]()
    package.spec = Spec(chosen)
    package.stage = types.SimpleNamespace(path="/stage", source_path="/stage/source")
    given = dict(each.removeprefix("-D").split("=") for each in package.meson_args())
    assert set(given) <= options()
    assert given["python_package"] == ("true" if "+command" in chosen else "false")
    assert given["slurm"] == ("enabled" if "+slurm" in chosen else "disabled")
    named = {words[0] for words, _ in spack[1].said["variant"]}
    assert {each.removeprefix("+") for each in chosen} <= named


def test_spack_asks_for_the_lowest_versions_of_the_build(
    spack: tuple[type, Directives],
) -> None:
    build = (CHECKOUT / "meson.build").read_text()
    project = (CHECKOUT / "pyproject.toml").read_text()
    needs = {words[0].partition("@")[0]: words[0] for words, _ in spack[1].said["depends_on"]}
    for name, lowest in (
        ("meson", re.search(r"meson_version: '>= ([\d.]+)'", build)),
        ("libfabric", re.search(r"'libfabric', version: '>= ([\d.]+)'", build)),
        ("python", re.search(r'requires-python = ">=([\d.]+)"', project)),
    ):
        assert lowest is not None
        assert needs[name] == f"{name}@{lowest[1]}:"


def test_the_source_has_what_the_recipes_use(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"meson.build", "meson_options.txt", "requirements/command.txt"} <= names


@pytest.fixture(scope="module")
def easybuild() -> Path:
    """The programs of EasyBuild, in an environment of their own."""
    programs = CHECKOUT / "build/easybuild-venv/bin"
    requirements = CHECKOUT / "requirements/easybuild.txt"
    stamp = programs / "stamp"
    if not stamp.is_file() or stamp.read_text() != requirements.read_text():
        call([sys.executable, "-m", "venv", "--clear", programs.parent])
        call([programs / "pip", "install", "--require-hashes", "-r", requirements])
        stamp.write_text(requirements.read_text())
    return programs


def test_easybuild_finds_all_that_the_easyconfig_needs(
    recipes: Path, easybuild: Path, archive: Path, tmp_path: Path
) -> None:
    (easyconfig,) = (recipes / "easybuild").glob("*.eb")
    own = {
        "PATH": f"{easybuild}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "EASYBUILD_PREFIX": str(tmp_path),
        "EASYBUILD_SOURCEPATH": str(archive.parent),
        "EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1",
        "LMOD_CMD": "/usr/share/lmod/lmod/libexec/lmod",
    }
    said = call([easybuild / "eb", "--dry-run", "--robot", easyconfig], env=own)
    planned = re.findall(r"^ \* \[.\] \S+ \(module: (\S+)\)", said, re.MULTILINE)
    assert planned[-1] == f"vicinal/{VERSION}-GCCcore-13.3.0"
    assert {"libfabric/1.21.0-GCCcore-13.3.0", "Python/3.12.3-GCCcore-13.3.0"} <= set(planned)


def test_easybuild_gives_options_that_the_build_has(recipes: Path) -> None:
    (easyconfig,) = (recipes / "easybuild").glob("*.eb")
    settings = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(easyconfig.read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    assert settings["version"] == VERSION
    given = re.findall(r"-D(\w+)=", settings["configopts"])
    assert given
    assert set(given) <= options()
    assert os.fspath(easyconfig).endswith(f"vicinal-{VERSION}-GCCcore-13.3.0.eb")
