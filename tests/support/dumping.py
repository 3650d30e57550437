# SPDX-License-Identifier: MIT
"""Dumps as lists of lines, without the command line."""

from __future__ import annotations

from typing import Any

from ptweave.data.bundle import Bundle
from ptweave.decode.dump import Dumped, Form, Moment, dump_flow, dump_packets


def flow_lines(bundle: Bundle, form: Form, begin: str | None = None, end: str | None = None,
               **more: Any) -> tuple[list[str], Dumped]:
    """The lines `dump_flow` writes, and what it says of them."""
    text = bytearray()
    moments = [None if moment is None else Moment.parse(moment) for moment in (begin, end)]
    dumped = dump_flow(bundle, form, text.extend, more.pop("threads", None), moments[0], moments[1], **more)
    return text.decode().splitlines(), dumped


def packet_lines(bundle: Bundle, **more: Any) -> tuple[list[str], Dumped]:
    """The lines `dump_packets` writes, and what it says of them."""
    text = bytearray()
    dumped = dump_packets(bundle, text.extend, **more)
    return text.decode().splitlines(), dumped
