# SPDX-License-Identifier: MIT
"""Reports of made-up runs: what they show, what they say is missing, and that nothing of a run is markup or script."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.merge import Run, merge_run
from ptweave.merge.report import Report, collect, contents, render
from ptweave.merge.report.source import Listing, Sources
from support.browser import chromium, shown
from support.bundle_writer import BundleWriter

LOCK = 0x5000
HOSTILE = ("</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 2'>",
           "{{ 7 * 191 }}", "\x1b[2J\u202eevil", "'\"><svg onload=window.hacked=3>")


def written(folder: Path, names: tuple[str, ...] = ("main", "work", "work2"), *, thunks: bool = True) -> Bundle:
    """Two threads, calls between functions of these names, a lock that one waits for, system calls, a gap."""
    writer = BundleWriter(folder / "run.ptw")
    writer.manifest.command = ["./prog", *names]
    call, first = writer.block(names[0], "call"), writer.block(names[1], "return")
    second = writer.block(names[2], "jump")
    for thread, end in ((0, 1000), (1, 900)):
        writer.task(thread, tid=100 + thread, begin=0, end=end, creator=100 * thread)
        writer.run(thread, [call, first, second] * 40)
        writer.moment(thread, 0, 0)
        writer.syscall(thread, None, enter=20 + thread, leave=30, number=1)
    writer.gap(0, 60)
    for name in names[3:]:
        writer.run(0, [writer.block(name, "jump")])
    if thunks:
        for thread, operation, t, wait, clock, acquire, release, at in (
                (0, "start", 10, 0, [1], False, False, 0), (0, "mutex_lock", 100, 5, [2], True, False, LOCK),
                (0, "create", 150, 10, [3], False, True, 0x9000), (0, "mutex_unlock", 400, 5, [4], False, True, LOCK),
                (0, "join", 450, 460, [5, 3], True, False, 0x9000), (1, "start", 170, 0, [2, 1], True, False, 0x9000),
                (1, "mutex_lock", 200, 215, [3, 2], True, False, LOCK),
                (1, "exit", 880, 0, [3, 3], False, True, 0x9000)):
            writer.thunk(thread, t=t, wait=wait, operation=operation, clock=clock, acquire=acquire, release=release,
                         object_=at)
    bundle = writer.write()
    merge_run(bundle)
    return bundle


def report_of(bundle: Bundle, folders: list[Path] | None = None) -> Report:
    with Run(bundle.path) as run:
        return collect(run, folders)


def embedded(page: str) -> Any:
    """The page's data as another reader than the page's script finds it."""
    return json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[0])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def page_of(bundle: Bundle, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render(report_of(bundle)))
    return path


def test_the_tables_are_those_of_the_questions(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    report = report_of(bundle)
    with Run(bundle.path) as run:
        hot = run.hot().rows()
        (lock,) = [row for row in run.contention().rows() if row[0] == LOCK]
        timeline = run.timeline().rows()
    shown_hot = report.parts["hot"].table
    assert shown_hot is not None and [row[0] for row in shown_hot.rows] == [row[0] for row in hot]
    waiting = report.parts["contention"].table
    assert waiting is not None and ["0x5000", "", "mutex_lock", "1", "2", "215 ns", "215 ns"] in [
        row[:7] for row in waiting.rows] and lock[5] == 215
    line = report.data["timeline"]
    assert line["complete"] and len(line["thread"]) == line["total"]
    drawn = Counter(zip(line["thread"], [line["begin"] + at for at in line["at"]], line["ns"], strict=True))
    assert drawn == Counter((row[3], row[0], row[2]) for row in timeline if row[0] is not None)


def test_a_wait_knows_who_released(tmp_path: Path) -> None:
    data = report_of(written(tmp_path)).data
    line = data["timeline"]
    waits = [(line["thread"][i], line["thunk"][i], *data["waits"][line["wait"][i]][:2])
             for i in range(line["total"]) if line["wait"][i] >= 0]
    assert (1, 1, 0, 1) in waits


def test_the_explorer_has_every_edge_but_control(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    graph = report_of(bundle).data["graph"]
    with Run(bundle.path) as run:
        edges = run.sql("select from_thread, from_thunk, to_thread, to_thunk from edges where kind != 'control'").rows()
    found = list(zip(*(graph["edges"][name] for name in ("from_thread", "from_thunk", "to_thread", "to_thunk")),
                     strict=True))
    assert edges and Counter(found) == Counter(edges)
    assert graph["focus"] in ([1, 1], [0, 4]), "a wait"


@pytest.mark.parametrize(("table", "parts"), [
    ("thunks", {"contention", "critical", "graph"}), ("edges", {"contention", "critical", "graph"}),
    ("profile", {"hot", "flame"}), ("syscalls", {"syscalls"}), ("gaps", {"gaps"}), ("flow", {"source"}),
    ("threads", {"threads", "timeline"})])
def test_without_a_table_the_rest_is_shown_and_a_broken_one_is_said(
        tmp_path: Path, capfd: pytest.CaptureFixture[str], table: str, parts: set[str]) -> None:
    bundle = written(tmp_path)
    before = {key for key, part in report_of(bundle).parts.items() if part.problem}
    assert before == {"races", "source"}
    shutil.rmtree(bundle.tables / table)
    assert {key for key, part in report_of(bundle).parts.items() if part.problem} == before | parts
    page = tmp_path / "page.html"
    assert main(["report", str(bundle.path), "-o", str(page)]) == 0
    assert f"table {table}: was not made" in page.read_text()
    (bundle.tables / table).mkdir()
    (bundle.tables / table / "0.parquet").write_bytes(b"PAR1 no")
    capfd.readouterr()
    status = main(["report", str(bundle.path), "-o", str(page)])
    err = capfd.readouterr().err
    assert status == 1 and "is corrupt" in err and all(line.startswith("ptweave: ") for line in err.splitlines())
    assert "is corrupt" in page.read_text()


def test_a_run_without_threads_has_a_timeline_of_its_system_calls(tmp_path: Path, browser: Browser) -> None:
    bundle = written(tmp_path, thunks=False)
    report = report_of(bundle)
    line = report.data["timeline"]
    assert set(line["kind"]) == {2} and line["total"] == 2
    assert any("without thunks, which was not made" in note for note in report.parts["timeline"].notes)
    with shown(browser, page_of(bundle, tmp_path)) as opened:
        assert opened.errors == [] and opened.page.is_visible("#timeline-rows")
        assert not opened.page.query_selector("#graph-part")


def test_a_long_run_is_cut_to_what_fits_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    browser: Browser) -> None:
    bundle = written(tmp_path)
    for name in ("SPANS", "NODES", "EDGES", "THREADS", "ROWS"):
        monkeypatch.setattr(contents, name, 1)
    monkeypatch.setattr(contents, "NODES", 6)
    report = report_of(bundle)
    line = report.data["timeline"]
    assert len(line["thread"]) == 1 and not line["complete"] and len(line["filled"]) == 1
    assert sum(sum(kind) for kind in line["filled"][0]) > 0
    assert len(report.data["graph"]["edges"]["kind"]) == 1
    notes = " ".join(note for part in report.parts.values() for note in part.notes)
    assert "one by one" in notes and "that executed most" in notes and "edges" in notes and "thunks:" in notes
    hot = report.parts["hot"].table
    assert hot is not None and hot.more and len(hot.rows) == 1
    with shown(browser, page_of(bundle, tmp_path)) as opened:
        assert opened.errors == []


# --- hostile names ---


def test_names_are_neither_markup_nor_script_nor_template(tmp_path: Path, browser: Browser) -> None:
    path = page_of(written(tmp_path, HOSTILE), tmp_path)
    with shown(browser, path) as opened:
        assert opened.page.evaluate("window.hacked") is None and opened.errors == []
        assert opened.page.locator("img, svg[onload]").count() == 0
        cells = opened.page.locator("td").all_inner_texts()
        assert HOSTILE[0] in cells and HOSTILE[2] in cells
        assert not any("\u202e" in cell or "\x1b" in cell for cell in cells)
        opened.page.fill("#flame-find", "script")
        assert "found" in opened.page.inner_text("#flame-found")


def test_control_the_same_names_unescaped_would_run(tmp_path: Path, browser: Browser) -> None:
    page = render(report_of(written(tmp_path, HOSTILE)))
    escaped = "&lt;/script&gt;&lt;script&gt;window.hacked = 1&lt;/script&gt;"
    assert escaped in page
    open_page = page.replace(escaped, HOSTILE[0])
    with_policy, without = tmp_path / "policy.html", tmp_path / "open.html"
    with_policy.write_text(open_page)
    without.write_text(re.sub(r"<meta http-equiv[^>]*>", "", open_page))
    with shown(browser, without) as opened:
        assert opened.page.evaluate("window.hacked") == 1
    with shown(browser, with_policy) as opened:
        assert opened.page.evaluate("window.hacked") is None, "the page's policy stops it even then"


def test_the_page_asks_for_nothing_but_itself(tmp_path: Path, browser: Browser) -> None:
    path = page_of(written(tmp_path), tmp_path)
    text = path.read_text()
    assert not re.findall(r'(?:src|href)="(?!#)', text) and "url(" not in text and "@import" not in text
    with shown(browser, path) as opened:
        assert opened.requests == [path.as_uri()] and opened.errors == []


# --- keyboard ---


def test_everything_can_be_reached_by_keyboard(tmp_path: Path, browser: Browser) -> None:
    path = page_of(written(tmp_path), tmp_path)
    with shown(browser, path) as opened:
        page = opened.page
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        assert {"timeline-box", "flame-box", "flame-find", "graph-find"} <= reached
        page.focus("#timeline-box")
        page.keyboard.press("w")
        assert "waited for thread" in opened.status("timeline")
        whole = page.inner_text("#timeline-command")
        page.keyboard.press("+")
        assert page.inner_text("#timeline-command") != whole
        page.keyboard.press("Enter")
        found = page.input_value("#graph-find")
        assert re.fullmatch(r"\d+\.\d+", found) and opened.status("graph").startswith(found)
        page.keyboard.press("Shift+Tab")
        page.locator("#graph-box .node.go").first.focus()
        page.keyboard.press("Enter")
        assert page.input_value("#graph-find") != found
        page.keyboard.press("Backspace")
        assert page.input_value("#graph-find") == found
        page.focus("#flame-box")
        first = opened.status("flame")
        page.keyboard.press("ArrowDown")
        second = opened.status("flame")
        assert first.startswith("all: 100.00 %") and second != first
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        assert opened.status("flame") == first
        assert opened.errors == []


def test_the_mouse_chooses_what_it_points_at(tmp_path: Path, browser: Browser) -> None:
    path = page_of(written(tmp_path), tmp_path)
    with shown(browser, path) as opened:
        page = opened.page
        box = page.locator("#timeline-rows").bounding_box()
        assert box is not None
        gutter, row = 190, 40
        at = box["x"] + gutter + (box["width"] - gutter - 14) * 0.3  # 0.3 of 1000 ns: thread 1 waits for the lock
        page.mouse.click(at, box["y"] + row + 15)
        assert "mutex_lock took 215 ns on 0x5000" in opened.status("timeline")
        page.locator("#flame-canvas").click(position={"x": 30, "y": 30})
        assert not opened.status("flame").startswith("all:")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(tmp_path: Path, browser: Browser, scheme: str) -> None:
    """WCAG 2, 1.4.3: a contrast of 4.5."""
    path = page_of(written(tmp_path), tmp_path)

    def luminance(text: str) -> float:
        parts = [int(text[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    with shown(browser, path, color_scheme=scheme) as opened:
        names = ["ink", "soft", "paper", "card", "hover", "flame", "flame-2", "flame-ink", "found", "found-ink",
                 "operation"]
        values = opened.page.evaluate(
            "names => names.map(name => getComputedStyle(document.documentElement)"
            ".getPropertyValue('--' + name).trim())", names)
    colours = {name: value if len(value) == 7 else "#" + "".join(2 * char for char in value[1:])
               for name, value in zip(names, values, strict=True)}
    for front, back in (("ink", "paper"), ("ink", "card"), ("ink", "hover"), ("soft", "paper"), ("soft", "card"),
                        ("flame-ink", "flame"), ("flame-ink", "flame-2"), ("found-ink", "found"), ("ink", "operation")):
        assert contrast(front, back) >= 4.5, (front, back, contrast(front, back))
    assert contrast("flame", "flame-2") < 4.5, "control"


# --- source ---


def test_source_is_read_below_the_given_folders_only(tmp_path: Path) -> None:
    secret, inside = tmp_path / "secret.c", tmp_path / "src" / "lib"
    secret.write_text("secret\n")
    inside.mkdir(parents=True)
    (inside / "a.c").write_text("one\ntwo\n")
    (inside / "link.c").symlink_to(secret)
    (inside / "binary.c").write_bytes(b"a\0b")
    (inside / "large.c").write_text("x" * 2_000_000)
    os.mkfifo(inside / "pipe.c")
    sources = Sources([tmp_path / "src"], 0)

    def read(name: str, counts: dict[int, tuple[int, int]] | None = None) -> Listing:
        listing = Listing(name, counts or {1: (1, 1)})
        sources.fill(listing)
        return listing

    assert read(str(inside / "a.c")).text == ["one", "two"] and read(str(inside / "a.c")).note == ""
    assert read("/built/elsewhere/lib/a.c").text == ["one", "two"]
    assert str(inside / "a.c") in read("./lib/a.c").note
    assert "shorter" in read(str(inside / "a.c"), {9: (1, 1)}).note
    for name in (str(secret), "../secret.c", str(inside / "link.c"), "/etc/passwd", "", "..", "lib/a\0.c"):
        assert read(name).text is None and "secret" not in read(name).note, name
    assert "no text" in read("lib/binary.c").note
    assert "larger" in read("lib/large.c").note and "no file" in read("lib/pipe.c").note
    assert "changed after" in _changed(inside / "a.c").note
    assert Sources([tmp_path], 0)._find(str(secret)) == secret, "control: there it is"


def _changed(path: Path) -> Listing:
    listing = Listing(str(path), {1: (1, 1)})
    Sources([path.parent], path.stat().st_mtime_ns - 1).fill(listing)
    return listing


# --- the command ---


def test_the_command_makes_the_file_whole_or_not_at_all(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(bundle.path), "-q"]) == 0
    assert embedded((tmp_path / "run.html").read_text())["threads"][1]["tid"] == 101
    assert main(["report", str(bundle.path), "-o", str(tmp_path / "none" / "r.html")]) == 3
    assert main(["report", str(bundle.path), "--source", str(tmp_path / "none")]) == 2
    assert main(["report", str(tmp_path / "none.ptw")]) == 2
    err = capfd.readouterr().err.splitlines()
    assert len(err) == 3 and all(line.startswith("ptweave: ") for line in err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "run.ptw"]


def test_the_command_says_what_it_made_unless_it_is_to_be_quiet(tmp_path: Path,
                                                                capfd: pytest.CaptureFixture[str]) -> None:
    path, page = str(written(tmp_path).path), str(tmp_path / "page.html")
    assert main(["report", path, "-o", page]) == 0
    assert capfd.readouterr() == ("", f"ptweave: {page}: made; open it in a browser\n")
    assert main(["report", path, "-o", page, "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
