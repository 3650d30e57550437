# SPDX-License-Identifier: MIT
"""Exports, each read by another's reader and held against the run's own answers."""

from __future__ import annotations

import io
import json
import random
import subprocess
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gprof2dot
import networkx
import pyarrow as pa
import pydot
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto_protos
from prov.model import ProvAssociation, ProvCommunication, ProvDocument, ProvGeneration, ProvUsage

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import EDGES, PROFILE, THUNKS, TRANSFERS
from ptweave.merge import Run, merge_run
from ptweave.merge.exports import chrome, collapsed, dot, graphml, nodes, perfetto, prov, speedscope
from ptweave.merge.exports.stacks import Stacks, Weight
from ptweave.merge.render import safe
from support import trace_processor
from support.bundle_writer import BundleWriter, put
from support.hand_over import write_hand_over

HOSTILE = 'work(std::<"x">, \x1b[31m;\n\\&amp;{|}\ufffe)'
LOCK = 0x5000
PATH = 'in<&>"\\\n;.txt'


def written(folder: Path) -> Bundle:
    """Two threads that call hostile names, wait for each other, make system calls, read and write files."""
    writer = BundleWriter(folder / "run.ptw", cut=7)
    start = writer.block("main", "call")
    after = writer.block("main", "syscall")
    inner = writer.block(HOSTILE, "call", at=0)
    inner_end = writer.block(HOSTILE, "return")
    deep = writer.block("deep", "return", at=0)
    for thread, end in ((0, 5000), (1, 4500)):
        writer.task(thread, tid=100 + thread, begin=0, end=end, creator=100 * thread)
        for turn in range(20):
            writer.moment(thread, len(writer.executed.get(thread, [])), 100 * turn)
            writer.run(thread, [start, inner, deep, inner_end, after])
        for index in range(20):
            writer.syscall(thread, index, enter=90 + 100 * index, leave=95 + 100 * index,
                           ip=writer.blocks[after].last_ip, number=index % 3)
    writer.gap(1, 40)

    write_hand_over(writer, LOCK)
    bundle = writer.write()
    bundle.manifest.clocks.realtime_ns = 1_700_000_000_123_456_789
    bundle.save_manifest()
    merge_run(bundle, calls=True)
    put(bundle, TRANSFERS, [
        {"transfer": 0, "kind": "read", "input": True, "thread": 0, "thunk": 1, "path": PATH, "offset": 0, "size": 10},
        {"transfer": 1, "kind": "write", "input": False, "thread": 1, "thunk": 1, "path": "out", "size": 3},
        {"transfer": 2, "kind": "read", "input": True, "thread": 1, "thunk": 2, "path": PATH, "size": 1}])
    with Run(bundle.path) as run:
        rows = [row for row in run.sql("from edges").arrow().to_pylist() if row["transfer"] is None]
    rows.append({"kind": "data", "from_thread": 0, "from_thunk": 1, "from_until": 3, "to_thread": 1, "to_thunk": 1,
                 "to_until": 2147483647, "page": 0x7000, "bytes": [{"offset": 1, "length": 5}]})
    rows.append({**rows[-1], "page": 0x8000})
    rows += [{"kind": "input", "to_thread": 0, "to_thunk": 1, "to_until": 1, "transfer": 0},
             {"kind": "output", "from_thread": 1, "from_thunk": 1, "from_until": 1, "transfer": 1},
             {"kind": "input", "to_thread": 1, "to_thunk": 2, "to_until": 2, "transfer": 2}]
    put(bundle, EDGES, sorted(rows, key=lambda row: ["control", "sync", "data", "input", "output"].index(row["kind"])))
    return bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return written(tmp_path_factory.mktemp("exports"))


@pytest.fixture
def run(bundle: Bundle) -> Iterator[Run]:
    with Run(bundle.path) as opened:
        yield opened


def exported(export: Callable[..., list[str]], run: Run, *args: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    assert export(run, out, *args, **options) == []
    return out.getvalue()


def timeline(run: Run) -> Counter[tuple[int, str, str, int, int]]:
    """What a picture of the timeline has to show: thread, kind, name, begin, end."""
    return Counter(run.sql(f"select thread, what, coalesce(detail, what), t_begin, t_end from ({_TIMELINE})"))


_TIMELINE = """
select t as t_begin, t + wait as t_end, thread, case thunk when 0 then 'begin' else 'operation' end as what,
       operation as detail from thunks
union all
select t + wait, coalesce((select min(t) from thunks as next where next.thread = thunks.thread
                           and next.thunk = thunks.thunk + 1),
                          (select t_end from threads where threads.thread = thunks.thread)), thread, 'run', null
from thunks
union all select t_enter, t_exit, thread, 'system call', name from syscalls
union all select t, t, thread, 'gap', kind from gaps where t is not null"""


def flows(run: Run) -> Counter[tuple[int, int, int, int]]:
    return Counter(run.sql("select from_thread, from_thunk, to_thread, to_thunk from edges where kind = 'sync'"))


# --- timelines --------------------------------------------------------------------------------------------------------


class Tracks:
    """A Perfetto trace as its own classes read it: closed slices by track, in the order of time."""

    def __init__(self, data: bytes) -> None:
        trace = perfetto_protos.Trace()
        trace.ParseFromString(data)
        self.packets = trace.packet
        self.tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in self.packets
                       if packet.HasField("track_descriptor")}
        self.slices: list[tuple[int, Any, int, int]] = []  # track, event, begin, end
        still_open: dict[int, list[tuple[Any, int]]] = {}
        kind = perfetto_protos.TrackEvent.Type
        for packet in sorted((one for one in self.packets if one.HasField("track_event")),
                             key=lambda one: one.timestamp):
            event = packet.track_event
            if event.type == kind.TYPE_SLICE_BEGIN:
                still_open.setdefault(event.track_uuid, []).append((event, packet.timestamp))
            elif event.type == kind.TYPE_SLICE_END:
                begun, begin = still_open[event.track_uuid].pop()
                self.slices.append((event.track_uuid, begun, begin, packet.timestamp))
            else:
                self.slices.append((event.track_uuid, event, packet.timestamp, packet.timestamp))
        assert not any(still_open.values())

    def thread(self, track: int) -> int:
        """The thread a track is of, by its name."""
        descriptor = self.tracks[track]
        while not descriptor.HasField("thread"):
            descriptor = self.tracks[descriptor.parent_uuid]
        return int(descriptor.thread.thread_name.split()[0])


def test_perfettos_own_classes_read_the_timeline(run: Run) -> None:
    tracks = Tracks(exported(perfetto.export, run))
    shown = Counter((tracks.thread(track), ",".join(event.categories), event.name, begin, end)
                    for track, event, begin, end in tracks.slices)
    assert shown == Counter({(thread, what, safe(name), begin, end): count for (thread, what, name, begin, end), count
                             in timeline(run).items()})
    assert {(one.thread.pid, one.thread.tid) for one in tracks.tracks.values() if one.HasField("thread")} == {
        (100, 100), (100, 101)}
    snapshot = next(packet.clock_snapshot for packet in tracks.packets if packet.HasField("clock_snapshot"))
    assert snapshot.primary_trace_clock == perfetto_protos.BUILTIN_CLOCK_MONOTONIC
    assert tracks.packets[1].trace_packet_defaults.timestamp_clock_id == snapshot.primary_trace_clock


def test_perfettos_flows_are_the_sync_edges(run: Run) -> None:
    ends: dict[int, list[str]] = {}
    for _, event, _, _ in sorted(Tracks(exported(perfetto.export, run)).slices, key=lambda one: one[2]):
        facts = {one.name: one.string_value for one in event.debug_annotations}
        for flow in event.flow_ids:
            ends.setdefault(flow, []).append(facts["thunk"])
    found = Counter(tuple(int(part) for end in pair for part in end.split(".")) for pair in ends.values())
    assert found == flows(run) and len(found) >= 3


def test_perfetto_shows_calls_within_those_that_made_them(run: Run) -> None:
    tracks = Tracks(exported(perfetto.export, run, with_calls=True))
    shown = Counter((tracks.thread(track), event.name, begin, end) for track, event, begin, end in tracks.slices
                    if not event.categories)
    calls = Counter((thread, safe(function), enter, leave) for thread, function, enter, leave in run.sql(
        "select thread, coalesce(function, '[unknown]'), t_enter, t_exit from calls"))
    assert shown == calls and any(name == safe(HOSTILE) for _, name, _, _ in shown)


def test_a_timeline_of_a_thread_and_a_span_of_time_has_nothing_else(run: Run) -> None:
    tracks = Tracks(exported(perfetto.export, run, nodes_extent(1, 300, 500), with_calls=True))
    assert {tracks.thread(track) for track, _, _, _ in tracks.slices} == {1}
    assert tracks.slices and all(begin <= 500 and end >= 300 for _, _, begin, end in tracks.slices)


SLICES = """
select thread.name, slice.category, slice.name, ts, dur from slice
join {} as track on track.id = slice.track_id join thread using (utid)"""
FLOWS = "select count(*) from flow"
PROBLEMS = "select name, value from stats where severity <> 'info' and value > 0"


def test_the_trace_processor_reads_the_perfetto_trace(run: Run) -> None:
    own, below, tied, problems = trace_processor.ask(
        exported(perfetto.export, run), SLICES.format("thread_track"),
        "select parent.name, slice.category, slice.name, ts, dur from slice join track on track.id = track_id "
        "join thread_track as above on above.id = track.parent_id join thread as parent using (utid)", FLOWS, PROBLEMS)
    shown = Counter((int(name.split()[0]), what, detail, ts, ts + dur) for name, what, detail, ts, dur in
                    {*own, *below})
    assert shown == Counter({(thread, what, safe(name), begin, end): count
                             for (thread, what, name, begin, end), count in timeline(run).items()})
    assert tied == [(flows(run).total(),)] and problems == []


def test_the_trace_processor_reads_chromes_json(run: Run) -> None:
    own, calls, tied, problems = trace_processor.ask(
        exported(chrome.export, run), SLICES.format("thread_track"),
        "select count(*), sum(dur) from slice where category = 'system call'", FLOWS, PROBLEMS)
    start = run.manifest.clocks.t0_ns
    shown = Counter((int(name.split()[0]), what, detail, ts + start, ts + start + dur)
                    for name, what, detail, ts, dur in own)
    wanted = timeline(run)
    assert shown == Counter({key: count for key, count in wanted.items() if key[1] != "system call"})
    system_calls = [key for key in wanted.elements() if key[1] == "system call"]
    assert calls == [(len(system_calls), sum(key[4] - key[3] for key in system_calls))]
    assert tied == [(flows(run).total(),)] and problems == []


def nodes_extent(thread: int, begin: int, end: int) -> Any:
    from ptweave.merge.exports.spans import Extent

    return Extent(thread, begin, end)


def test_chromes_events_are_the_timeline(run: Run) -> None:
    document = json.loads(exported(chrome.export, run), parse_float=lambda text: int(text.replace(".", "")))
    events = document["traceEvents"]
    thread = {one["tid"]: int(one["args"]["name"].split()[0]) for one in events if one["name"] == "thread_name"}
    opened = {one["id"]: one for one in events if one["ph"] == "b"}
    start = document["otherData"]["t0_ns"]
    shown: Counter[tuple[int, str, str, int, int]] = Counter()
    for one in events:
        if one["ph"] in "Xei":
            begin = opened[one["id"]]["ts"] if one["ph"] == "e" else one["ts"]
            end = one["ts"] + one.get("dur", 0)
            shown[thread[one["tid"]], one["cat"], one["name"], begin + start, end + start] += 1
    assert shown == timeline(run)
    ids = [Counter(one["id"] for one in events if one["ph"] == kind) for kind in "sf"]
    assert ids[0] == ids[1] and ids[0].total() == flows(run).total()


# --- flame graphs -----------------------------------------------------------------------------------------------------


def own(run: Run, column: str) -> Counter[str]:
    """What ran in each function itself."""
    return Counter(dict(run.sql(f"select coalesce(function, '[unknown]'), sum({column})::bigint from profile "
                                "join stacks using (stack) group by 1").rows()))


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_stacks_in_any_order_are_those_that_their_parents_lead_to(run: Run, seed: int) -> None:
    parents = {stack: (parent, name) for stack, parent, name in run.sql(
        "select stack, parent, coalesce(function, '[unknown]') from stacks")}
    draw = random.Random(seed)
    asked = draw.choices(sorted(parents), k=200) + sorted(parents)
    stacks = Stacks(run)
    found = [([stacks.names[index] for index in frames], count)
             for frames, count in stacks.frames((stack, number) for number, stack in enumerate(asked))]

    def climbed(stack: int | None) -> list[str]:
        return [] if stack is None else [*climbed(parents[stack][0]), parents[stack][1]]

    assert found == [(climbed(stack), number) for number, stack in enumerate(asked)]
    assert [frames for frames, _ in found] != [climbed(stack) for stack in asked[1:] + asked[:1]], "control"


def test_gprof2dot_reads_the_collapsed_stacks(run: Run) -> None:
    text = exported(collapsed.export, run).decode()
    read = gprof2dot.CollapseParser(io.StringIO(text)).parse()
    total = sum(own(run, "instructions").values())
    found = {one.name: round(one[gprof2dot.TIME_RATIO] * total) for one in read.functions.values()}
    assert found == {collapsed.frame(name): count for name, count in own(run, "instructions").items()}
    calls = {(one.name, read.functions[callee].name) for one in read.functions.values() for callee in one.calls}
    assert ("main", collapsed.frame(HOSTILE)) in calls and (collapsed.frame(HOSTILE), "deep") in calls


def test_a_thread_of_its_own_is_collapsed_alone(run: Run) -> None:
    for thread in (0, 1):
        text = exported(collapsed.export, run, Weight.CALLS, thread=thread).decode()
        assert sum(int(line.rpartition(" ")[2]) for line in text.splitlines()) == run.sql(
            "select sum(calls)::bigint from profile where thread = ?", thread).rows()[0][0]


@pytest.mark.parametrize("weight", list(Weight))
def test_speedscopes_samples_weigh_what_ran(run: Run, weight: Weight) -> None:
    document = json.loads(exported(speedscope.export, run, weight))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    found: Counter[str] = Counter()
    for profile in document["profiles"]:
        assert profile["type"] == "sampled" and len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        for sample, count in zip(profile["samples"], profile["weights"], strict=True):
            found[names[sample[-1]]] += count
    assert found == Counter({name: count for name, count in own(run, weight.value).items() if count})
    assert len(document["profiles"]) == 2 and HOSTILE in names


def test_speedscopes_calls_open_and_close_in_order(run: Run) -> None:
    document = json.loads(exported(speedscope.export, run, with_calls=True))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    calls: Counter[tuple[str, int, int]] = Counter()
    for profile in document["profiles"]:
        still_open, last = [], 0
        for event in profile["events"]:
            assert event["at"] >= last
            last = event["at"]
            if event["type"] == "O":
                still_open.append((event["frame"], event["at"]))
            else:
                frame, begin = still_open.pop()
                assert frame == event["frame"]
                calls[names[frame], begin, event["at"]] += 1
        assert not still_open and profile["endValue"] == last
    assert calls == Counter(run.sql("select coalesce(function, '[unknown]'), t_enter, t_exit from calls"))


# --- the graph --------------------------------------------------------------------------------------------------------

# as drawn: an edge between ranges goes from the last thunk it may lead from to the first it may lead to
DRAWN = [("sync", "t0.2", "t1.0"), ("sync", "t0.3", "t1.1"), ("sync", "t1.2", "t0.4"), ("data", "t0.3", "t1.1"),
         ("input", "x0", "t0.1"), ("output", "t1.1", "x1"), ("input", "x2", "t1.2")]
CONTROL = [("control", f"t{thread}.{thunk}", f"t{thread}.{thunk + 1}") for thread, count in ((0, 5), (1, 3))
           for thunk in range(count - 1)]


def drawn(run: Run) -> Counter[tuple[str, str, str]]:
    """The edges that are to be drawn, with the sync edges that the merge made."""
    sync = [("sync", f"t{a}.{b}", f"t{c}.{d}") for a, b, c, d in flows(run).elements()]
    return Counter(CONTROL + sync + [edge for edge in DRAWN if edge[0] != "sync"])


def test_networkx_reads_the_graphml(run: Run) -> None:
    graph = networkx.read_graphml(io.BytesIO(exported(graphml.export, run, nodes.everything())), force_multigraph=True)
    assert Counter((data["kind"], source, target) for source, target, data in graph.edges(data=True)) == drawn(run)
    assert {name for name, data in graph.nodes(data=True) if data["kind"] == "thunk"} == {
        f"t{thread}.{thunk}" for thread, thunk in run.sql("select thread, thunk from thunks")}
    assert graph.nodes["x0"]["path"] == safe(PATH) and graph.nodes["x0"]["input"] is True
    assert graph.nodes["t0.1"]["operation"] == "mutex_lock" and graph.nodes["t0.1"]["t"] == 100
    (data,) = [data for _, _, data in graph.edges(data=True) if data["kind"] == "data"]
    assert (data["pages"], data["bytes"]) == (2, 10)


def test_graphviz_and_pydot_read_the_dot(run: Run) -> None:
    text = exported(dot.export, run, nodes.everything())
    done = subprocess.run(["dot", "-Tjson0"], input=text, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    document = json.loads(done.stdout)
    name = {one["_gvid"]: one["name"] for one in document["objects"]}
    label = {one["name"]: one.get("label", "") for one in document["objects"]}
    found = Counter((edge["class"], name[edge["tail"]], name[edge["head"]]) for edge in document["edges"])
    assert found == drawn(run)
    shown = safe(PATH.replace("\n", "\\n")).replace("\\", "\\\\")
    assert label["x0"].startswith(f"read {shown}\\n10 bytes")
    (graph,) = pydot.graph_from_dot_data(text.decode())
    assert Counter((edge.get("class").strip('"'), edge.get_source().strip('"'), edge.get_destination().strip('"'))
                   for edge in graph.get_edges()) == drawn(run)


def test_prov_reads_the_document(run: Run) -> None:
    document = ProvDocument.deserialize(io.BytesIO(exported(prov.export, run, nodes.everything())), format="json")

    def pairs(kind: type) -> Counter[tuple[str, ...]]:
        return Counter(tuple(value.localpart for _, value in one.formal_attributes[:2] if value is not None)
                       for one in document.get_records(kind))

    def node(name: str) -> str:
        return "thunk_" + name[1:].replace(".", "_") if name[0] == "t" else "transfer_" + name[1:]

    wanted = drawn(run)
    assert pairs(ProvUsage) == Counter((node(b), node(a)) for kind, a, b in wanted if kind == "input")
    assert pairs(ProvGeneration) == Counter((node(b), node(a)) for kind, a, b in wanted if kind == "output")
    assert pairs(ProvCommunication) == Counter((node(b), node(a)) for kind, a, b in wanted.elements()
                                               if kind in ("control", "sync", "data"))
    assert len(list(document.get_records(ProvAssociation))) == 8
    (first,) = document.get_record("run:thunk_0_1")
    assert first.get_startTime().isoformat() == "2023-11-14T22:13:20.123456+00:00"
    (file,) = document.get_record("run:file_0")
    assert {str(value) for value in file.get_attribute("ptweave:path")} == {PATH}


def test_a_graph_is_bounded_by_lineage_nearness_or_a_query(run: Run) -> None:
    def thunks(chosen: nodes.Chosen) -> set[str]:
        assert nodes.count(run, chosen) == len(list(nodes.thunks(run, chosen)))
        graph = networkx.read_graphml(io.BytesIO(exported(graphml.export, run, chosen)), force_multigraph=True)
        return {name for name in graph.nodes if name[0] == "t"}

    assert thunks(nodes.around(run, "1.1", 0)) == {"t1.1"}
    assert thunks(nodes.around(run, "1.0", 1)) == {"t1.0", "t1.1"} | {
        f"t{a}.{b}" for a, b, c, d in flows(run) if (c, d) == (1, 0)}
    assert thunks(nodes.by_query(run, "select thread, thunk, 'more' from thunks where thread = 1;")) == {
        "t1.0", "t1.1", "t1.2"}
    lineage = {f"t{row['thread']}.{thunk}" for row in run.lineage(to="thunk:1.1").arrow().to_pylist()
               if row["what"] == "thunks" for thunk in range(row["first_thunk"], row["last_thunk"] + 1)}
    assert thunks(nodes.by_lineage(run, to="thunk:1.1")) == lineage
    only = networkx.read_graphml(io.BytesIO(exported(
        graphml.export, run, nodes.by_query(run, "select 0 as thread, 1 as thunk"))), force_multigraph=True)
    assert set(only.nodes) == {"t0.1", "x0"}


def test_wrong_choices_are_said(run: Run) -> None:
    with pytest.raises(BadInput, match="no columns thread and thunk"):
        nodes.by_query(run, "select thread from thunks")
    with pytest.raises(BadInput, match="correct the query"):
        nodes.by_query(run, "select thread, thunk from nowhere")
    for name in ("9.9", "x"):
        with pytest.raises(BadInput, match="thunk"):
            nodes.around(run, name, 1)


# --- the command ------------------------------------------------------------------------------------------------------

FORMATS = {"perfetto": ".perfetto-trace", "chrome": ".trace.json", "speedscope": ".speedscope.json",
           "collapsed": ".folded", "prov": ".prov.json", "graphml": ".graphml", "dot": ".dot"}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_a_file_beside_you_or_goes_to_a_pipe(
        bundle: Bundle, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", form, str(bundle.path)]) == 0
    made = capfdbinary.readouterr()
    assert made.out == b"" and f"run{FORMATS[form]}: exported".encode() in made.err
    assert [path.name for path in tmp_path.iterdir()] == ["run" + FORMATS[form]]
    assert main(["export", form, str(bundle.path), "-q", "-o", "-"]) == 0
    piped = capfdbinary.readouterr()
    assert piped.err == b"" and piped.out == (tmp_path / ("run" + FORMATS[form])).read_bytes()


def test_more_thunks_than_a_drawing_may_have_are_refused(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "dot", str(bundle.path), "--limit", "7", "-o", "-"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and "8 thunks, more than 7" in err and len(err.splitlines()) == 1


def test_what_a_run_lacks_is_said_and_the_rest_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer = BundleWriter(tmp_path / "bare.ptw")
    writer.task(0)
    block = writer.block("main", "syscall")
    writer.run(0, [block] * 5)
    writer.syscall(0, 0, enter=5, leave=7, ip=writer.blocks[block].last_ip)
    made = writer.write()
    merge_run(made)
    assert main(["export", "chrome", str(made.path), "-o", "-"]) == 1
    out, err = capfd.readouterr()
    assert "thunks: was not made" in err and len(err.splitlines()) == 1
    assert [one["name"] for one in json.loads(out)["traceEvents"] if one["ph"] == "b"] == ["call_0"]
    for form in ("prov", "graphml", "dot"):
        assert main(["export", form, str(made.path), "-o", str(tmp_path / "x")]) == 2
        out, err = capfd.readouterr()
        assert out == "" and "thunks" in err and len(err.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_a_corrupt_table_is_one_line_and_leaves_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = written(tmp_path)
    (made.tables / "profile" / "0.parquet").write_bytes(b"PAR1 no")
    assert main(["export", "collapsed", str(made.path), "-o", str(tmp_path / "x")]) == 2
    out, err = capfd.readouterr()
    assert out == "" and "is corrupt" in err and len(err.splitlines()) == 1 and not (tmp_path / "x").exists()
    put(made, PROFILE, [{"thread": 0, "stack": 1 << 30, "calls": 1, "instructions": 1, "blocks": 1, "time": 1}])
    assert main(["export", "collapsed", str(made.path), "-o", str(tmp_path / "x")]) == 2
    assert "has no stack" in capfd.readouterr().err


class Nowhere(io.RawIOBase):
    """Counts bytes."""

    size = 0

    def write(self, data: Any) -> int:
        self.size += len(data)
        return len(data)


@pytest.mark.parametrize("export", [perfetto.export, chrome.export, lambda run, out: graphml.export(
    run, out, nodes.everything())])
def test_memory_does_not_grow_with_the_run(export: Callable[..., list[str]], tmp_path: Path) -> None:
    taken = []
    for count in (10_000, 40_000):
        bundle = BundleWriter(tmp_path / f"{count}.ptw").write()
        merge_run(bundle)
        put(bundle, THUNKS, [])
        rows = pa.table({name: pa.nulls(count, kind) for name, kind in zip(THUNKS.schema.names, THUNKS.schema.types,
                                                                            strict=True)})
        for name, values in (("thread", [0] * count), ("thunk", range(count)), ("t", range(0, 5 * count, 5))):
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values, THUNKS.schema.field(
                name).type))
        from ptweave.data.table_writer import write_table

        write_table(bundle.tables, THUNKS, rows)
        out = Nowhere()
        with Run(bundle.path) as run:
            tracemalloc.start()
            export(run, out)
            taken.append((tracemalloc.get_traced_memory()[1], out.size))
            tracemalloc.stop()
    (small, little), (large, much) = taken
    assert much > 3.5 * little and large < small + 1_200_000  # 40 bytes a row would not pass
