"""`vicinal region serve`: who gets the region, what survives, and what is left at the end."""

import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
import pytest
from broker_support import OTHER_USERS, as_user, serving, until, user_namespace
from command_support import Vicinal, error_line
from launch_support import GUARD_SECONDS

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.region.opening import Purpose, fetch
from vicinal.region.serving import Rules

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start these processes")
MIB = 1 << 20


@pytest.fixture(scope="module")
def program(checkout: Path) -> Iterator[Path]:
    """region_member.c, where every user can run it."""
    with tempfile.TemporaryDirectory(prefix="vicinal-member-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        made = Path(name, "member")
        subprocess.run(
            [
                *("cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-pthread"),
                f"-I{checkout / 'provider'}",
                checkout / "tests/python/support/region_member.c",
                *sorted((checkout / "provider/region").glob("*.c")),
                *("-o", made),
            ],
            check=True,
        )
        yield made


class Member:
    """A process that joins a region, and leaves at the end of the `with` statement."""

    def __init__(self, program: Path, name: str, before: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, program, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().split()

    @property
    def slot(self) -> int:
        """Its slot. Fails the test if it has not joined."""
        assert self.said[:1] == ["joined"], self.error
        return int(self.said[1])

    @property
    def error(self) -> str:
        assert self.process.stderr is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.stderr.read().rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        self.process.wait(GUARD_SECONDS)


def test_members_join_and_the_command_shows_them(program: Path, vicinal: Vicinal) -> None:
    with serving("--members", "4", "--label", "job42") as broker:
        assert broker.said[0].startswith(f"serving {broker.name} to user {os.geteuid()}: 4 members")
        with Member(program, broker.name) as one, Member(program, broker.name) as other:
            assert {one.slot, other.slot} == {0, 1}
            shown = vicinal("region", "show", broker.name).stdout
            assert broker.name in shown
            assert "job42" in shown
            assert "handed out by a broker" in shown
            assert shown.count("alive") == 2
            checked = vicinal("region", "check", broker.name)
            assert (checked.returncode, checked.stderr) == (0, "")
        assert broker.end() == 0
        assert list(broker.path.parent.iterdir()) == []
        assert broker.errors == ""
        line = error_line(vicinal("region", "show", broker.name))
        assert f"there is no broker's socket {broker.path}: start the broker" in line


def test_a_broker_has_no_file_that_the_command_could_remove(vicinal: Vicinal) -> None:
    with serving() as broker:
        for command in ("create", "remove"):
            assert "a broker's region" in error_line(vicinal("region", command, broker.name))
        line = error_line(vicinal("region", "show", broker.path))
        assert line.endswith(f"name the region {broker.name}")


@ROOT_ONLY
def test_only_allowed_users_get_the_region(program: Path) -> None:
    one, other = OTHER_USERS
    with serving("--allow-uid", one) as broker:
        with Member(program, broker.name, as_user(one)) as member:
            assert member.slot == 0
        with Member(program, broker.name, as_user(other)) as member:
            assert member.error.startswith(
                f"the broker at {broker.path} refused this process: the broker allows neither user "
                f"{other} nor a group"
            )
        until(lambda: f"user {other}" in broker.errors)
    with serving() as broker, Member(program, broker.name, as_user(one)) as member:
        assert member.error.startswith("this user may not connect to the broker's socket")


@ROOT_ONLY
def test_groups_count_the_first_and_the_others(program: Path) -> None:
    one, other = OTHER_USERS
    with serving("--allow-gid", one) as broker:
        grouped = ["setpriv", f"--reuid={other}", f"--regid={other}", f"--groups=77,{one}", "--"]
        for before in (as_user(one), grouped):
            with Member(program, broker.name, before) as member:
                assert member.slot >= 0
        with Member(program, broker.name, as_user(other)) as member:
            assert "nor a group" in member.error


@ROOT_ONLY
def test_random_users_of_a_user_namespace(program: Path) -> None:
    """A container with a range of the host's numbers: root inside, and a random user inside."""
    first = 700_000
    with (
        serving("--allow-uid", f"{first}-{first + 65535}", "--members", "4") as broker,
        user_namespace(first) as namespace,
    ):
        for inside in (0, 1234):
            before = ["nsenter", f"--user={namespace}", f"--setuid={inside}", f"--setgid={inside}"]
            with Member(program, broker.name, [*before, "--"]) as member:
                assert member.slot >= 0
        mapped = [*as_user(OTHER_USERS[0]), "unshare", "--user", "--map-root-user", "--"]
        with Member(program, broker.name, mapped) as member:
            assert f"user {OTHER_USERS[0]}" in member.error


@ROOT_ONLY
@pytest.mark.parametrize(
    "around",
    [
        "mount --bind / / && mount -o remount,bind,ro / && exec",
        "mount -t tmpfs none /proc && exec",
    ],
    ids=["read-only root", "no /proc"],
)
def test_members_in_narrow_containers(program: Path, around: str) -> None:
    """Without capabilities, too."""
    user = as_user(OTHER_USERS[0])
    user[-1:] = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
    with serving("--allow-anyone", "--members", "4") as broker:
        before = ["unshare", "--mount", "--", "/bin/sh", "-c", f'{around} "$0" "$@"']
        with Member(program, broker.name, [*before, *user]) as member:
            assert member.slot == 0
            with Member(program, broker.name) as other:
                assert other.slot == 1


@ROOT_ONLY
def test_no_member_can_truncate_the_region_of_the_others() -> None:
    with serving("--allow-uid", OTHER_USERS[0]) as broker:
        script = (
            "import fcntl, os, sys\n"
            "from vicinal.region.opening import Purpose, fetch\n"
            "fd = fetch(sys.argv[1], Purpose.JOIN)\n"
            "for act in (lambda: os.ftruncate(fd, 0), lambda: os.ftruncate(fd, 1 << 30),\n"
            "            lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),\n"
            "            lambda: os.fchmod(fd, 0), lambda: os.fchown(fd, 0, 0)):\n"
            "    try: act()\n"
            "    except OSError as error: print(error.errno)\n"
        )
        from launch_support import package_path

        done = subprocess.run(
            [*as_user(OTHER_USERS[0]), "/usr/bin/python3", "-c", script, broker.path],
            env={"PYTHONPATH": package_path()},
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        assert done.stderr == ""
        assert done.stdout.split() == ["1"] * 5


def test_a_full_region_is_refused_in_one_line(program: Path) -> None:
    with serving("--members", "2") as broker, Member(program, broker.name) as first:
        with Member(program, broker.name) as second:
            assert {first.slot, second.slot} == {0, 1}
            with Member(program, broker.name) as third:
                assert third.error == (
                    f"the broker at {broker.path} refused this process: the region is full, "
                    "because living members have all its 2 slots: serve a region with more "
                    "(--members)"
                )
            # Reading is possible all the same.
            assert len(region.inspect(broker.name).members) == 2
        with Member(program, broker.name) as fourth:
            assert fourth.slot == second.slot


def test_the_same_memory_is_there_after_a_kill(program: Path) -> None:
    with serving("--members", "8") as broker, Member(program, broker.name) as first:
        before = region.inspect(broker.name).header.id
        server = broker.server
        assert server is not None
        server.kill()
        with Member(program, broker.name) as second:
            assert (first.slot, second.slot) == (0, 1)
            assert region.inspect(broker.name).header.id == before
        until(lambda: "signal 9 ended the broker's server" in broker.errors)
        # Now the supervisor: the server goes on, and has a server of its own.
        server = broker.server
        assert server is not None
        broker.process.kill()
        broker.process.wait()
        until(server.children)
        with Member(program, broker.name) as third:
            assert third.slot == 2
        server.children()[0].kill()
        with Member(program, broker.name) as fourth:
            assert fourth.slot in (1, 2, 3)
            assert region.inspect(broker.name).header.id == before
        server.terminate()
        until(lambda: not broker.path.exists())
        until(lambda: not server.is_running())


def _kill_at_once(broker_process: subprocess.Popen[str]) -> None:
    supervisor = psutil.Process(broker_process.pid)
    processes = [*supervisor.children(), supervisor]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in processes:
            each.send_signal(number)
    broker_process.wait()


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(
    program: Path, vicinal: Vicinal
) -> None:
    with serving() as broker:
        line = error_line(vicinal("region", "serve", "--socket", broker.path))
        assert f"a broker serves {broker.name} already: end that broker first" in line
        before = region.inspect(broker.name).header.id
        _kill_at_once(broker.process)
        with Member(program, broker.name) as member:
            assert f"no broker listens on {broker.path}" in member.error
        line = error_line(vicinal("region", "show", broker.name))
        assert f"no broker listens on {broker.path} any more: start the broker again" in line
        again = type(broker)(broker.path.parent)
        try:
            assert region.inspect(again.name).header.id != before
        finally:
            again.close()
        assert not broker.path.exists()


def test_other_things_at_the_path_stay(tmp_path: Path, vicinal: Vicinal) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    line = error_line(vicinal("region", "serve", "--socket", file))
    assert f"{file} exists and is not a socket: choose another path" in line
    assert file.read_text() == "mine"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(tmp_path / "other"))
        other.listen()
        line = error_line(vicinal("region", "serve", "--socket", tmp_path / "other"))
        assert "is the socket of another service" in line
    long = tmp_path / ("x" * 110)
    assert "more than 107 bytes" in error_line(vicinal("region", "serve", "--socket", long))
    missing = tmp_path / "missing" / "s"
    assert "cannot make the socket" in error_line(vicinal("region", "serve", "--socket", missing))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "other"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--allow-uid", "no-such-user"), "'no-such-user' is no user of this host"),
        (("--allow-gid", "9-3"), "'9-3' is no group of this host"),
        (("--allow-uid", "4294967295"), "is no user"),
        (("--members", "1"), "a region cannot have 1 member"),
        (("--heap", "2000G"), "a region cannot have"),
        (("--members", "512", "--section-size", "1G"), "of memory free and the region takes"),
    ],
)
def test_impossible_wishes_leave_nothing(
    tmp_path: Path, vicinal: Vicinal, words: tuple[str, ...], says: str
) -> None:
    line = error_line(vicinal("region", "serve", "--socket", tmp_path / "s", *words))
    assert says in line
    assert not (tmp_path / "s").exists()


def test_regions_end_one_after_the_other_when_they_are_idle(program: Path) -> None:
    with serving("--until-idle", "1", sockets=("one", "other")) as broker:
        with Member(program, f"socket:{broker.paths[0]}") as member:
            assert member.slot == 0
            with pytest.raises(subprocess.TimeoutExpired):
                broker.process.wait(1.5)
        until(lambda: not broker.paths[0].exists())
        assert broker.paths[1].exists()  # it had no member yet
        with Member(program, f"socket:{broker.paths[1]}") as member:
            assert member.slot == 0
        assert broker.process.wait(GUARD_SECONDS) == 0
        assert not broker.paths[1].exists()
        assert broker.errors.count("ended: it had no member for 1 s") == 2


def test_hostile_connections_keep_nobody_out(program: Path) -> None:
    """Silent ones, more than the broker keeps, and messages that are no requests."""
    with serving("--members", "4") as broker:
        silent = []
        for _ in range(200):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.connect(str(broker.path))
            silent.append(connection)
        for message in (b"x", b"VCBROKER", b"\0" * 16, b"VCBROKER" + b"\xff" * 8, b"y" * 100_000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(broker.path))
                connection.settimeout(GUARD_SECONDS)
                with Path(os.devnull).open("rb") as null:
                    socket.send_fds(connection, [message], [null.fileno()])
                answer = connection.recv(1000)
                assert answer == b"" or b"speaks version 4294967295" in answer
        with Member(program, broker.name) as member:
            assert member.slot == 0
        for connection in silent:
            connection.close()
        server = broker.server
        assert server is not None
        until(lambda: server.num_fds() < 12)
        assert broker.process.poll() is None


def test_a_hundred_regions_take_little_memory_beside_themselves() -> None:
    names = [f"s{number}" for number in range(100)]
    geometry = ("--members", "2", "--section-size", "256K", "--heap", "0")
    with serving(*geometry, sockets=names) as broker:
        for path in broker.paths:
            os.close(fetch(str(path), Purpose.JOIN))
        server = broker.server
        assert server is not None
        used = sum(each.memory_info().rss for each in (psutil.Process(broker.process.pid), server))
        assert used < 10 * MIB
        assert len({region.inspect(f"socket:{path}").header.id for path in broker.paths}) == 100


def test_rules() -> None:
    own = os.geteuid()
    assert Rules.parse((), (), anyone=False).only_own
    assert Rules.parse((), (), anyone=False).words == f"uid:{own}-{own}"
    rules = Rules.parse(["root", "1000-1999"], ["0"], anyone=True)
    assert not rules.only_own
    assert rules.words.endswith("uid:1000-1999,gid:0-0")
    assert str(rules) == "every process that reaches the socket"


def test_the_command_bounds_the_time_and_the_words_of_a_hostile_broker(tmp_path: Path) -> None:
    """What listens closes each connection, or says things that a terminal would interpret."""
    path = str(tmp_path / "s")
    answer = b"VCBROKER" + bytes([1, 0, 0, 0, 1, 0, 0, 0]) + b"\x1b[31mno: \xff".ljust(240, b"\0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            with suppress(OSError):  # until the listener is shut down
                while True:
                    connection = listener.accept()[0]
                    connection.recv(100)
                    if said[0]:
                        connection.send(said[0])
                    connection.close()

        said = [b""]
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(VicinalError, match="closed the connection without an answer"):
                fetch(path, Purpose.LOOK, seconds=0.2)
            said[0] = answer
            with pytest.raises(VicinalError, match=r"refused: \?\[31mno: "):
                fetch(path, Purpose.LOOK, seconds=GUARD_SECONDS)
            said[0] = answer[:12] + bytes(244)  # granted, and no descriptor
            with pytest.raises(VicinalError, match="does not answer as a broker"):
                fetch(path, Purpose.LOOK, seconds=GUARD_SECONDS)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(GUARD_SECONDS)
