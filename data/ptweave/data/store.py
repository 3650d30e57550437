# SPDX-License-Identifier: MIT
"""Bundles wherever fsspec reaches: `s3://bucket/runs/a.ptw`, `memory://…`, or a folder.

A bundle on a file system of this machine is worked on where it is. Any other is copied into a folder here, as far as it
is needed, worked on, and what was made is copied back: first the files, then what is gone is removed, and `run.json`
comes last. What a store lists is not trusted: a name that leads out of the bundle is an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ptweave.data.bundle import FOLDERS, Bundle
from ptweave.data.errors import BadInput, MachineLacks, NotInstalled, PtweaveError

_LAST = ("ledger.json", "run.json")


@dataclass(frozen=True)
class Place:
    """Where a bundle is: a file system of fsspec's, and the path on it."""

    url: str
    system: Any
    path: str

    @property
    def here(self) -> Path | None:
        """The folder, when it is on a file system of this machine."""
        return Path(self.path) if "file" in _protocols(self.system) else None


def _protocols(system: Any) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def _fsspec() -> Any:
    try:
        import fsspec.core
    except ImportError as error:
        raise NotInstalled("fsspec", "cluster") from error
    return fsspec


def place(url: str) -> Place:
    """Where a URL or a path leads. Raises BadInput for a protocol that fsspec does not know, MachineLacks when what it
    needs for one is not installed."""
    try:
        system, path = _fsspec().core.url_to_fs(url)
    except ImportError as error:
        raise MachineLacks(f"cannot be reached ({error})", where=url,
                           remedy="install what fsspec needs for it") from error
    except (ValueError, OSError) as error:
        raise BadInput(f"is no place fsspec knows ({error})", where=url,
                       remedy="write it like s3://bucket/run.ptw") from error
    return Place(url, system, path)


def matching(url: str) -> list[str]:
    """The bundles that a pattern stands for, by name; the URL itself when it is none. Raises BadInput for no match."""
    if not any(char in url for char in "*?["):
        return [url]
    at = place(url)
    if at.here is not None and at.here.exists():
        return [url]
    with _reaching(at):
        found = sorted(str(name) for name in at.system.glob(at.path))
    if not found:
        raise BadInput("matches no run", where=url, remedy="name run bundles, as in 's3://bucket/*.ptw'")
    return found if at.here is not None else [str(at.system.unstrip_protocol(name)) for name in found]


@contextmanager
def bundle_at(url: str, *, without: tuple[str, ...] = ()) -> Iterator[Bundle]:
    """A bundle to work on: the folder itself where it is on this machine, else a copy of all but the folders `without`,
    whose changes are copied back when the block ends without an error.

    Raises BadInput for what is no bundle, MachineLacks when the store cannot be reached.
    """
    at = place(url)
    if at.here is not None:
        yield Bundle.open(at.here)
        return
    with tempfile.TemporaryDirectory(prefix="ptweave-bundle-") as folder:
        copy = Path(folder) / (PurePosixPath(at.path).name or "run.ptw")
        before = fetch(at, copy, without=without)
        yield Bundle.open(copy)
        publish(at, copy, before, without=without)


def fetch(at: Place, folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, tuple[int, int]]:
    """Copy a bundle's files into a new folder; what they were then: size and time of change (ns) by name."""
    with _reaching(at):
        files = at.system.find(at.path, detail=True)
        wanted = {name: path for path in files for name in [_name(at, path)] if name.split("/")[0] not in without}
        folder.mkdir(mode=0o700)
        for name in FOLDERS:
            (folder / name).mkdir(mode=0o700)
        for name, path in wanted.items():
            target = folder / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            at.system.get_file(path, str(target))
    return _state(folder)


def publish(at: Place, folder: Path, before: dict[str, tuple[int, int]], *, without: tuple[str, ...] = ()) -> None:
    """Copy back what is not as it was `before`, and remove what is gone."""
    now = _state(folder)
    changed = [name for name, state in now.items() if before.get(name) != state]
    root = at.path.rstrip("/")
    with _reaching(at):
        gone = (before.keys() - now.keys()) | _stale(at, changed, now.keys(), without)
        for name in sorted(changed, key=lambda name: (_LAST.index(name) + 1 if name in _LAST else 0, name)):
            if name in _LAST:
                _remove(at, root, gone)
                gone = set()
            at.system.put_file(str(folder / name), f"{root}/{name}")
        _remove(at, root, gone)


def _stale(at: Place, changed: list[str], now: Iterable[str], without: tuple[str, ...]) -> set[str]:
    """Of folders that were made anew without the old ones' having been copied: the old files that are in none."""
    made = {name.rpartition("/")[0] for name in changed if name.split("/")[0] in without}
    at.system.invalidate_cache()
    old = {_name(at, path) for folder in made for path in at.system.find(f"{at.path.rstrip('/')}/{folder}")}
    return old - set(now)


def _remove(at: Place, root: str, names: set[str]) -> None:
    for name in names:
        at.system.rm_file(f"{root}/{name}")


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            status = path.stat()
            found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns)
    return found


def _name(at: Place, path: str) -> str:
    """A file's name in its bundle. Raises BadInput for one that leads out of it."""
    root = at.path.rstrip("/") + "/"
    name = path.removeprefix(root)
    parts = name.split("/")
    if not path.startswith(root) or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise BadInput(f"has a file that leads out of it ({name!r})", where=at.url, remedy="copy the bundle again")
    return name


@contextmanager
def _reaching(at: Place) -> Iterator[None]:
    """What goes wrong between here and the store, as an error of ours. Each store's library has kinds of its own, which
    need not be OSError (botocore's are not)."""
    try:
        yield
    except (PtweaveError, MemoryError):
        raise
    except Exception as error:
        said = str(error) or type(error).__name__
        raise MachineLacks(f"cannot be read or written ({said})", where=at.url,
                           remedy="look at the store's address, your credentials and rights") from error
