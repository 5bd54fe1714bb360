"""How a wheel gets Vicinal's native files; everything else about the package is in pyproject.toml.

Meson compiles the provider, the libraries to preload and the programs for guests; they go into
vicinal/_native with the sources of the measuring programs. A source distribution also contains
what other tools of a checkout make: manual pages, completions, the parsed values of the studies.

An editable installation compiles nothing: a checkout's files are below build/, where `make` puts
them. That is why the back end is setuptools. meson-python's editable installations run the build at
each start of the command, and its wheels have the layout of `meson install`, which is a
distribution's.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
NATIVE = (
    "libvicinal-fi.so",
    "libvicinal-heap.so",
    "libvicinal-mpi.so",
    "libvicinal-pairs.so",
    "vicinal-doorbell-agent",
    "vicinal-guest-reseed",
    "vicinal-guest-task",
    "vicinal-region-broker",
)
"""The products of provider/meson.build. The plugin of Slurm fits only one release of Slurm."""

COMPLETIONS = {
    "vicinal": "share/bash-completion/completions",
    "vicinal.fish": "share/fish/vendor_completions.d",
    "_vicinal": "share/zsh/site-functions",
}
"""The scripts of shells, and where shells look for them below a prefix."""

MADE = {
    "man/vicinal.1": "build/man",
    "man/fi_vicinal.7": "build/man",
    "studies.json": "build",
    **{f"completions/{name}": "build/completions" for name in COMPLETIONS},
}
"""Files of a source distribution that a checkout has in another directory."""


class BuildPython(build_py):
    """Copies the package, and adds its native files."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "vicinal", "_native")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        built = Path(self.get_finalized_command("build").build_temp, "native")
        compile_native(built)
        for name in NATIVE:
            shutil.copy2(built / "provider" / name, target / name)
        for source in sorted((HERE / "programs").rglob("*.[ch]")):
            copy = target / source.relative_to(HERE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
        studies = made_file("studies.json")
        if studies is not None:
            shutil.copy2(studies, target / studies.name)


class SourceDistribution(sdist):
    """Adds the files that other tools make."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        for name in MADE:
            source = made_file(name)
            if source is None:
                raise SystemExit(f"vicinal: there is no {MADE[name]}/{Path(name).name}: run `make`")
            target = Path(base_dir, name)
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(source, target)


class Wheel(bdist_wheel):
    """A wheel for one platform and every Python, because the native files do not use Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class NativeDistribution(Distribution):
    """A package that depends on the platform."""

    def has_ext_modules(self) -> bool:
        return True


def made_file(name: str) -> Path | None:
    """A file of MADE in this source distribution, or in this checkout; None if it is not made."""
    places = (HERE / name, HERE / MADE[name] / Path(name).name)
    return next((each for each in places if each.is_file()), None)


def compile_native(directory: Path) -> None:
    """Compile the native files in `directory`/provider, or end the build with one line."""
    missing = [tool for tool in ("meson", "ninja") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(
            f"vicinal: there is no {' and no '.join(missing)}: install meson and ninja"
        )
    if not (directory / "build.ninja").is_file():
        shutil.rmtree(directory, ignore_errors=True)
        run(["meson", "setup", str(directory), str(HERE)])
    run(["ninja", "-C", str(directory), *(f"provider/{name}" for name in NATIVE)])


def run(command: list[str]) -> None:
    """Run a step of the build, and end with the first error that it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), "".join(lines[-1:]))
        raise SystemExit(
            f"vicinal: `{' '.join(command[:2])}` failed: {first.strip()}: building from source "
            "needs a C compiler, pkg-config and libfabric's headers (in Debian: gcc, pkg-config, "
            "libfabric-dev)"
        )


setup(
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildPython, "sdist": SourceDistribution, "bdist_wheel": Wheel},
    # Only a source distribution has the directories man and completions.
    data_files=[
        *(
            (f"share/man/man{number}", sorted(map(str, Path("man").glob(f"*.{number}"))))
            for number in (1, 7)
        ),
        *(
            (target, [f"completions/{name}"])
            for name, target in COMPLETIONS.items()
            if Path("completions", name).is_file()
        ),
    ],
)
