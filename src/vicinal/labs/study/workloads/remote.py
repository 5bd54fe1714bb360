"""Pairs of programs that are not MPI: a server, and a client that runs once for each size.

Because a trial is one launch, both are shell scripts. A client may start before the server listens,
so the script repeats it for a while and drops the output of failed tries. Each size's output begins
with a line that names the size. A client writes into its own directory, which is removed.
"""

from collections.abc import Sequence
from shlex import quote

from vicinal.labs.study.workloads.printed import count, refused, whole_lines

SIZE_LINE = "=== size "

_CLIENT = """
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT
cd "$directory"
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
    """A client for each size in turn; in its words, `$size` and `{server}` are replaced.

    The client is repeated until it succeeds and the shell condition `good` holds. Then `then` runs.
    """
    line = " ".join(_word(word) for word in command)
    return _shell(_CLIENT, sizes, line, line=SIZE_LINE, tries=_TRIES, good=good, then=then)


def server_script(command: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """A server for each size in turn; each ends with its client."""
    return _shell(_SERVER, sizes, " ".join(_word(word) for word in command))


def by_size(program: str, stdout: str) -> dict[int, list[str]]:
    """The output lines of each size's client, without lines before the first size."""
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
    # Not str.format(), because `{server}` is replaced later, when the address is known.
    for name, value in {"sizes": " ".join(map(str, sizes)), **values, "command": command}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return ["/bin/sh", "-c", text]


def _word(word: str) -> str:
    return f'"{word}"' if word in ("$size", "{server}") else quote(word)
