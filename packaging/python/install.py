"""Install the command: an environment of Python with the package vicinal, and its starter.

    install.py PYTHON SOURCE NATIVE BIN

`meson install` runs this file. PYTHON is the interpreter, SOURCE the package's sources, NATIVE the
directory for Vicinal's native files, and BIN the directory for the command. $DESTDIR goes before
NATIVE and BIN, and is not in any installed file.
"""

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

# An environment names the interpreter on which it is based, which is not another environment's.
_FACTS = "import sys; print(sys._base_executable, 'python%d.%d' % sys.version_info[:2])"
_LAUNCHER = """#!{python}
import sys

from vicinal.cli import main

main()
"""


def main() -> None:
    """Install what the arguments name."""
    python, source, native, commands = sys.argv[1], *map(Path, sys.argv[2:])
    environment = native / "python"
    staged = _staged(environment)
    base, version = subprocess.run(
        [python, "-c", _FACTS], capture_output=True, text=True, check=True
    ).stdout.split()
    packages = staged / "lib" / version / "site-packages"
    package = packages / "vicinal"
    shutil.rmtree(package, ignore_errors=True)  # a module that is gone must not stay
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    # The package finds the provider and the other native files by this file.
    (package / "native_directory").write_text(f"{native}\n")
    (staged / "bin").mkdir(exist_ok=True)
    link = staged / "bin" / "python3"
    link.unlink(missing_ok=True)
    link.symlink_to(base)
    (staged / "pyvenv.cfg").write_text(
        f"home = {Path(base).parent}\ninclude-system-site-packages = true\n"
    )
    # Without workers: on Debian 13 they ended ("terminated abruptly"). One process needs seconds.
    compileall.compile_dir(package, quiet=1, stripdir=os.environ.get("DESTDIR"))
    command = _staged(commands) / "vicinal"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(_LAUNCHER.format(python=environment / "bin" / "python3"))
    command.chmod(0o755)
    print(f"Installing {package}\nInstalling {command}")


def _staged(path: Path) -> Path:
    """Where a path is written: below $DESTDIR, if there is one."""
    destination = os.environ.get("DESTDIR")
    return Path(destination) / path.relative_to("/") if destination else path


main()
