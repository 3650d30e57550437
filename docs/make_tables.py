# SPDX-License-Identifier: MIT
"""Write docs/tables.md from the schemas, so that the page cannot say anything else: `python docs/make_tables.py`."""

from __future__ import annotations

from pathlib import Path

from ptweave.data.schemas import TABLES

PAGE = Path(__file__).with_name("tables.md")

HEAD = """\
# Tables

What `decode` and `merge` write into `RUN.ptw/tables/<table>/*.parquet` (zstd, row groups of about a million rows).
`ptweave query RUN --list` prints the same with the row counts of a run.

`seq` is the ordinal of a block in its thread's flow: it is what everything is aligned on. `t` columns are ns on
CLOCK_MONOTONIC. `thread` is dense in the run. This page is made by `docs/make_tables.py`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for table in TABLES.values():
        parts.append(f"\n## {table.name}\n\nA row is {table.doc}."
                     + (f" Sorted by {', '.join(table.sort)}." if table.sort else "") + "\n\n"
                     "| column | type | unit | meaning |\n|---|---|---|---|\n"
                     + "\n".join(f"| {c.name} | {c.type} | {c.unit} | {c.doc} |" for c in table.columns) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
