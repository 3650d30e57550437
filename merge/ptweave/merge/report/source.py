# SPDX-License-Identifier: MIT
"""Source files for the report's listing.

A bundle is not believed about names of files: one made by somebody else could name any file of this machine, and the
report may be passed on. So files are read only below folders that the user names, through links only if those too lead
below them; what does not look like text is not shown.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MAX_BYTES = 1 << 20
"""Greatest size of a file that is shown."""


@dataclass
class Listing:
    """A source file: how often its lines ran (line: times, instructions), and its text, where it is there; `note` says
    why not, or what is to be known about it."""

    path: str
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    text: list[str] | None = None
    note: str = ""

    @property
    def instructions(self) -> int:
        return sum(instructions for _, instructions in self.counts.values())


class Sources:
    """Finds source files below folders."""

    def __init__(self, folders: list[Path], recorded_ns: int) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._recorded_ns = recorded_ns

    def fill(self, listing: Listing) -> None:
        """Read a listing's text, or note why it is not there."""
        path = self._find(listing.path)
        if path is None:
            listing.note = "its text is not below a folder given with --source"
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                known = os.fstat(descriptor)
                if not stat.S_ISREG(known.st_mode):
                    listing.note = "is no file"
                    return
                if known.st_size > MAX_BYTES:
                    listing.note = f"is larger than {MAX_BYTES >> 20} MiB"
                    return
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            listing.note = f"cannot be read ({error.strerror})"
            return
        if b"\0" in content:
            listing.note = "is no text"
            return
        listing.text = content.decode(errors="replace").splitlines()
        notes = [] if str(path) == listing.path else [f"read from {path}"]
        if max(listing.counts, default=0) > len(listing.text):
            notes.append("shorter than what ran: another version of it")
        if self._recorded_ns and known.st_mtime_ns > self._recorded_ns:
            notes.append("changed after the recording: lines may not be the ones that ran")
        listing.note = "; ".join(notes)

    def _find(self, name: str) -> Path | None:
        """The file of this name below a folder: itself, or the one that shares the most of the name's end."""
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", ".", "..")]
        if not parts or "\0" in name:
            return None
        for folder in self._folders:
            for candidate in (Path(name), *(folder.joinpath(*parts[first:]) for first in range(len(parts)))):
                if not candidate.is_absolute():
                    continue
                try:
                    found = candidate.resolve(strict=True)
                except (OSError, RuntimeError):
                    continue
                if found.is_relative_to(folder):
                    return found
        return None
