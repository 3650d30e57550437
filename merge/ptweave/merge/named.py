# SPDX-License-Identifier: MIT
"""Which tables of a run a query reads."""

from __future__ import annotations

import json
import re
from typing import Any

import duckdb

from ptweave.data.schemas import TABLES

USES: dict[str, tuple[str, ...]] = {
    "path_blocks": ("paths",), "flow_blocks": ("flow", "paths"), "flow_range": ("flow", "paths"),
    "executions": ("flow", "paths", "blocks"), "block_counts": ("flow", "paths"), "block_counts_in": ("flow", "paths"),
    "edge_counts": ("flow", "paths", "gaps"), "frames": ("stacks",), "functions_of": ("call_stacks",),
    "read_set": ("accesses",), "write_set": ("accesses",), "page_sets": ("thunks", "accesses")}
"""Tables that views and macros read."""


def tables_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """The tables that a query reads, by itself or through views and macros; none when it is no query."""
    named = _named(connection, query)
    used = {table for name in named for table in USES.get(name, (name,))}
    return [name for name in TABLES if name in used]


def _named(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """Tables, views and macros that a query names, from DuckDB's syntax tree of it."""
    (text,) = connection.cursor().execute("select json_serialize_sql(?::varchar)", [query]).fetchall()[0]
    tree = json.loads(text)
    if tree.get("error_type") == "not implemented":  # DuckDB has trees of some statements only: not of a pivot
        return {word.lower() for word in re.findall(r"\w+", query)}
    found: set[str] = set()
    rest: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while rest:
        node, hidden = rest.pop()
        if isinstance(node, list):
            rest += [(one, hidden) for one in node]
        elif isinstance(node, dict):
            for entry in (node.get("cte_map") or {}).get("map", ()):
                rest.append((entry["value"], hidden))
                hidden |= {entry["key"].lower()}
            texts = {str(node[key]).lower() for key in ("table_name", "function_name") if node.get(key)}
            found |= texts - hidden
            rest += [(value, hidden) for key, value in node.items() if key != "cte_map"]
    return found
