# SPDX-License-Identifier: MIT
"""The report of a real run: what its pictures say is what the program is known to have done."""

from __future__ import annotations

import re
from pathlib import Path

from support.browser import chromium, shown
from support.command import compile_c, ptweave
from support.engine import PROGRAMS


def test_a_report_shows_the_locks_and_lines_of_the_program_that_ran(tmp_path: Path) -> None:
    """A hand-off: thread k waits for the lock that thread k - 1 holds, and nothing else waits so long."""
    source = tmp_path / "known_graph.c"
    source.write_bytes((PROGRAMS / "known_graph.c").read_bytes())
    (tmp_path / "check.h").write_bytes((PROGRAMS / "check.h").read_bytes())
    program = compile_c(source, tmp_path / "known_graph", "-g", "-Wl,-z,now")
    run, page = tmp_path / "run.ptw", tmp_path / "run.html"
    assert ptweave("wrap", "--access", "exact", "-o", run, "--", program, "handoff", cwd=tmp_path).status == 0
    done = ptweave("report", run, "-o", page, "--source", tmp_path)
    assert (done.status, done.err) == (0, f"ptweave: {page}: made; open it in a browser\n")
    with chromium() as browser, shown(browser, page) as opened:
        assert opened.errors == [] and opened.requests == [page.as_uri()]
        waits = set()
        opened.page.focus("#timeline-box")
        for _ in range(12):
            opened.page.keyboard.press("w")
            found = re.match(r"thread (\d+), .*mutex_lock .*waited for thread (\d+)", opened.status("timeline"))
            if found:
                waits.add((int(found[1]), int(found[2])))
        threads = sorted({thread for pair in waits for thread in pair})
        assert waits == set(zip(threads[1:], threads, strict=False)) and len(waits) == 3
        files = opened.page.locator("#source-file option").all_inner_texts()
        place = next(i for i, name in enumerate(files) if str(source) in name)
        opened.page.select_option("#source-file", index=place)
        text = source.read_text().splitlines()
        main = next(i for i, line in enumerate(text, 1) if line.startswith("int main"))
        row = opened.page.locator(f'#source-box tr[data-line="{main}"]')
        assert row.locator("td").nth(3).inner_text().startswith("int main")
        first = opened.page.locator(f'#source-box tr[data-line="{main + 1}"] td').first.inner_text()
        assert first == "1" or row.locator("td").first.inner_text() == "1", "main ran once"
        opened.page.select_option("#flame-measure", "time")
        opened.page.fill("#flame-find", "hand_over")
        assert re.match(r"[1-9]\d* found", opened.page.inner_text("#flame-found"))
