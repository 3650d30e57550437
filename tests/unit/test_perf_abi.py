# SPDX-License-Identifier: MIT
"""The kernel's structures as ctypes has them are the C compiler's: offsets, sizes, bits, numbers."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from ptweave.data.perf.format import AuxFlag, Misc, RecordType, SampleType
from ptweave.wrapper.perf.abi import (
    PERF_FLAG_FD_CLOEXEC,
    SYSCALL_PERF_EVENT_OPEN,
    AttrSize,
    Ioctl,
    MmapPage,
    PerfEventAttr,
)

NEWER = {RecordType.CALLCHAIN_DEFERRED}
"""Not in Debian 12's headers (of Linux 6.1)."""


def c_values(folder: Path, expressions: list[str]) -> list[int]:
    """What the C compiler makes of expressions about linux/perf_event.h."""
    lines = "".join(f'\tprintf("%llu\\n", (unsigned long long)({one}));\n' for one in expressions)
    source = folder / "values.c"
    source.write_text("#include <linux/perf_event.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n"
                      "#include <sys/syscall.h>\nint main(void)\n{\n" + lines + "\treturn 0;\n}\n")
    subprocess.run(["gcc", "-Wall", "-o", folder / "values", source], check=True)
    done = subprocess.run([folder / "values"], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def plain_fields(structure: type[ctypes.Structure]) -> list[str]:
    """Names of fields that are no bits and not reserved."""
    return [str(field[0]) for field in structure._fields_ if len(field) == 2 and not str(field[0]).startswith("__")]


def test_every_field_of_the_attribute_is_where_the_compiler_puts_it(tmp_path: Path) -> None:
    known = c_values(tmp_path, ["sizeof(struct perf_event_attr)"])[0]
    names = [name for name in plain_fields(PerfEventAttr) if getattr(PerfEventAttr, name).offset < known]
    assert {"aux_watermark", "aux_sample_size", "sig_data"} <= set(names)
    expressions = [text for name in names for text in (
        f"offsetof(struct perf_event_attr, {name})", f"sizeof(((struct perf_event_attr *)0)->{name})")]
    ours = [value for name in names for value in (
        getattr(PerfEventAttr, name).offset, getattr(PerfEventAttr, name).size)]
    assert ours == c_values(tmp_path, expressions)


def test_every_bit_of_the_attribute_is_where_the_compiler_puts_it(tmp_path: Path) -> None:
    bits = [str(field[0]) for field in PerfEventAttr._fields_
            if len(field) == 3 and not str(field[0]).startswith("__") and field[0] != "inherit_thread"]
    expressions = ["({ struct perf_event_attr a; unsigned long long w; memset(&a, 0, sizeof(a)); "
                   f"a.{name} = 1; memcpy(&w, (char *)&a + 40, 8); w; }})" for name in [*bits, "inherit_thread"]]
    ours = []
    for name in [*bits, "inherit_thread"]:
        attr = PerfEventAttr()
        setattr(attr, name, 1)
        ours.append(int.from_bytes(bytes(attr)[40:48], "little"))
    assert ours == c_values(tmp_path, expressions)


def test_every_field_of_the_mapped_page_is_where_the_compiler_puts_it(tmp_path: Path) -> None:
    names = plain_fields(MmapPage)
    assert [getattr(MmapPage, name).offset for name in names] == c_values(
        tmp_path, [f"offsetof(struct perf_event_mmap_page, {name})" for name in names])


def test_the_published_sizes_are_the_compilers(tmp_path: Path) -> None:
    assert ctypes.sizeof(PerfEventAttr) == AttrSize.VER8
    published = [size for size in AttrSize if size is not AttrSize.VER8]
    assert [int(size) for size in published] == c_values(
        tmp_path, [f"PERF_ATTR_SIZE_{size.name}" for size in published])


@pytest.mark.parametrize(("numbers", "prefix"), [
    (RecordType, "PERF_RECORD_"), (SampleType, "PERF_SAMPLE_"), (AuxFlag, "PERF_AUX_FLAG_"),
    (Ioctl, "PERF_EVENT_IOC_")])
def test_numbers_are_the_compilers(tmp_path: Path, numbers: type[RecordType], prefix: str) -> None:
    ours = [one for one in numbers if prefix != "PERF_RECORD_" or (one < 64 and one not in NEWER)]
    assert [int(one) for one in ours] == c_values(tmp_path, [f"{prefix}{one.name}" for one in ours])


def test_other_numbers_are_the_compilers(tmp_path: Path) -> None:
    names = ["SYS_perf_event_open", "PERF_FLAG_FD_CLOEXEC", "PERF_RECORD_MISC_COMM_EXEC",
             "PERF_RECORD_MISC_SWITCH_OUT", "PERF_RECORD_MISC_MMAP_BUILD_ID"]
    ours = [SYSCALL_PERF_EVENT_OPEN, PERF_FLAG_FD_CLOEXEC, Misc.COMM_EXEC, Misc.SWITCH_OUT, Misc.MMAP_BUILD_ID]
    assert c_values(tmp_path, names) == ours
