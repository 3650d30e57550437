# SPDX-License-Identifier: MIT
"""What --watch may say, and where it is: offsets and sizes are those the compiler says, splits those of a
brute search."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data import BadInput
from ptweave.decode.watches import Access
from ptweave.wrapper.watches.plan import FILE, HEAD, MAGIC, SLOTS, VERSION, WATCH, make_plan, pieces
from ptweave.wrapper.watches.spec import Mode, Spec, parse_spec

ROOT = Path(__file__).resolve().parents[2]
BOTH = Mode.READ | Mode.WRITE

SOURCE = """
#include <stddef.h>
#include <stdio.h>
typedef struct { char tag; union { int whole; struct { short low, high; }; }; double deep[3][5]; } item_t;
struct node { struct node *next; const volatile item_t items[2]; };
struct node tree, *root;
static int twice;
int *get(void) { static int twice; return &twice; }
#define SAY(name, what) printf(name " %zu %zu\\n", (size_t)((char *)&tree.what - (char *)&tree), sizeof tree.what)
int main(void)
{
    SAY("tree.next", next);
    SAY("tree.items", items);
    SAY("tree.items[1]", items[1]);
    SAY("tree.items[1].whole", items[1].whole);
    SAY("tree.items[1].high", items[1].high);
    SAY("tree.items[0].deep[2][3]", items[0].deep[2][3]);
    return twice + (get() == NULL) + (root != NULL);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    (folder / "tree.c").write_text(SOURCE)
    (folder / "other.c").write_text("static long twice; long *other(void) { return &twice; }")
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "tree", folder / "tree.c", folder / "other.c"], check=True)
    return folder / "tree"


def test_members_and_elements_are_where_the_compiler_says(program: Path) -> None:
    base = make_plan([parse_spec("tree.next")], program, [program]).watches[0].address
    said = subprocess.run([program], capture_output=True, text=True, check=False).stdout
    places = [line.split() for line in said.splitlines()]
    assert len(places) == 6
    for text, offset, size in places:
        if int(size) > 32:
            with pytest.raises(BadInput, match="debug registers"):
                make_plan([parse_spec(text)], program, [program])
            continue
        watch = make_plan([parse_spec(text)], program, [program]).watches[0]
        assert (watch.address - base, watch.length) == (int(offset), int(size)), text


@pytest.mark.parametrize(("text", "says"), [
    ("twice", "ambiguous"), ("root.next", "it is a pointer"), ("tree.items[2]", "is not in"),
    ("tree.items.whole", "no member"), ("absent", "no such variable"), ("/no/such:tree", "has no /no/such"),
])
def test_what_is_not_one_variable_is_refused(program: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        make_plan([parse_spec(text)], program, [program])


def test_a_functions_static_variable_has_the_name_that_the_compiler_gave_it(program: Path) -> None:
    listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    address, name = re.findall(r"^(\w+) b (twice\.\d+)$", listing, re.MULTILINE)[0]
    assert make_plan([parse_spec(name)], program, [program]).watches[0].address == int(address, 16)


def test_without_debug_information_variables_are_found_and_members_are_not(program: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["objcopy", "--strip-debug", program, bare], check=True)
    assert make_plan([parse_spec("root")], bare, [bare]).watches[0].length == 8
    with pytest.raises(BadInput, match="debug information"):
        make_plan([parse_spec("tree.next")], bare, [bare])


@pytest.mark.parametrize(("text", "spec"), [
    ("x", Spec("x", Mode.WRITE, name="x")),
    ("x:rw", Spec("x:rw", BOTH, name="x")),
    ("lib.so.6:x.y[3].z:r", Spec("lib.so.6:x.y[3].z:r", Mode.READ, "lib.so.6", "x", ("y", 3, "z"))),
    ("ns::x:w", Spec("ns::x:w", Mode.WRITE, name="ns::x")),
    ("prog:ns::x", Spec("prog:ns::x", Mode.WRITE, "prog", "ns::x")),
    ("0x10:8:rw", Spec("0x10:8:rw", BOTH, address=16, length=8)),
    ("/a/b+0x10:4", Spec("/a/b+0x10:4", Mode.WRITE, "/a/b", address=16, length=4)),
])
def test_specifications_are_understood(text: str, spec: Spec) -> None:
    assert parse_spec(text) == spec


@given(st.text(max_size=40))
def test_any_text_is_a_specification_or_bad_input(text: str) -> None:
    try:
        assert parse_spec(text).text == text
    except BadInput as error:
        assert "\n" not in error.line() or "\n" in text


def _fewest(address: int, length: int) -> int:
    """By trying all ways to cover exactly that."""
    for count in range(1, length + 1):
        for sizes in product((1, 2, 4, 8), repeat=count):
            at = address
            for size in sizes:
                if at % size:
                    break
                at += size
            else:
                if at == address + length:
                    return count
    raise AssertionError


@given(st.integers(0, 64), st.integers(1, 12))
def test_ranges_are_split_into_the_fewest_aligned_pieces(address: int, length: int) -> None:
    found = pieces(address, length)
    if len(found) <= SLOTS:
        assert len(found) == _fewest(address, length)
        covered = [one for start, size in found for one in range(start, start + size)]
        assert covered == [*range(address, address + length)]
    assert all(start % size == 0 for start, size in found)


def test_the_plans_layout_and_numbers_are_those_of_libtthread(tmp_path: Path) -> None:
    source = tmp_path / "sizes.c"
    source.write_text('#include <stdio.h>\n#include "watch_format.h"\nint main(void) { printf("%zu %zu %zu %llx %d %d '
                      '%d %d %d", sizeof(struct ptw_watch_plan), sizeof(struct ptw_watch_file), '
                      'sizeof(struct ptw_watch_wanted), PTW_WATCH_MAGIC, PTW_WATCH_VERSION, PTW_WATCHES, '
                      'PTW_HAS_WRITTEN, PTW_NOT_ASKED_FOR, PTW_BY_LIBTTHREAD); }\n')
    subprocess.run(["gcc", "-I", ROOT / "preload/src", "-o", tmp_path / "sizes", source], check=True)
    said = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout
    assert said == f"{HEAD.size} {FILE.size} {WATCH.size} {MAGIC:x} {VERSION} {SLOTS} {int(Access.WRITE)} " \
                   f"{int(Access.NOT_ASKED_FOR)} {int(Access.BY_LIBTTHREAD)}"
