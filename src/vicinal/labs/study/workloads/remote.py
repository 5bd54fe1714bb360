"""Pairs of programs that are no MPI: a server, and a client that is started once for each size.

Both are lines of shell, since a trial is one launch. A client begins when the server listens, so
it tries again for a while, and what it printed then does not count; and each size's output begins
with a line that names it. What a client writes goes into a directory of its own, which is removed.
"""

from collections.abc import Sequence
from shlex import quote

from vicinal.labs.study.workloads.printed import count, refused, whole_lines

SIZE_LINE = "=== size "

_CLIENT = """
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
cd "$place"
for size in {sizes}; do
    echo "{line}$size"
    tries=0
    until {command} >client.out && {good}; do
        tries=$((tries + 1))
        [ $tries -lt {tries} ] || { cat client.out; exit 1; }
        sleep 0.2
    done
    cat client.out
    {then}
done
"""
_SERVER = """
trap 'kill $! 2>/dev/null' EXIT
trap 'exit 0' TERM INT HUP
for size in {sizes}; do
    {command} &
    wait $!
done
"""
_TRIES = 100


def client_script(
    command: Sequence[str], sizes: Sequence[int], *, good: str = "true", then: str = "true"
) -> list[str]:
    """A client for each size in turn: `$size` and `{server}` in its words are what they say.

    It is tried again until it succeeds and `good` holds; `then` is what is done after that.
    """
    line = " ".join(_word(word) for word in command)
    return _shell(_CLIENT, sizes, line, line=SIZE_LINE, tries=_TRIES, good=good, then=then)


def server_script(command: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """A server for each size in turn, each of which ends with its client."""
    return _shell(_SERVER, sizes, " ".join(_word(word) for word in command))


def by_size(program: str, stdout: str) -> dict[int, list[str]]:
    """The lines of each size's client; those before the first size are left out."""
    found: dict[int, list[str]] = {}
    lines: list[str] | None = None
    for line in whole_lines(stdout):
        if line.startswith(SIZE_LINE):
            size = count(program, line.removeprefix(SIZE_LINE))
            if size in found:
                raise refused(program, f"it began {size} bytes twice")
            lines = found.setdefault(size, [])
        elif lines is not None:
            lines.append(line)
    return found


def _shell(text: str, sizes: Sequence[int], command: str, **values: object) -> list[str]:
    # Not str.format(): `{server}` stays, for whoever knows the address.
    for name, value in {"sizes": " ".join(map(str, sizes)), **values, "command": command}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return ["/bin/sh", "-c", text]


def _word(word: str) -> str:
    return f'"{word}"' if word in ("$size", "{server}") else quote(word)
