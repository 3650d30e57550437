# SPDX-License-Identifier: MIT
"""The C parts of libtthread on their own: event lists, the object table, the unwinder."""

from __future__ import annotations

import pytest

from support.ctests import build, case_names, run_case

IMPATIENT = ("-DPTW_PATIENCE_NS=300000000ull",)
LISTS, OBJECTS = ("preload/src/lists.c",), ("preload/src/objects.c",)
HEAP = tuple(f"preload/src/{name}.c" for name in ("region", "kept_files", "units", "heap", "heap_open", "handshake"))
"""Its addresses lie where the address sanitizer has its own: built without."""
NOTICES = ("preload/src/notice.c", "preload/src/lists.c", "preload/src/handshake.c")
UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
"""For what has its addresses there, too."""
PENDING = ("preload/src/pending.c", "preload/src/handshake.c")
DIFF = ("preload/src/atomic_insn.c",)  # the test has diff.c in itself
LAST_KEY = ("preload/src/last_key.c",)
WRAPPED = (*UNDEFINED, "-Wl,--wrap=dlvsym,--wrap=pthread_key_create")
UNWIND = ("preload/src/unwind.c", "preload/src/cfi.c")


@pytest.mark.parametrize("case", case_names("lists_test"))
def test_lists(case: str) -> None:
    run_case(build("lists_test", LISTS, "asan", IMPATIENT), case)


@pytest.mark.parametrize("case", case_names("objects_test"))
def test_objects(case: str) -> None:
    run_case(build("objects_test", OBJECTS, "asan"), case)


def test_lists_and_objects_have_no_data_race() -> None:
    run_case(build("lists_test", LISTS, "tsan", IMPATIENT), "threads_lose_nothing_while_there_is_a_consumer")
    run_case(build("objects_test", OBJECTS, "tsan"), "every_release_counts_once")


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
@pytest.mark.parametrize("case", case_names("unwind_test"))
def test_unwinder_agrees_with_libgcc(case: str, optimisation: str) -> None:
    run_case(build("unwind_test", UNWIND, "", (optimisation,)), case)


def test_unwind_sections_are_read_within_bounds() -> None:
    run_case(build("unwind_test", UNWIND, "asan"), "corrupt_unwind_sections_end_the_stack")


@pytest.mark.parametrize("case", case_names("heap_test"))
def test_heap(case: str) -> None:
    run_case(build("heap_test", HEAP), case)


@pytest.mark.parametrize("case", case_names("notice_test"))
def test_notices(case: str) -> None:
    run_case(build("notice_test", NOTICES, "asan"), case)


@pytest.mark.parametrize("case", case_names("pending_test"))
def test_pending_signals(case: str) -> None:
    run_case(build("pending_test", PENDING, "", UNDEFINED), case)


@pytest.mark.parametrize("case", case_names("diff_test"))
def test_differences_of_pages_and_atomic_instructions(case: str) -> None:
    run_case(build("diff_test", DIFF, "asan"), case)


@pytest.mark.parametrize("case", case_names("last_key_test"))
def test_last_key(case: str) -> None:
    run_case(build("last_key_test", LAST_KEY, "", WRAPPED), case)
