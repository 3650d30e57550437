# SPDX-License-Identifier: MIT
"""What C and Python say about the formats between libtthread, the supervisor and the decoder is the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ptweave.data import evl, handshake, layout, lists
from ptweave.data.evl import Operation
from ptweave.data.lists import LIST_DTYPE, LISTS_HEAD, NOTICE_DTYPE, NOTICE_PLACE, ListState
from ptweave.data.notices import NoticeKind
from ptweave.data.sideband import SERVANT
from ptweave.merge.own_calls import ON_BEHALF, OWN_WORK

ROOT = Path(__file__).resolve().parents[2]
PRELOAD, DECODE = ROOT / "preload/src", ROOT / "decode/src"

CONSTANTS = {
    "PTW_EVL_MAGIC": int.from_bytes(evl.EVL_MAGIC, "little"), "PTW_EVL_HEADER_SIZE": evl.EVL_HEADER_SIZE,
    "PTW_RECORD_SIZE": evl.EVL_RECORD_SIZE, "PTW_RECORD_OPEN": evl.EVL_OPEN, "PTW_MAX_FRAMES": evl.EVL_MAX_FRAMES,
    "PTW_BARRIER_SERIAL": evl.BARRIER_SERIAL, "PTW_OPERATIONS": max(Operation) + 1,
    "PTW_HANDSHAKE_MAGIC": handshake.MAGIC, "PTW_HANDSHAKE_VERSION": handshake.VERSION,
    "PTW_HANDSHAKE_TIMEOUT_S": handshake.TIMEOUT_SECONDS,
    "PTW_HELLO_PROCESS": handshake.Hello.PROCESS, "PTW_HELLO_THREAD": handshake.Hello.THREAD,
    "PTW_HELLO_FORK": handshake.Hello.FORK, "PTW_WELCOME_GO": handshake.Status.GO,
    "PTW_WELCOME_REFUSED": handshake.Status.REFUSED,
    "PTW_LISTS_MAGIC": lists.LISTS_MAGIC, "PTW_LIST_SIZE": lists.LIST_SIZE, "PTW_LIST_COUNT": lists.LIST_COUNT,
    "PTW_LISTS_HEAD": lists.LISTS_HEAD_SIZE, "PTW_LISTS_DATA": lists.LISTS_DATA, "PTW_LISTS_BYTES": lists.LISTS_BYTES,
    "PTW_LIST_NONE": lists.LIST_NONE, "PTW_LIST_BACKLOG": lists.LIST_BACKLOG,
    "PTW_NOTICES": lists.NOTICES, "PTW_NOTICE_KINDS": len(NoticeKind) + 1,
    **{f"PTW_NOTICE_{one.name}": number for number, one in enumerate(NoticeKind, 1)},
    "PTW_PATIENCE_NS": lists.PATIENCE_SECONDS * 10**9,
    "EVL_MAGIC": int.from_bytes(evl.EVL_MAGIC, "little"), "EVL_HEADER": evl.EVL_HEADER_SIZE,
    "EVL_RECORD": evl.EVL_RECORD_SIZE, "EVL_MAX_FRAMES": evl.EVL_MAX_FRAMES, "EVL_OPEN": evl.EVL_OPEN,
    "EVL_OPERATIONS": max(Operation) + 1,
    **{f"PTW_{one.name}": one.value for one in Operation}, **{f"EVL_OP_{one.name}": one.value for one in Operation},
    **{f"PTW_LIST_{one.name}": one.value for one in ListState},
    "PTW_PAGE": layout.PAGE, "PTW_REGION": layout.REGION, "PTW_SLOTS": layout.SLOTS,
    "PTW_STACK_AREA": layout.STACK_AREA, "PTW_HEAP": layout.HEAP, "PTW_HEAP_SIZE": layout.REGION_END - layout.HEAP,
    "PTW_FILES": layout.FILES, "PTW_FILES_SIZE": layout.FILES_END - layout.FILES, "PTW_UNIT": layout.UNIT,
    "EVL_PAGE": layout.PAGE, "EVL_WINDOW_MAX": evl.WINDOW_MAX,
}

STRUCTS = {
    "struct ptw_record": ("size operation frames tsc_enter tsc_exit object result object_version argument",
                          evl.EVL_RECORD),
    "struct ptw_evl_header": ("magic pid tid thread flags tsc marker start_routine lost zero", evl.EVL_HEADER),
    "struct ptw_hello": ("magic version kind pid tid tsc list flags start_routine marker", handshake.HELLO),
    "struct ptw_welcome": ("magic version status thread flags", handshake.WELCOME),
}


def offsets(layout: str) -> list[int]:
    """Offset of each field of a struct format without padding."""
    sizes = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8, "q": 8}
    found, at = [], 0
    for count, code in re.findall(r"(\d*)([a-zA-Z])", layout):
        if code == "s":
            found.append(at)
            at += int(count)
        else:
            for _ in range(int(count or 1)):
                found.append(at)
                at += sizes[code]
    return found


@pytest.fixture(scope="module")
def from_c(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("formats")
    lines = [f'P("{name}", {name});' for name in CONSTANTS]
    for struct, (fields, _) in STRUCTS.items():
        lines.append(f'P("{struct}", sizeof({struct}));')
        lines += [f'P("{struct}.{name}", offsetof({struct}, {name}));' for name in fields.split()]
    lines += [f'P("list.{name}", offsetof(struct ptw_list, {name}));' for name in LIST_DTYPE.names or ()]
    lines += [f'P("notice.{name}", offsetof(struct ptw_notice, {name}));' for name in NOTICE_DTYPE.names or ()]
    lines += [f'P("place.{name}", offsetof(struct ptw_notice_place, {name}));' for name in NOTICE_PLACE.names or ()]
    lines += [f'P("head.{name}", offsetof(struct ptw_lists, {name}));' for name in LISTS_HEAD.names or ()]
    source = folder / "formats.c"
    source.write_text("""
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include "evl_file.h"
#include "evl_operation.h"
#include "evl_pages.h"
#include "handshake.h"
#include "layout.h"
#include "lists.h"
#include "notice.h"
#define P(name, value) printf("%s\\t%llu\\n", name, (unsigned long long)(value))
int main(void) {""" + "\n".join(lines) + "return 0; }")
    subprocess.run(["gcc", "-I", PRELOAD, "-I", DECODE, "-o", folder / "formats", source], check=True)
    out = subprocess.run([folder / "formats"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split("\t") for line in out.splitlines())}


def test_constants_are_equal(from_c: dict[str, int]) -> None:
    assert {name: from_c[name] for name in CONSTANTS} == {name: int(value) for name, value in CONSTANTS.items()}


@pytest.mark.parametrize("struct", STRUCTS)
def test_structs_have_the_same_fields_at_the_same_offsets(struct: str, from_c: dict[str, int]) -> None:
    fields, layout = STRUCTS[struct]
    assert from_c[struct] == layout.size
    assert [from_c[f"{struct}.{name}"] for name in fields.split()] == offsets(layout.format.lstrip("<"))


def test_list_descriptors_have_the_same_fields_at_the_same_offsets(from_c: dict[str, int]) -> None:
    for prefix, dtype in (("list", LIST_DTYPE), ("head", LISTS_HEAD), ("notice", NOTICE_DTYPE),
                          ("place", NOTICE_PLACE)):
        assert dtype.fields is not None
        assert {name: from_c[f"{prefix}.{name}"] for name in dtype.names or ()} == {
            name: field[1] for name, field in dtype.fields.items()}


def test_the_name_of_own_threads_is_the_same() -> None:
    assert f'#define PTW_SERVANT_NAME "{SERVANT}"' in (PRELOAD / "servant.h").read_text()


def test_functions_that_calls_are_told_by_are_there() -> None:
    defined = "".join(path.read_text() for path in PRELOAD.glob("*.c"))
    for name in (*OWN_WORK, *ON_BEHALF):
        in_assembly = rf'^\t"{name}:\\n"'
        assert re.search(rf"^[\w *()]*\b{name}\([^;]*$|{in_assembly}", defined, re.MULTILINE), name


def test_every_operation_of_the_header_is_an_operation_here() -> None:
    names = set(re.findall(r"PTW_([A-Z_]+) = \d+,", (PRELOAD / "event.h").read_text().split("enum {")[0]))
    assert names == {one.name for one in Operation}
