# SPDX-License-Identifier: MIT
"""`Run`: views and macros against brute force, what is missing or broken, how it shows itself."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.manifest import Manifest, State
from ptweave.data.notices import Notice, NoticeKind
from ptweave.data.schemas import FLOW, TABLES
from ptweave.merge import Run, merge_run
from ptweave.merge.render import TextTable, cell, safe, texts, tuples
from support.answers import every_type
from support.bundle_writer import BundleWriter, put, rows_of


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> BundleWriter:
    """Two threads of random flow over three functions, with gaps, cut into paths of all lengths."""
    made = BundleWriter(tmp_path_factory.mktemp("bundles") / "it's [a] *run?.ptw", cut=7)
    draw = random.Random(11)
    blocks = [made.block(name, "cond_jump") for name in ("main", "f", "g") for _ in range(4)]
    for thread in (0, 1):
        made.task(thread, tid=100 + thread)
        for length in (50, 1, 130):
            after = made.run(thread, draw.choices(blocks, k=length), cuts=draw.choices(range(180), k=20))
            made.gap(thread, after)
    bundle = made.write()
    merge_run(bundle)
    return made


@pytest.fixture
def run(writer: BundleWriter) -> Run:
    return Run(writer.path)


def brute_flow(writer: BundleWriter) -> list[tuple[int, int, int]]:
    return [(thread, seq, block) for thread, blocks in sorted(writer.executed.items())
            for seq, block in enumerate(blocks)]


def test_flow_blocks_is_every_executed_block(writer: BundleWriter, run: Run) -> None:
    assert run.sql("select thread, seq, block from flow_blocks order by all").rows() == brute_flow(writer)


@pytest.mark.parametrize("span", [(0, 1), (0, 7), (3, 4), (6, 8), (49, 53), (100, 150), (0, 10**9), (20, 20), (30, 5),
                                  (-5, 3), (179, 400)])
def test_flow_range_is_that_part_of_the_flow(writer: BundleWriter, run: Run, span: tuple[int, int]) -> None:
    for thread in (0, 1, 2):
        expected = [row for row in brute_flow(writer) if row[0] == thread and span[0] <= row[1] < span[1]]
        assert run.sql("select thread, seq, block from flow_range(?, ?, ?)", thread, *span).rows() == expected


def test_flow_range_at_every_path_boundary(writer: BundleWriter, run: Run) -> None:
    flow = brute_flow(writer)
    for _, seq, _ in [row for row in writer.flow if row[0] == 1][:40]:
        for a, b in ((seq - 1, seq + 1), (seq, seq + 1), (seq - 2, seq)):
            assert run.sql(f"select thread, seq, block from flow_range(1, {a}, {b})").rows() == [
                row for row in flow if row[0] == 1 and a <= row[1] < b]


def test_executions_are_those_of_the_function_s_first_block(writer: BundleWriter, run: Run) -> None:
    for function in ("main", "f", "g", "nothing", "f' or true --"):
        entries = {block.number for block in writer.blocks
                   if block.function == function and block.function_offset == 0}
        assert run.sql("from executions(?)", function).rows() == [
            row for row in brute_flow(writer) if row[2] in entries]


def test_block_counts_are_the_blocks_executed(writer: BundleWriter, run: Run) -> None:
    assert dict(run.sql("from block_counts()")) == Counter(block for _, _, block in brute_flow(writer))


def test_edge_counts_are_pairs_in_a_thread_without_a_gap_between(writer: BundleWriter, run: Run) -> None:
    gaps = {(row["thread"], row["seq"]) for row in writer.gaps}
    expected = Counter(
        (blocks[seq - 1], blocks[seq]) for thread, blocks in writer.executed.items()
        for seq in range(1, len(blocks)) if (thread, seq) not in gaps)
    assert {row[:2]: row[2] for row in run.sql("from edge_counts()")} == expected


def test_frames_lists_a_stack_innermost_first(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    a, b = writer.block("a", "call"), writer.block("b", "call")
    writer.run(0, [a, b, writer.block("c", "jump")])
    merge_run(writer.write())
    with Run(tmp_path / "run.ptw") as run:
        deepest = run.sql("select stack from stacks order by depth desc limit 1").rows()[0][0]
        assert run.sql("select depth, function, block from frames(?)", deepest).rows() == [
            (3, "c", b), (2, "b", a), (1, "a", None)]


def test_functions_of_lists_those_of_a_stack_that_was_logged(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    outer, inner = writer.block("outer", "call"), writer.block("inner", "call")
    writer.run(0, [outer, inner])
    sites = [writer.blocks[block].end for block in (inner, outer)]
    for t, stack in enumerate(([sites[0], sites[1]], [], [sites[1]], [sites[0], sites[1]])):
        writer.thunk(0, t=t, stack=stack)
    merge_run(writer.write())
    with Run(tmp_path / "run.ptw") as run:
        assert run.sql("select functions_of(stack) from thunks order by thunk").rows() == [
            (["inner", "outer"],), (None,), (["outer"],), (["inner", "outer"],)]
        assert run.sql("select functions_of(thunks.stack) from thunks join stacks using (stack) where thunk = 2"
                       ).rows() == [(["outer"],)]
        assert run.sql("select blocks from call_stacks order by len(blocks)").rows() == [([None],), ([outer, None],)]


def test_results_come_as_arrow_pandas_polars_and_rows(run: Run) -> None:
    result = run.sql("select thread, count(*) as paths from flow group by thread order by thread")
    rows = result.rows()
    assert result.columns == ["thread", "paths"]
    assert list(result.arrow().to_pydict()) == result.columns
    assert [tuple(row) for row in result.pandas().itertuples(index=False)] == rows
    assert [tuple(row) for row in result.df().itertuples(index=False)] == rows
    assert result.polars().rows() == rows
    assert list(result) == rows


def test_two_results_can_be_read_side_by_side(run: Run) -> None:
    first, second = iter(run.sql("select seq from flow order by seq")), iter(run.sql("from range(3)"))
    assert [next(first)[0], next(second)[0], next(second)[0]] == [0, 0, 1]


def test_without_polars_the_error_says_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MachineLacks, match="pip install polars"):
        run.sql("select 1").polars()


@pytest.mark.parametrize(("query", "message"), [
    ("selec 1", "syntax error.*line 1, at “selec"),
    ("select 1 as a,\n  nothere from flow", "nothere.*line 2, at “nothere"),
    ("select * from nowhere", "nowhere.*line 1, at “nowhere"),
    ("select 'x'::int from flow", "Could not convert"),
])
def test_wrong_sql_says_what_and_where(run: Run, query: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        run.sql(query).rows()
    assert "\n" not in error.value.line()


@pytest.mark.parametrize("query", [
    "from read_csv('/etc/passwd')", "from '/etc/passwd'", "from glob('/*')", "copy flow to '{path}/x.csv'",
    "attach '{path}/x.db'", "install httpfs", "set enable_external_access = true",
    "copy flow to '/proc/self/fd/{fd}/tables/flow/0.parquet' (format parquet)", "export database '{path}'"])
def test_queries_reach_no_file_but_the_tables(run: Run, tmp_path: Path, query: str) -> None:
    with pytest.raises(BadInput):
        run.sql(query.format(path=tmp_path, fd=run._descriptor)).rows()
    assert not list(tmp_path.iterdir())


def test_python_s_variables_are_not_tables(run: Run) -> None:
    import pyarrow as pa
    secret = pa.table({"a": [1]})
    assert secret.num_rows == 1
    with pytest.raises(BadInput):
        run.sql("from secret")


def test_tables_tell_rows_columns_types_and_units(writer: BundleWriter, run: Run) -> None:
    tables = {table.name: table for table in run.tables()}
    assert set(tables) == set(TABLES)
    assert tables["flow"].rows == len(writer.flow)
    assert [(column.name, str(column.type), column.unit) for column in tables["clock"].columns] == [
        ("thread", "int32", ""), ("seq", "int64", "blocks"), ("tsc", "uint64", "ticks"), ("t", "int64", "ns"),
        ("before", "int32", "instructions")]


def test_who_misses_a_table_is_told_what_was_not_recorded(tmp_path: Path) -> None:
    static = "thunks: the program is static, so libtthread cannot be preloaded"
    stayed = Notice(NoticeKind.FALLBACK, "threads stay threads, for a reason")
    process = "record with --threads process a program that makes threads, and merge"
    for number, (merged, lacks, notices, thunks, races) in enumerate([
            (True, [static], [], f"the run lacks {static}", f"the run lacks {static}"),
            (True, ["merge: no decoded thunks"], [], "the run lacks decoded thunks", "the run lacks decoded thunks"),
            (True, ["the end: it was killed"], [stayed], "merge the run: ptweave merge RUN", stayed.text),
            (True, [], [], "merge the run: ptweave merge RUN", process),
            (False, [static], [stayed], "merge the run: ptweave merge RUN", process)]):
        bundle = Bundle.create(tmp_path / f"{number}.ptw", Manifest(state=State.PARTIAL, lacks=lacks, notices=notices))
        if merged:
            put(bundle, TABLES["threads"], [])
        with Run(bundle.path) as run:
            assert run.missing["thunks"] == f"was not made: {thunks}"
            assert run.missing["races"] == f"was not made: {races}"
            assert run.missing["calls"] == "was not made: merge the run with calls: ptweave merge --calls RUN"


@pytest.mark.parametrize("table", ["accesses", "allocations", "races"])
def test_what_a_run_needs_that_was_recorded_as_processes_is_to_be_merged(tmp_path: Path, table: str) -> None:
    def told(bundle: Bundle) -> str:
        with Run(bundle.path) as run:
            return run.missing[table].removeprefix("was not made: ")

    recorded = {mode: Bundle.create(tmp_path / f"{mode}.ptw", Manifest(state=State.COMPLETE, threads_mode=mode))
                for mode in ("process", "native")}
    assert told(recorded["process"]) == "merge the run: ptweave merge RUN"
    assert told(recorded["native"]).startswith("record with --threads process")
    for accesses in (True, False):
        writer = BundleWriter(tmp_path / f"decoded {accesses}.ptw")
        writer.manifest.threads_mode = "process"
        writer.task(0)
        writer.run(0, [writer.block("main", "jump")])
        writer.thunk(0, t=5)
        if accesses:
            writer.access(0, 0, 0x7000, write=True)
        assert told(writer.write()).startswith("merge" if accesses else "record with --threads process"), "decoded"


def test_every_table_can_be_asked_made_or_not(run: Run, tmp_path: Path) -> None:
    for table in TABLES.values():
        assert run.ask(f"from {table.name} limit 0").columns == table.schema.names
    Bundle.create(tmp_path / "bare.ptw", Manifest(state=State.PARTIAL))
    with Run(tmp_path / "bare.ptw") as bare:
        for table in TABLES.values():
            found = bare.ask(f"from {table.name}").arrow()
            assert found.num_rows == 0
            assert [(field.name, field.type) for field in found.schema] == [
                (field.name, field.type) for field in table.schema]
            assert "was not made" in bare.missing[table.name]
        for macro in ("flow_range(0, 1, 2)", "executions('f')", "block_counts()", "edge_counts()", "frames(1)",
                      "flow_blocks"):
            assert bare.ask(f"from {macro}").rows() == []


def test_only_tables_views_and_macros_of_runs_are_suggested(run: Run) -> None:
    def said(query: str) -> str:
        with pytest.raises(BadInput) as error:
            run.sql(query)
        return error.value.line()

    for wrong in ("from nosuch", "from nosuch(1)", "from pg_tabels", "from duckdb_tabels()"):
        assert "does not exist! (line 1" in said(wrong) and "Did you mean" not in said(wrong)
    for wrong, right in (("from thread", "threads"), ("from flow_block", "flow_blocks"),
                         ("from flow_rang(0, 1, 2)", "flow_range"), ("select call_txt(1)", "call_text"),
                         ("select coun(1)", "count")):
        assert f'Did you mean "{right}"?' in said(wrong)


def test_the_empty_views_have_the_tables_types(run: Run, tmp_path: Path) -> None:
    BundleWriter(tmp_path / "empty.ptw").write()
    Bundle.create(tmp_path / "bare.ptw", Manifest())
    with Run(tmp_path / "empty.ptw") as empty, Run(tmp_path / "bare.ptw") as bare:
        for name in ("flow", "paths", "blocks", "gaps"):
            assert bare.ask(f"from {name}").types == empty.ask(f"from {name}").types


def copied(writer: BundleWriter, tmp_path: Path) -> Path:
    shutil.copytree(writer.path, tmp_path / "copy.ptw")
    return tmp_path / "copy.ptw"


def test_a_corrupt_table_fails_alone(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    (path / "tables/profile/0.parquet").write_bytes(b"PAR1 what was this PAR1")
    with Run(path) as run:
        assert "profile/0.parquet: is corrupt" in run.missing["profile"]
        assert run.sql("select count(*) from flow").rows() == [(len(writer.flow),)]
        for query in ("from profile", "select count(*) from profile", "from profile join stacks using (stack)"):
            with pytest.raises(BadInput, match=r"^[^ ]*.*profile/0\.parquet: is corrupt.*merge the run again$"):
                run.sql(query).rows()
        assert "cannot be read" not in repr(run)
        assert "is corrupt" in repr(run)


def test_data_that_is_corrupt_inside_a_good_file_is_an_error_not_an_answer(writer: BundleWriter,
                                                                           tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    file = path / "tables/flow/0.parquet"
    data = bytearray(file.read_bytes())
    data[4:len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)
    with Run(path) as run, pytest.raises(BadInput) as error:
        run.sql("select sum(seq), sum(path) from flow").rows()
    assert "\n" not in error.value.line()


def test_a_page_that_cannot_be_made_out_is_the_table_s_fault_not_the_query_s(writer: BundleWriter,
                                                                           tmp_path: Path) -> None:
    file = copied(writer, tmp_path) / "tables/flow/0.parquet"
    data = bytearray(file.read_bytes())
    data[4:len(data) // 2] = bytes(byte ^ 0x5a for byte in data[4:len(data) // 2])
    file.write_bytes(data)
    with Run(file.parents[2]) as run, pytest.raises(BadInput, match=r"is corrupt.*merge the run again") as error:
        run.sql("select sum(seq), sum(path) from flow").rows()
    assert error.value.line().isprintable()


def test_a_table_with_other_columns_is_refused(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    shutil.copy(path / "tables/clock/0.parquet", path / "tables/flow/0.parquet")
    with Run(path) as run:
        assert "no column path" in run.missing["flow"]


def test_links_are_not_followed(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    target = tmp_path / "elsewhere.parquet"
    (path / "tables/flow/0.parquet").rename(target)
    (path / "tables/flow/0.parquet").symlink_to(target)
    with Run(path) as run:
        assert run.ask("from flow").rows() == []
        assert "was not made" in run.missing["flow"]


def test_a_table_may_be_in_several_files_and_half_written_ones_do_not_count(writer: BundleWriter,
                                                                            tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    bundle = Bundle.open(path)
    rows = rows_of(bundle, FLOW)
    for number, part in enumerate((rows[:10], rows[10:])):
        put(bundle, FLOW, part, f"{number}.parquet")
    (path / "tables/flow/.2.parquet.partial").write_bytes(b"half")
    with Run(path) as run:
        assert run.sql("select count(*) from flow").rows() == [(len(rows),)]


def test_a_newer_format_is_refused(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    manifest = Manifest.load(path / "run.json")
    manifest.format_version = 99
    manifest.save(path / "run.json")
    with pytest.raises(BadInput, match="newer"):
        Run(path)


def test_a_recording_that_broke_off_opens_and_says_so(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    manifest = Manifest.load(path / "run.json")
    manifest.state = State.RECORDING
    manifest.save(path / "run.json")
    with Run(path) as run:
        assert "did not end orderly" in repr(run)
        assert run.sql("select count(*) from flow").rows()[0][0] > 0


def test_a_run_shows_itself_and_escapes_what_others_named(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    manifest = Manifest.load(path / "run.json")
    manifest.command = ["<script>alert(1)</script>", "\x1b[31m"]
    manifest.save(path / "run.json")
    with Run(path) as run:
        text, page = repr(run), run._repr_html_()
        assert "flow" in text and str(len(writer.flow)) in text and "soft" in text
        assert "\x1b" not in text + page
        assert "<script>" not in page and "&lt;script&gt;" in page
        shown = run.sql("select '<b>' as \"<i>\", '\x1b[2J' as b, [1, null] as c, null as d")
        assert "<b>" not in shown._repr_html_() and "<i>" not in shown._repr_html_()
        assert "\x1b" not in repr(shown)


def test_losses_are_shown(writer: BundleWriter, tmp_path: Path) -> None:
    path = copied(writer, tmp_path)
    bundle = Bundle.open(path)
    ledger = bundle.ledger()
    ledger.add("trace/0", "bytes", stored=10, lost={"buffer full": 3})
    bundle.save_ledger(ledger)
    with Run(path) as run:
        assert "3 bytes of trace/0: buffer full" in repr(run)


def test_closing_gives_everything_back(writer: BundleWriter) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with Run(writer.path) as run:
            run.sql("from flow").rows()
            spill = Path(run._spill.name)
        assert not spill.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_text_is_made_safe_for_terminals() -> None:
    assert safe("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert safe("größe 漢字") == "größe 漢字"
    assert cell([1, None, "x"]) == "[1, NULL, x]"
    assert cell(b"\x01\xff") == "01ff"


def test_tables_align_numbers_right_and_fit_a_terminal() -> None:
    rows = [("a" * 100, 1), ("漢字", 20000)]
    table = TextTable(["name", "n"], [False, True], rows, limit=40)
    lines = [*table.header(), *table.lines(rows)]
    assert all(len(line) <= 40 for line in lines)
    assert lines[2].endswith("    1") and lines[3].endswith("20000") and "…" in lines[2]
    wide = TextTable(["name", "n"], [False, True], rows)
    assert "a" * 100 in next(iter(wide.lines(rows)))


@pytest.mark.parametrize("limit", [None, 40, 200])
@pytest.mark.parametrize("seed", range(3))
def test_batches_of_rows_are_written_as_rows_one_by_one_are(seed: int, limit: int | None) -> None:
    for rows in (0, 1, 200):
        table = every_type(random.Random(seed), rows)
        for order in (table.column_names, table.column_names[::-1]):
            chosen = table.select(order)
            batch = chosen.combine_chunks().to_batches()[0] if rows else pa.RecordBatch.from_pylist([], chosen.schema)
            one_by_one = list(tuples(batch))
            assert len(one_by_one) == rows
            numeric = [name in ("i", "u", "real", "sum") for name in order]
            table_of = TextTable(order, numeric, one_by_one[:20], limit,  # wider ones come later
                                 [name == "u" for name in order])
            written = table_of.text(batch)
            assert written == "".join(f"{line}\n" for line in table_of.lines(one_by_one))
            assert not rows or written != "".join(f"{line}\n" for line in table_of.lines(one_by_one[1:])), "control"


def test_addresses_are_hexadecimal_where_they_are_read_and_numbers_where_they_are_used(
        run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sql = ("select 4660::ubigint as address, 4660::ubigint as size, 4660::bigint as page, 'x' as ip "
           "union all select null, 1, 2, null")
    result = run.sql(sql)
    assert repr(result).split("\n")[2:] == [" 0x1234  4660  4660  x", "            1     2"]
    assert ">0x1234<" in result._repr_html_() and result.rows()[0] == (4660, 4660, 4660, "x")
    shown = {}
    for form in ("table", "csv", "json"):
        assert main(["query", str(run.path), sql, "--format", form]) == 0
        shown[form] = capfdbinary.readouterr().out.decode().splitlines()
    assert shown["table"][2:] == [" 0x1234  4660  4660  x", "            1     2"]
    assert shown["csv"][1] == '4660,4660,4660,"x"'
    assert shown["json"][0] == '{"address":4660,"size":4660,"page":4660,"ip":"x"}'


def test_texts_ask_once_for_what_is_the_same_and_say_missing_for_what_is_missing() -> None:
    asked: list[object] = []

    def shown(value: object) -> str:
        asked.append(value)
        return f"<{value}>"

    assert texts(pa.array(["a", None, "a", "b"]), shown).to_pylist() == ["<a>", "<None>", "<a>", "<b>"]
    assert sorted(map(str, asked)) == ["None", "a", "b"]
    asked.clear()
    many = pa.DictionaryArray.from_arrays(pa.array([1, None, 1], pa.int32()), pa.array([str(n) for n in range(9)]))
    assert texts(many, shown).to_pylist() == ["<1>", "<None>", "<1>"] and len(asked) < 4
    assert texts(pa.array([7, None], pa.int32()), shown).to_pylist() == ["7", "<None>"]
