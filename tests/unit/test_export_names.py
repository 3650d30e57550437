# SPDX-License-Identifier: MIT
"""Whatever a program calls its functions: each format's reader gets the name back, and nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto_protos

from ptweave.merge.exports import collapsed, dot, graphml, protobuf
from ptweave.merge.exports.json_text import dumps
from ptweave.merge.render import safe

NAMES = st.text(st.characters(exclude_categories=["Cs"])) | st.text('";\\<>&\n\t\x00\x1b{}|n', min_size=1)


@given(NAMES, st.integers(0, (1 << 64) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_protobufs_own_classes_read_what_is_written(name: str, unsigned: int, signed: int) -> None:
    body = protobuf.text(10, name) + protobuf.number(3, unsigned)
    event = perfetto_protos.TrackEvent.FromString(
        protobuf.chunk(4, body) + protobuf.chunk(4, protobuf.number(4, signed)) + protobuf.fixed64(47, unsigned))
    first, second = event.debug_annotations
    assert (first.name, first.uint_value, second.int_value) == (name, unsigned, signed)
    assert list(event.flow_ids) == [unsigned]


@given(NAMES)
def test_xml_gives_the_name_back_as_a_terminal_would_show_it(name: str) -> None:
    made = graphml._data("n", {"function": name, "path": None})
    (data,) = ElementTree.fromstring(f"<node>{made}</node>".encode())
    assert data.attrib == {"key": "n_function"} and (data.text or "") == safe(name)


@given(NAMES)
def test_a_quoted_string_of_dot_ends_where_it_should(name: str) -> None:
    """Graphviz: in quotes only \\" is special; in labels \\\\ and \\n are, too."""
    made = dot.quoted(name)
    inside = re.fullmatch(r'"((?:[^"\\\n]|\\.)*)"', made)
    assert inside is not None
    shown = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], inside[1])
    assert shown == "\n".join(safe(line) for line in name.split("\n"))


@given(st.lists(NAMES, min_size=1), st.integers(1, 1 << 62))
def test_a_collapsed_line_has_its_frames_and_no_more(names: list[str], count: int) -> None:
    line = ";".join(collapsed.frame(name) for name in names) + f" {count}"
    stack, _, weight = line.rpartition(" ")
    assert len(line.splitlines()) == 1 and len(stack.split(";")) == len(names) and int(weight) == count


@given(NAMES)
def test_json_is_ascii(name: str) -> None:
    assert dumps({name: name}).isascii()
