# SPDX-License-Identifier: MIT
"""A thousand probes in a library, and the program does what it does without them."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from ptweave.cli.code import load_code
from ptweave.merge import Run
from ptweave.wrapper.probes.sites import Refusal, Site, examine_site
from support.command import ptweave
from support.probed import run_probed

COUNT = int(os.environ.get("PTWEAVE_PROBE_COUNT", "1000"))
SEED = 20250101
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PYTHON = Path("/usr/bin/python3").resolve()

PYTHON_WORK = """
import collections, decimal, hashlib, json, random, re, zlib
random.seed(7)
data = [{"n": i, "s": "x" * (i % 50), "f": i / 7} for i in range(3000)]
text = json.dumps(data)
assert json.loads(text) == data
words = re.findall(r"[0-9]+", text)
print(len(words), hashlib.sha256(text.encode()).hexdigest(), zlib.crc32(text.encode()))
print(sorted(random.choices(words, k=20)), decimal.Decimal(2).sqrt())
print(collections.Counter(text).most_common(5), sum(int(w) for w in words) ** 5 % 10**9)
try:
    {}["missing"]
except KeyError as error:
    print(repr(error))
"""

SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
insert into t select i, printf('%05d-%s', i, hex(i * i)), i / 3.0 from n;
create index tb on t(b);
select count(*), sum(a), avg(c), max(b) from t where b like '%A%';
select substr(b, 1, 3), count(*) from t group by 1 order by 2 desc, 1 limit 5;
update t set c = c * 2 where a % 3 = 0; delete from t where a % 5 = 0;
select total(c), group_concat(a) from (select a, c from t order by b desc limit 10);
select * from t join t u on t.a = u.a * 2 where t.a < 30; pragma integrity_check;
"""


def sample(path: Path, count: int) -> tuple[list[str], list[Refusal]]:
    """So many random functions of a file that can be probed, as FILE+OFFSET, and those of its functions that cannot."""
    code = load_code(path)
    taken: list[str] = []
    refused: list[Refusal] = []
    starts = code.starts.tolist()
    random.Random(SEED).shuffle(starts)
    for start in starts:
        if code.name(code.function(start)).endswith("@plt"):
            continue
        outcome = examine_site(code, start)
        if isinstance(outcome, Refusal):
            refused.append(outcome)
        elif len(taken) < count and isinstance(outcome, Site):
            taken.append(f"{path}+{_offset(path, start):#x}")
    return taken, refused


def _offset(path: Path, address: int) -> int:
    low = load_code(path).low
    return address - low  # the files here have their segments at the same distances in file and memory


CASES = {
    "libc": (Path(f"{LIBRARIES}/libc.so.6"), [PYTHON, "-c", PYTHON_WORK]),
    "libcrypto": (Path(f"{LIBRARIES}/libcrypto.so.3"), ["/usr/bin/openssl", "dgst", "-sha512"]),
    "python3": (PYTHON, [PYTHON, "-c", PYTHON_WORK]),
    "sqlite3": (Path(f"{LIBRARIES}/libsqlite3.so.0"), [PYTHON, "-c", f"""
import sqlite3
for row in (r for s in {SQL!r}.split(';') for r in db.execute(s)) if (db := sqlite3.connect(':memory:')) else ():
    print(row)
"""]),
}


def command(name: str, folder: Path) -> tuple[Path, list[str]]:
    """The library of a case, and what is run; skips where it is not installed."""
    library, words = CASES[name]
    if not library.exists() or not Path(words[0]).exists():
        pytest.skip(f"{library} or {words[0]} is not installed")
    argv = [str(word) for word in words]
    if name == "libcrypto":
        big = folder / "data"
        big.write_bytes(random.Random(SEED).randbytes(300_000))
        argv.append(str(big))
    return library, argv


@pytest.mark.parametrize("name", CASES)
def test_a_thousand_probes_change_nothing_the_program_says(name: str, tmp_path: Path) -> None:
    library, argv = command(name, tmp_path)
    native = subprocess.run(argv, capture_output=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"})
    assert native.returncode == 0, native.stderr
    taken, refused = sample(library, COUNT)
    assert len(taken) == COUNT
    assert all(one.reason for one in refused)
    listed = tmp_path / "sites"
    listed.write_text("\n".join(taken))
    probed = run_probed(tmp_path, [("--probe", f"@{listed}")], argv, env={"PYTHONHASHSEED": "0"})
    assert probed.traced.err == native.stderr.decode()
    assert (probed.traced.status, probed.traced.out) == (native.returncode, native.stdout)
    assert not probed.traced.server.notices.all
    assert probed.counts().total() > 0, "nothing was hit: the test shows nothing"


@pytest.mark.parametrize("name", CASES)
def test_probes_under_the_soft_engine_change_nothing_and_their_code_decodes(name: str, tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    library, argv = command(name, tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    native = subprocess.run(argv, capture_output=True, check=True)
    taken, _ = sample(library, COUNT)
    assert len(taken) == COUNT
    listed = tmp_path / "sites"
    listed.write_text("\n".join(taken))
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--threads", "native", "--probe", f"@{listed}", "--", *argv)
    assert (done.status, done.out) == (0, native.stdout), done.err
    with Run(tmp_path / "run.ptw") as run:
        assert run.sql("select * from gaps").arrow().num_rows == 0
        hits = run.sql("select site, count(*) as n from probes group by site").arrow().num_rows
        assert hits > 0, "nothing was hit: the test shows nothing"
        assert set(run.ledger["events"].lost) <= {"no room"}, "but hits within a handler, which are counted"
