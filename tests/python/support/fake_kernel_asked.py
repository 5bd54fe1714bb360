"""Commands of test hosts that ask a fake kernel for what the real kernel does not have.

    fake_kernel_asked.py vicinal DIRECTORY ...    the command vicinal
    fake_kernel_asked.py helper DIRECTORY         its privileged helper

See fake_kernel.py. This file imports little, because each request to the helper starts it.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from vicinal.host.vf.privileged import service
from vicinal.host.vf.privileged.system import Host, RefusedError

_PCI = Path("/sys/bus/pci")
_PHYSICAL = ("eth1", "ib0")


def ask(directory: Path, **asked: object) -> dict[str, Any]:
    """Send one question to the fake kernel of this host. Returns its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as kernel:
        kernel.connect(str(directory / f"kernel-{socket.gethostname()}"))
        kernel.sendall(json.dumps(asked).encode() + b"\n")
        found: dict[str, Any] = json.loads(kernel.makefile().readline())
    if "refused" in found:
        raise RefusedError(*found["refused"])
    if "error" in found:
        raise OSError(found["error"], os.strerror(found["error"]))
    return found


def patch(directory: Path) -> None:
    """Let this process ask the fake kernel for what the real kernel does not have."""
    real_run, real_write = Host.run, Host.write

    def run(self: Host, name: str, *arguments: str) -> str:
        if name == "ip" and set(arguments) & set(_PHYSICAL):
            return str(ask(directory, ip=arguments)["said"])
        said = real_run(self, name, *arguments)
        ask(directory)
        return said

    def write(self: Host, path: Path, text: str) -> None:
        if path.name not in ("unbind", "drivers_probe"):
            os.truncate(path, 0)  # a write replaces the whole value of a kernel attribute
            real_write(self, path, text)
        else:
            ask(directory, path=str(path.relative_to(_PCI)), text=text)

    Host.run, Host.write = run, write  # type: ignore[method-assign]
    ask(directory)


def main() -> None:
    what, directory = sys.argv[1], Path(sys.argv[2])
    patch(directory)
    if what == "helper":
        sys.exit(service.main())
    sys.executable = str(directory / "helper")
    sys.argv = [str(directory / "vicinal"), *sys.argv[3:]]
    from vicinal.cli import main as command

    command()


if __name__ == "__main__":
    main()
