"""Appliances that an unprivileged user builds, and VMs that boot them."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks.leftovers import new_shared_path

import vicinal
from vicinal.mpi.environment import provider_directory
from vicinal.region import create

NOBODY = 65534
BUILD_SECONDS = 900.0  # all of these only prevent hanging
BOOT_SECONDS = 900.0
COMMAND_SECONDS = 240.0


def build_appliance(target: Path, before: list[str], cache: Path) -> str:
    """Build an appliance with the command; returns the command's output."""
    libraries = [
        Path(vicinal.__file__).parents[1],
        *(Path(p) for p in sys.path if "-packages" in p),
    ]
    done = subprocess.run(
        [*before, "-m", "vicinal", "image", "build", "--appliance", target],
        env=os.environ
        | {
            "PYTHONPATH": ":".join(map(str, libraries)),
            "XDG_CACHE_HOME": str(cache),
            "VICINAL_PROVIDER_DIR": str(provider_directory()),
        },
        cwd=target.parent,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def ordinary_user(directory: Path) -> list[str]:
    """A command line that runs Python as an unprivileged user with Debian's subordinate ids.

    The ids are in a copy of /etc, mounted where no other process sees it.
    """
    if os.geteuid() != 0:
        return [sys.executable]
    etc = directory / "etc"
    subprocess.run(["cp", "--archive", "/etc", etc], check=True)
    for name in ("subuid", "subgid"):
        (etc / name).write_text("nobody:100000:65536\n")
    become = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups /usr/bin/python3"
    script = f'mount --bind "{etc}" /etc && exec {become} "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def qemu_command(appliance: Path, disk: Path, region: Path) -> list[str]:
    """QEMU with a disk on top of the appliance's and with a region, without a network."""
    if not disk.exists():  # otherwise it has booted before
        command: list[str | Path] = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2"]
        command += ["-b", appliance, disk]
        subprocess.run(command, check=True)
    size = region.stat().st_size
    memory = f"memory-backend-file,id=region,mem-path={region},size={size},share=on"
    return [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024"),
        *("-display", "none", "-drive", f"file={disk},if=virtio"),
        *("-object", memory, "-device", "ivshmem-plain,memdev=region"),
    ]


class Ssh:
    """The ssh connection to a VM, as the image's user."""

    def __init__(self, key: Path, port: int) -> None:
        # The VM creates its host key at first boot, so there is no key to compare with.
        self._options = ["-i", str(key), "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]
        self._options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=20"]
        self._options += ["-o", f"ControlPath={key}.%p"]
        self._port = port
        self._connection: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        """Stay connected: with TCG a login takes seconds, and a command over a connection less."""
        command = ["ssh", *self._options, "-M", "-N", "-p", str(self._port), "debian@127.0.0.1"]
        null = subprocess.DEVNULL
        self._connection = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.kill()
            self._connection.wait()

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the VM as its unprivileged user."""
        return subprocess.run(
            ["ssh", *self._options, "-p", str(self._port), "debian@127.0.0.1", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def output(self, command: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(command)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def copy_in(self, file: Path) -> None:
        """Copy a file into the user's home directory."""
        command = ["scp", "-q", *self._options, "-P", str(self._port)]
        subprocess.run([*command, file, "debian@127.0.0.1:"], check=True, timeout=COMMAND_SECONDS)


class Vm(Ssh):
    """A virtual machine of a cloud that boots the appliance."""

    def __init__(self, appliance: Path, directory: Path, region: Path) -> None:
        self.region = region
        self._console = directory / "console"
        key, seed = directory / "key", directory / "seed"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self._make_seed(seed, key.with_suffix(".pub").read_text())
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        super().__init__(key, port)
        command = qemu_command(appliance, directory / "disk.qcow2", region)
        command += ["-smp", "2", "-serial", f"file:{self._console}"]
        command += ["-drive", f"file={seed},if=virtio,format=raw"]
        # Only the ssh port is forwarded: the VM reaches neither mirrors nor a cloud.
        command += ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
        command += ["-device", "virtio-net-pci,netdev=net"]
        self._qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    @staticmethod
    def _make_seed(seed: Path, public_key: str) -> None:
        """A seed disk for cloud-init's data source NoCloud."""
        data = seed.parent / "data"
        data.mkdir()
        (data / "meta-data").write_text("instance-id: test\n")
        (data / "user-data").write_text(
            f"#cloud-config\nhostname: appliance\nssh_authorized_keys:\n  - {public_key}"
        )
        with seed.open("wb") as file:
            file.truncate(2 << 20)
        subprocess.run(["mformat", "-i", seed, "-v", "CIDATA", "::"], check=True)
        files = [data / "meta-data", data / "user-data"]
        subprocess.run(["mcopy", "-i", seed, *files, "::"], check=True)

    def wait_ready(self) -> None:
        """Wait until the first boot has completed."""
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            assert self._qemu.poll() is None, self.console
            with_status = self.run(
                "cloud-init status --wait >/dev/null; cat /var/lib/vicinal/*boot"
            )
            if with_status.returncode == 0:
                self.connect()
                return
            assert time.monotonic() < deadline, f"{with_status.stderr}\n{self.console}"
            time.sleep(2)

    @property
    def console(self) -> str:
        return self._console.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End it as after a power failure."""
        self.disconnect()
        self._qemu.kill()
        self._qemu.wait()


@contextmanager
def new_region() -> Iterator[Path]:
    """A region for guests, removed afterwards."""
    file = new_shared_path()
    create(file, for_guests=True)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)
