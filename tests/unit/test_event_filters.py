# SPDX-License-Identifier: MIT
"""Filter rules as they are written, and as the programs take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.errors import BadInput
from ptweave.wrapper.filters import ALL_KINDS, Key, Kind, Rule, Rules, from_options, load, pack, parse_rule


@pytest.mark.parametrize(("text", "key", "value", "kinds"), [
    ("comm=nginx:syscall,write", Key.COMM, b"nginx", {Kind.SYSCALL, Kind.WRITE}),
    ("comm=a:b", Key.COMM, b"a:b", ALL_KINDS), ("comm=a:b:signal", Key.COMM, b"a:b", {Kind.SIGNAL}),
    ("pid=12", Key.PID, 12, ALL_KINDS), ("tid=4194303:blocking", Key.TID, 4194303, {Kind.BLOCKING}),
    ("exe=/no/such/thing", Key.EXE, b"/no/such/thing", ALL_KINDS),
    ("cmdline=a b  c", Key.CMDLINE, b"a\0b\0\0c\0", ALL_KINDS), ("cmdline=x=y", Key.CMDLINE, b"x=y\0", ALL_KINDS)])
def test_rules_are_read(text: str, key: Key, value: int | bytes, kinds: set[Kind]) -> None:
    assert parse_rule(text, accept=False) == Rule(False, key, value, frozenset(kinds))


@pytest.mark.parametrize("text", [
    "", "pid", "pid=", "pid=0", "pid=-1", "pid=4194304", "pid=1:2", "pid=\u0661", "comm=", "comm=0123456789abcdef",
    "exe=relative", "exe=/" + "x" * 503, "cmdline=" + "y" * 503, "user=root", "=x"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_rule(text, accept=True)


def test_a_link_is_the_program_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    (tmp_path / "link").symlink_to("program")
    assert parse_rule(f"exe={tmp_path}/link", accept=True).value == bytes(tmp_path / "program")


def test_a_file_has_the_same_rules_as_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[filter]\naccept = ["comm=a:write"]\nreject = ["pid=3"]\ndefault = ["comm=accept"]\n'
                    'kinds = ["write", "signal"]\n')
    assert load(path) == from_options(["comm=a:write"], ["pid=3"], ["comm=accept"],
                                      frozenset({Kind.WRITE, Kind.SIGNAL}))


@pytest.mark.parametrize("text", ["", "[filter", "[filter]\naccept = 'x'", "[filter]\nallow = []", "[other]",
                                  "[filter]\naccept = [1]", "[filter]\nkinds = []", "\xff"])
def test_files_that_are_wrong_are_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput) as caught:
        load(path)
    assert "\n" not in caught.value.line() and str(path) in caught.value.line()


def test_a_reject_beats_an_accept_of_the_same_key() -> None:
    packed, fallback = pack(Rules((Rule(True, Key.PID, 1), Rule(False, Key.PID, 1, frozenset({Kind.WRITE})))))
    (rule,) = packed
    assert rule.active == 0b11111111 and rule.accept == 0b11101111
    assert fallback == {Key.PID: 0}


_RULES = st.builds(Rule, st.booleans(), st.sampled_from([Key.PID, Key.COMM]), st.sampled_from([1, 2]),
                   st.frozensets(st.sampled_from(list(Kind)), min_size=1))


@given(st.lists(_RULES, max_size=6), st.dictionaries(st.sampled_from(list(Key)), st.booleans()),
       st.sampled_from([1, 2, 3]), st.sampled_from(list(Kind)))
def test_packed_rules_mean_what_the_rules_mean(rules: list[Rule], defaults: dict[Key, bool], value: int,
                                               kind: Kind) -> None:
    """The programs' formula on the packed rules, against the words of the documentation."""
    whole = Rules(tuple(rules), defaults)
    packed, fallback = pack(whole)
    passed = True
    for key, bits in fallback.items():
        found = [one for one in packed if one.key is key and one.value == value]
        mask = (found[0].accept & found[0].active) | (bits & ~found[0].active) if found else bits
        passed &= bool(mask >> kind & 1)
    expected = True
    for key in {rule.key for rule in rules} | set(defaults):
        fitting = [one for one in rules if one.key is key and one.value == value and kind in one.kinds]
        others = any(one.accept for one in rules if one.key is key and kind in one.kinds)
        expected &= all(one.accept for one in fitting) if fitting else defaults.get(key, not others)
    assert passed == expected
