# SPDX-License-Identifier: MIT
"""`ptweave query`: formats parse back, errors are one line, a closed pipe is no error."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.cli import query
from ptweave.cli.output import WRITERS, Rows, pieces
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks, PtweaveError
from ptweave.data.manifest import Manifest
from ptweave.data.schemas import TABLES
from ptweave.merge import merge_run
from ptweave.merge.render import tuples
from support.answers import every_type
from support.bundle_writer import BundleWriter

PROGRAM = """
import argparse, sys
from ptweave.cli import query
from ptweave.data.errors import PtweaveError
parser = argparse.ArgumentParser()
query.configure(parser)
try:
    sys.exit(query.run(parser.parse_args()))
except PtweaveError as error:
    print("ptweave:", error.line(), file=sys.stderr)
    sys.exit(error.status)
"""

WIDE = "select repeat('wide ', 40) as a, seq, repeat('x', 60) as b from syscalls limit 3"

MOMENT = "timestamp_ns '2020-01-01 00:00:00.000000007'"

HOSTILE = '<b>"x",\n\x1b[31m'


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    writer = BundleWriter(tmp_path_factory.mktemp("bundles") / "run.ptw")
    writer.task(0)
    main, hostile = writer.block("main", "syscall"), writer.block(HOSTILE, "jump")
    writer.run(0, [main, hostile] * 500)
    for index in range(500):
        writer.syscall(0, index, enter=index, leave=index, ip=writer.blocks[main].last_ip, result=-index)
    made = writer.write()
    merge_run(made)
    return made


def run(bundle: Bundle, *args: str, capture: pytest.CaptureFixture[bytes], status: int = 0) -> bytes:
    parser = argparse.ArgumentParser()
    query.configure(parser)
    assert query.run(parser.parse_args([str(bundle.path), *args])) == status
    return capture.readouterr().out


def process(*args: str | Path, **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *map(str, args)], capture_output=True, timeout=120,
                          check=False, **more)  # type: ignore[call-overload, no-any-return]


def test_table_is_aligned_text(bundle: Bundle, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = run(bundle, "select seq, name from syscalls order by seq limit 2", capture=capfdbinary).decode().splitlines()
    assert out == ["seq  name", "───  ──────", "  0  call_0", "  2  call_0"]


def test_table_shows_control_characters_escaped(bundle: Bundle, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = run(bundle, "select function from blocks", capture=capfdbinary)
    assert b"\x1b" not in out
    assert b"\\x1b[31m" in out


def test_csv_parses_back(bundle: Bundle, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = run(bundle, "select function, [1, 2] as list, null as nothing, 'a' as function from blocks order by block",
              "--format", "csv", capture=capfdbinary)
    rows = list(csv.reader(io.StringIO(out.decode(), newline="")))
    assert rows == [["function", "list", "nothing", "function"], ["main", "[1, 2]", "", "a"],
                    [HOSTILE, "[1, 2]", "", "a"]]


def test_json_is_an_object_a_line(bundle: Bundle, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = run(bundle, "select function, paths, args, sum(seq) as total, sum(seq) as total, 'nan'::double as n, "
              "18446744073709551615::ubigint as big from syscalls, (select function from blocks where block = 1) "
              "group by all", "--format", "json", capture=capfdbinary)
    lines = out.decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"function": HOSTILE, "paths": ["a", None], "args": [1, 2], "total": 249500, "total_1": 249500, "n": None,
         "big": 18446744073709551615}]


def test_rows_of_much_data_are_written_a_few_at_a_time() -> None:
    much = pa.RecordBatch.from_pydict({"n": range(2000), "data": [b"x" * (n % 2) * 100_000 for n in range(2000)]})
    little = pa.RecordBatch.from_pydict({"n": range(100_000)})
    found = list(pieces([little, much, much.slice(0, 0)]))
    assert found[0].num_rows == 100_000 and len(found) > 10
    assert all(0 < piece.nbytes < 20 << 20 for piece in found)
    assert pa.Table.from_batches(found[1:]).equals(pa.Table.from_batches([much]))
    assert much.nbytes > 90 << 20, "control"


@pytest.mark.parametrize("seed", range(3))
def test_json_has_every_value_of_every_type(seed: int) -> None:
    def known(value: object) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value.hex() if isinstance(value, bytes) else value

    table = every_type(random.Random(seed), 300)
    out = io.BytesIO()
    WRITERS["json"](Rows(table.schema, [], iter(table.to_batches(max_chunksize=100))), out)
    expected = [{name: known(value) for name, value in zip(table.column_names, row, strict=True)}
                for batch in table.to_batches() for row in tuples(batch)]
    found = [json.loads(line) for line in out.getvalue().decode().split("\n")[:-1]]
    assert found == expected
    assert found[1:] != expected[:-1], "control"


def test_parquet_is_written_whole(bundle: Bundle, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    run(bundle, "from syscalls", "--format", "parquet", "-o", str(tmp_path / "out.parquet"), capture=capfdbinary)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 500
    assert table.schema.names == TABLES["syscalls"].schema.names
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_parquet_goes_to_a_pipe(bundle: Bundle) -> None:
    done = process(bundle.path, "from syscalls", "--format", "parquet")
    assert pq.read_table(io.BytesIO(done.stdout)).num_rows == 500


def test_parquet_does_not_go_to_a_terminal(bundle: Bundle) -> None:
    master, slave = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM, bundle.path, "from syscalls", "--format", "parquet"],
                              stdout=slave, stderr=subprocess.PIPE, timeout=120, check=False)
    finally:
        os.close(slave)
        os.close(master)
    assert done.returncode == 2
    assert b"name a file with -o" in done.stderr


def test_on_a_terminal_lines_fit(bundle: Bundle) -> None:
    master, slave = pty.openpty()
    done = subprocess.run([sys.executable, "-c", PROGRAM, bundle.path, WIDE], stdout=slave, timeout=120, check=False,
                          env={**os.environ, "COLUMNS": "90"})
    os.close(slave)
    out = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0
    assert all(len(line) <= 90 for line in out.splitlines())
    assert len(out.splitlines()) == 5


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_no_rows_are_an_answer_too(bundle: Bundle, form: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = run(bundle, "from syscalls where false", "--format", form, capture=capfdbinary)
    if form == "parquet":
        assert pq.read_table(io.BytesIO(out)).num_rows == 0
    else:
        assert len(out.splitlines()) == {"table": 2, "csv": 1, "json": 0}[form]


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_a_reader_that_goes_away_is_no_error(bundle: Bundle, form: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, bundle.path, "from range(30000000)", "--format", form],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(60) == 0


def test_the_query_may_stand_after_options(bundle: Bundle, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(bundle, "--format", "csv", "select 1 as a", capture=capfdbinary) == b'"a"\n1\n'


def test_the_query_may_come_from_standard_input(bundle: Bundle) -> None:
    assert process(bundle.path, "-", input=b"select 42 as a").stdout.split() == [b"a", "──".encode(), b"42"]


def test_list_shows_every_table_with_columns_units_and_rows(bundle: Bundle,
                                                            capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = run(bundle, "--list", capture=capfdbinary).decode()
    assert "syscalls  (500 rows)" in text
    assert "t_enter  int64" in text and " ns " in text
    assert "calls  (0 rows)" in text and "merge --calls" in text
    out = run(bundle, "--list", "--format", "json", capture=capfdbinary)
    rows = [json.loads(line) for line in out.decode().splitlines()]
    assert len(rows) == sum(len(table.columns) for table in TABLES.values())
    assert {"table": "syscalls", "rows": 500, "column": "t_enter", "type": "int64", "unit": "ns",
            "doc": "when it was entered"} in rows


@pytest.mark.parametrize(("args", "message"), [
    (["selec"], "syntax error"), ([], "needs either SQL or --list"), (["--list", "select 1"], "either"),
    (["select nothere from flow"], "nothere"), (["select error('oh')"], "oh"),
])
def test_wrong_use_is_one_line_and_status_2(bundle: Bundle, args: list[str], message: str) -> None:
    done = process(bundle.path, *args)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def refused(*args: str | Path) -> PtweaveError:
    parser = argparse.ArgumentParser()
    query.configure(parser)
    with pytest.raises(PtweaveError) as error:
        query.run(parser.parse_args([str(arg) for arg in args]))
    return error.value


def test_bundles_that_cannot_be_read_are_one_line(bundle: Bundle, tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path / "none.ptw", "select 1"), BadInput)
    (tmp_path / "empty.ptw").mkdir()
    assert "it has no run.json" in refused(tmp_path / "empty.ptw", "select 1").line()
    Bundle.create(tmp_path / "new.ptw", Manifest(format_version=7))
    assert "newer" in refused(tmp_path / "new.ptw", "select 1").line()
    Bundle.create(tmp_path / "half.ptw", Manifest())
    (tmp_path / "half.ptw/run.json").write_text('{"format_version": 1, "st')
    assert "cannot be read" in refused(tmp_path / "half.ptw", "select 1").line()


def test_a_half_written_bundle_answers_with_what_it_has(tmp_path: Path,
                                                        capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    half = Bundle.create(tmp_path / "half.ptw", Manifest(command=["x"]))
    assert run(half, "select count(*) as n from syscalls", capture=capfdbinary, status=1).split() == [
        b"n", "─".encode(), b"0"]


def test_an_output_that_cannot_be_written_leaves_nothing(bundle: Bundle, tmp_path: Path) -> None:
    error = refused(bundle.path, "select 1", "-o", tmp_path / "no" / "where")
    assert isinstance(error, MachineLacks) and error.status == 3
    with pytest.raises(BadInput):
        raise refused(bundle.path, "select error('x') from flow", "-o", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_summary_and_examples_are_there() -> None:
    assert query.SUMMARY and "ptweave query" in query.EXAMPLES


@pytest.mark.parametrize("computes", ["count(*)", "a.range, b.range"])
def test_an_interrupt_is_heard_while_a_query_computes(computes: str, bundle: Bundle) -> None:
    """Before it has rows, and while it writes them."""
    sql = f"select {computes} from range(10000000000) a, range(1000) b"
    command = [sys.executable, "-m", "ptweave.cli", "query", bundle.path, sql]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as asked:
        try:
            while seconds_of(asked.pid) < 3:  # it has long begun by then
                assert asked.poll() is None, "the control: it would go on for hours"
                time.sleep(0.05)
            asked.send_signal(signal.SIGINT)
            said = asked.communicate(timeout=30)[1]
        finally:
            asked.kill()
    assert asked.returncode == -signal.SIGINT
    assert said.splitlines() == [b"ptweave: stopped; what was finished is kept"]


def seconds_of(pid: int) -> float:
    """Processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_what_is_no_file_is_written_to_and_stays_what_it_is(bundle: Bundle, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert process(bundle.path, "select 7 as n", "-o", str(pipe)).returncode == 0
    assert os.read(reader, 100).splitlines()[-1].strip() == b"7" and pipe.is_fifo()
    os.close(reader)
    link.symlink_to("led.txt")
    assert process(bundle.path, "select 7 as n", "-o", str(link)).returncode == 0
    assert link.is_symlink() and (tmp_path / "led.txt").read_bytes() == link.read_bytes() != b""
    for none in ("", "/"):
        done = process(bundle.path, "select 7 as n", "-o", none)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and b"is a folder" in done.stderr


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
@pytest.mark.parametrize("value", ["interval 1 day", "union_value(k := 1)", MOMENT, f"[{MOMENT}]"])
def test_values_of_any_type_are_an_answer_or_one_line(bundle: Bundle, value: str, form: str) -> None:
    done = process(bundle.path, f"select {value} as v", "--format", form)
    if done.returncode:
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and b"cast" in done.stderr
    elif value == MOMENT and form != "parquet":
        assert b"2020-01-01 00:00:00.000000007" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&- 2>&-"])
def test_streams_that_were_closed_are_nothing_to_read_and_nowhere_to_write(bundle: Bundle, closed: str) -> None:
    for words in ("query RUN 'select 1'", "query RUN -", "dump RUN --blocks", "capture RUN --function main"):
        command = f"{sys.executable} -m ptweave.cli {words.replace('RUN', str(bundle.path))} {closed}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120, check=False)
        assert b"Traceback" not in done.stderr and done.returncode in (0, 2)
