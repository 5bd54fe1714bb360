"""Writing a cpio archive of the format ("newc") that Linux unpacks as its first file system.

Root owns all entries unless the caller names another owner, no entry has a date, and the caller
chooses the order. So the same input gives the same bytes.
"""

import stat
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

_MAGIC = "070701"
_ALIGNMENT = 4
_TRAILER = "TRAILER!!!"


class Archive:
    """A cpio archive under construction; paths in it are relative to the root."""

    def __init__(self, path: Path, *, there: Collection[str] = ()) -> None:
        """`there` names directories that an earlier archive contains, and that need no entry."""
        self._file = path.open("wb")
        self._inode = 0
        self._names = {*there}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._entry(_TRAILER, 0, b"")
        self._file.close()

    def directory(self, name: str, mode: int = 0o755, owner: int = 0) -> None:
        """Add a directory and its parents, unless they exist."""
        parent = str(Path(name).parent)
        if parent != ".":
            self.directory(parent)
        if name not in self._names:
            self._entry(name, stat.S_IFDIR | mode, b"", owner)

    def file(self, name: str, content: bytes, mode: int = 0o644, owner: int = 0) -> None:
        """Add a regular file, unless an entry with this name exists."""
        self.directory(str(Path(name).parent))
        if name not in self._names:
            self._entry(name, stat.S_IFREG | mode, content, owner)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link, unless an entry with this name exists."""
        parent = str(Path(name).parent)
        if parent != ".":
            self.directory(parent)
        if name not in self._names:
            self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device."""
        self.directory(str(Path(name).parent))
        self._entry(name, stat.S_IFCHR | mode, b"", device=(major, minor))

    def copy(self, source: Path, name: str, owner: int = 0) -> None:
        """Add a file, directory or symbolic link of this host, readable by all users."""
        if source.is_symlink():
            self.link(name, str(source.readlink()))
        elif source.is_dir():
            self.directory(name, owner=owner)
        elif source.is_file():
            executable = source.stat().st_mode & 0o111
            self.file(name, source.read_bytes(), 0o755 if executable else 0o644, owner)

    def _entry(
        self,
        name: str,
        mode: int,
        content: bytes,
        owner: int = 0,
        device: tuple[int, int] = (0, 0),
    ) -> None:
        self._names.add(name)
        self._inode += 1
        encoded = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = [self._inode, mode, owner, owner, links, 0, len(content)]
        fields += [0, 0, *device, len(encoded), 0]
        header = _MAGIC + "".join(f"{field:08x}" for field in fields)
        self._padded(header.encode() + encoded)
        self._padded(content)

    def _padded(self, data: bytes) -> None:
        self._file.write(data)
        self._file.write(bytes(-len(data) % _ALIGNMENT))
