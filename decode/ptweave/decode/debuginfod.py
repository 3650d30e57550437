# SPDX-License-Identifier: MIT
"""Debug files from debuginfod servers (elfutils, debuginfod(8)): `GET URL/buildid/ID/debuginfo`.

Only used when the user asks for it: a server learns which programs are looked at. Servers are not trusted: https only
(http to this machine itself), size and time are limited, and a file that has not the build id it was asked for is
thrown away. What was fetched is kept in a cache of ptweave's own.
"""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ptweave.decode.debug_servers import is_safe
from ptweave.decode.elf import BadElf, Elf

MAX_BYTES = 2 << 30
MAX_SECONDS = 90.0
"""For one file."""
CONNECT_SECONDS = 10.0
CHUNK = 1 << 18
BUILD_ID = re.compile(r"[0-9a-f]{8,128}\Z")


def cache_folder(environment: dict[str, str] | os._Environ[str]) -> Path:
    """Where fetched files are kept (XDG base directories)."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "/") / ".cache")
    return Path(base) / "ptweave" / "debuginfod"


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to where we would have gone ourselves."""

    def redirect_request(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
                         headers: http.client.HTTPMessage, newurl: str) -> urllib.request.Request | None:
        if not is_safe(newurl):
            raise urllib.error.URLError(f"redirects to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Debuginfod:
    """A list of servers and a cache. `problems` lists, in words, what went wrong, each server once."""

    def __init__(self, urls: Sequence[str], cache: Path, *, max_bytes: int = MAX_BYTES,
                 max_seconds: float = MAX_SECONDS) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._cache = cache
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._opener = urllib.request.build_opener(_SafeRedirects())
        self._dead: set[str] = set()
        self.problems: list[str] = []

    def fetch(self, build_id: str) -> Path | None:
        """The debug file of a build id, from the cache or a server; None when nobody has it."""
        if not BUILD_ID.match(build_id):
            return None
        target = self._cache / f"{build_id}.debug"
        if _has_build_id(target, build_id):
            return target
        for url in self._urls:
            if url not in self._dead and self._from(url, build_id, target):
                return target
        return None

    def _from(self, url: str, build_id: str, target: Path) -> bool:
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._download(f"{url}/buildid/{build_id}/debuginfo", partial):
                return False
            if not _has_build_id(partial, build_id):
                raise ValueError(f"sent something else for {build_id}")
            partial.replace(target)
            return True
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._dead.add(url)  # it is not asked again: each question may take as long as the limit
            self.problems.append(f"{url}: {error}")
            return False
        finally:
            partial.unlink(missing_ok=True)

    def _download(self, url: str, partial: Path) -> bool:
        """False when the server does not have it. Raises OSError, HTTPException or ValueError."""
        answers: list[bool | Exception] = []

        def work() -> None:
            try:
                answers.append(self._transfer(url, partial))
            except (OSError, ValueError, http.client.HTTPException) as error:
                answers.append(error)

        # a thread: timeouts of sockets begin again with every byte that comes, here the whole has to come in time
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(self._max_seconds)
        if not answers:
            raise ValueError(f"takes longer than {self._max_seconds:.0f} s")
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def _transfer(self, url: str, partial: Path) -> bool:
        deadline = time.monotonic() + self._max_seconds
        request = urllib.request.Request(url, headers={"User-Agent": "ptweave", "Accept-Encoding": "identity"})
        try:
            answer = self._opener.open(request, timeout=min(CONNECT_SECONDS, self._max_seconds))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.NOT_FOUND:
                return False
            raise
        with answer, partial.open("wb") as out:
            size = 0
            while time.monotonic() < deadline and (chunk := answer.read1(CHUNK)):
                size += len(chunk)
                if size > self._max_bytes:
                    raise ValueError(f"sends more than {self._max_bytes} bytes")
                out.write(chunk)
        return True


def _has_build_id(path: Path, build_id: str) -> bool:
    try:
        return Elf.open(path).build_id == build_id
    except BadElf:
        return False
