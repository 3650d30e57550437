# SPDX-License-Identifier: MIT
"""Which code is the same: what moved is, what computes something else is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.manifest import Manifest
from ptweave.merge.code_alike import ImageCode, Telling

BASE = 0x400000


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    made = Bundle.create(tmp_path / "run.ptw", Manifest(command=["prog"]))
    made.images.mkdir(exist_ok=True)
    return made


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def telling(bundle: Bundle, opened: ExitStack, code: str, bits: int = 64, offset: int = 16) -> Telling:
    data = bytes.fromhex(code)
    (bundle.images / "id").write_bytes(bytes(offset) + data)
    return opened.enter_context(closing(ImageCode(bundle, "id", BASE))).telling(offset, len(data), bits)


@pytest.mark.parametrize(("one", "other"), [
    ("e8 10 00 00 00", "e8 20 00 00 00"),                    # call
    ("74 10", "0f 84 80 00 00 00"),                          # je, near and far
    ("48 8b 05 10 00 00 00", "48 8b 05 30 00 00 00"),        # mov rax, [rip+…]
    ("bf 10 10 40 00", "bf 18 10 40 00"),                    # mov edi, an address of the program
    ("48 8b 04 c5 10 10 40 00", "48 8b 04 c5 10 20 40 00"),  # mov rax, [table+rax*8]
])
def test_code_that_refers_to_what_moved_is_the_same(bundle: Bundle, opened: ExitStack, one: str, other: str) -> None:
    assert telling(bundle, opened, one) == telling(bundle, opened, other, offset=64)


@pytest.mark.parametrize(("one", "other"), [
    ("74 10", "75 10"),                                      # je, jne
    ("83 f8 61", "83 f8 62"),                                # cmp eax, …
    ("01 d8", "29 d8"),                                      # add, sub
    ("01 d8", "01 d9"),                                      # another register
    ("8b 45 f8", "8b 45 fc"),                                # another variable
    ("8b 45 f8", "48 8b 45 f8"),                             # another size
    ("f3 a4", "a4"),                                         # rep movsb, movsb
    ("f0 ff 00", "ff 00"),                                   # lock inc, inc
    ("64 8b 00", "8b 00"),                                   # another segment
    ("48 8b 04 c5 10 10 40 00", "48 8b 04 85 10 10 40 00"),  # another scale
    ("90", "90 90"),
])
def test_code_that_does_something_else_is_not(bundle: Bundle, opened: ExitStack, one: str, other: str) -> None:
    assert telling(bundle, opened, one) != telling(bundle, opened, other)


def test_the_processors_mode_says_what_bytes_mean(bundle: Bundle, opened: ExitStack) -> None:
    assert len(telling(bundle, opened, "40 90", 32)) == 2 and len(telling(bundle, opened, "40 90", 64)) == 1


def test_an_instruction_is_told_as_text(bundle: Bundle, opened: ExitStack) -> None:
    (bundle.images / "id").write_bytes(bytes.fromhex("90 01 d8 eb 02"))
    code = opened.enter_context(closing(ImageCode(bundle, "id", BASE)))
    assert [code.text(0, 5, 64, number) for number in range(2)] == ["nop", "add eax,ebx"]
    assert code.bytes_of(3, 100) == bytes.fromhex("eb 02")


@pytest.mark.parametrize("name", ["", "../run.json", "gone", "link"])
def test_only_files_of_the_bundle_are_read(bundle: Bundle, name: str) -> None:
    (bundle.images / "link").symlink_to("/etc/passwd")
    with pytest.raises(BadInput):
        ImageCode(bundle, name, BASE)
