# SPDX-License-Identifier: MIT
"""Filters of events: rules that accept or reject kinds of event by pid, tid, comm, exe or command line.

A rule is written `KEY=VALUE[:KIND,…]`, such as `comm=nginx:syscall,write` or `pid=12`; without kinds it is of all.
A kind of a task's events passes when every filter (key) that has rules lets it pass. Of the rules of a filter that are
of the kind and fit the task, a reject beats an accept; where none fits, the filter's default holds: reject where the
filter accepts that kind of anything else, else accept; or what `default` says.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path

from ptweave.data.errors import BadInput


class Kind(IntEnum):
    """Kinds of event: `enum ptw_record_kind` of wrapper/bpf/record.h."""

    SYSCALL = 0
    BLOCKING = 1
    FILE_DESCRIPTOR_CHANGE = 2
    SIGNAL = 3
    WRITE = 4
    GARBAGE_COLLECT = 5
    JNI_REFERENCE = 6
    UPROBE = 7

    @property
    def word(self) -> str:
        return self.name.lower()


class Key(Enum):
    """What a rule looks at. The value is its number in the programs: `enum ptw_filter`."""

    PID = 0
    TID = 1
    COMM = 2
    EXE = 3
    CMDLINE = 4

    @property
    def word(self) -> str:
        return self.name.lower()


ALL_KINDS = frozenset(Kind)
PROBED = (Kind.GARBAGE_COLLECT, Kind.JNI_REFERENCE, Kind.UPROBE)
"""Kinds that come from probes in programs: they are recorded when asked for."""
USUAL = tuple(kind for kind in Kind if kind not in PROBED)
COMM_MAX = 15  # TASK_COMM_LEN - 1
TEXT_MAX = 503  # PTW_KEY - 1: bytes of an exe path or command line as the programs compare them
MAX_RULES = 4096
_KINDS = {kind.word: kind for kind in Kind}
_KEYS = {key.word: key for key in Key}


@dataclass(frozen=True)
class Rule:
    """One rule. `value` is a number for pid and tid; the bytes of a comm or of an exe's path; for a command line its
    words, each with a NUL behind it."""

    accept: bool
    key: Key
    value: int | bytes
    kinds: frozenset[Kind] = ALL_KINDS

    def matches(self, value: int | bytes) -> bool:
        return self.value == value


@dataclass(frozen=True)
class Rules:
    """A set of rules; `defaults` says what a filter does where it has no rule, in place of what its rules suggest."""

    rules: tuple[Rule, ...] = ()
    defaults: dict[Key, bool] = field(default_factory=dict)
    kinds: frozenset[Kind] = ALL_KINDS

    def default(self, key: Key, kind: Kind) -> bool:
        """Whether a kind passes a filter that has no rule for the task."""
        if key in self.defaults:
            return self.defaults[key]
        return not any(rule.accept for rule in self.rules if rule.key is key and kind in rule.kinds)

    @property
    def used(self) -> list[Key]:
        """The filters that are asked."""
        return [key for key in Key if key in self.defaults or any(rule.key is key for rule in self.rules)]


def bits(kinds: Iterable[Kind]) -> int:
    """A bit for each kind."""
    return sum(1 << kind for kind in frozenset(kinds))


@dataclass(frozen=True)
class PackedRule:
    """What the programs have of all rules with one key and value: bits by kind."""

    key: Key
    value: int | bytes
    accept: int
    active: int


def pack(rules: Rules) -> tuple[list[PackedRule], dict[Key, int]]:
    """The rules as the programs take them, and what each filter lets pass where it has none."""
    found: dict[tuple[Key, int | bytes], tuple[int, int]] = {}
    for rule in rules.rules:
        accept, reject = found.get((rule.key, rule.value), (0, 0))
        if rule.accept:
            accept |= bits(rule.kinds)
        else:
            reject |= bits(rule.kinds)
        found[rule.key, rule.value] = accept, reject
    packed = [PackedRule(key, value, accept & ~reject, accept | reject)
              for (key, value), (accept, reject) in found.items()]
    return packed, {key: bits(kind for kind in Kind if rules.default(key, kind)) for key in rules.used}


# --- written down ----------------------------------------------------------------------------------------------------


def parse_kinds(text: str, where: str) -> frozenset[Kind]:
    """`syscall,write` → kinds. Raises BadInput for a name that is none."""
    words = [word for word in text.split(",") if word]
    unknown = [word for word in words if word not in _KINDS]
    if unknown or not words:
        raise BadInput(f"{', '.join(unknown) or 'nothing'} is no kind of event", where=where,
                       remedy=f"choose from {', '.join(_KINDS)}")
    return frozenset(_KINDS[word] for word in words)


def _split_kinds(text: str) -> tuple[str, str | None]:
    """A value and the kinds behind its last colon, if what is there looks like kinds: a path may have colons, too."""
    value, colon, kinds = text.rpartition(":")
    if colon and all(word in _KINDS for word in kinds.split(",")):
        return value, kinds
    return text, None


def _value(key: Key, text: str, where: str) -> int | bytes:
    if key in (Key.PID, Key.TID):
        if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 1 << 22:
            raise BadInput(f"{text or 'nothing'} is no {key.word}", where=where,
                           remedy="give a number from 1 to 4194303")
        return int(text)
    if not text:
        raise BadInput("has no value", where=where, remedy=f"write {key.word}=VALUE")
    raw = text.encode(errors="surrogateescape")
    if key is Key.COMM:
        if len(raw) > COMM_MAX:
            raise BadInput(f"is longer than a comm can be ({COMM_MAX} bytes)", where=where,
                           remedy="give what ps -o comm shows")
        return raw
    if key is Key.EXE:
        if not raw.startswith(b"/"):
            raise BadInput("is no absolute path", where=where, remedy="give what readlink /proc/PID/exe shows")
        raw = os.fsencode(os.path.realpath(text)) if len(raw) <= TEXT_MAX else raw
    else:
        raw = b"".join(word + b"\0" for word in raw.split(b" ")) if b"\0" not in raw else raw
    if len(raw) > TEXT_MAX:
        raise BadInput(f"is longer than a filter compares ({TEXT_MAX} bytes)", where=where,
                       remedy="filter by comm or pid")
    return raw


def parse_rule(text: str, *, accept: bool) -> Rule:
    """`KEY=VALUE[:KIND,…]`. Words of a command line are separated by one space each (or NULs, for words that have
    some). Raises BadInput."""
    where = f"{'--accept' if accept else '--reject'} {text}"
    word, equals, rest = text.partition("=")
    if not equals or word not in _KEYS:
        raise BadInput("is no rule", where=where, remedy=f"write KEY=VALUE[:KIND,…] with a key of {', '.join(_KEYS)}")
    key = _KEYS[word]
    value, kinds = _split_kinds(rest)
    return Rule(accept, key, _value(key, value, where), parse_kinds(kinds, where) if kinds else ALL_KINDS)


def parse_default(text: str) -> tuple[Key, bool]:
    """`KEY=accept` or `KEY=reject`. Raises BadInput."""
    word, _, what = text.partition("=")
    if word not in _KEYS or what not in ("accept", "reject"):
        raise BadInput("is no default", where=f"--default {text}",
                       remedy=f"write KEY=accept or KEY=reject with a key of {', '.join(_KEYS)}")
    return _KEYS[word], what == "accept"


def from_options(accept: Sequence[str] = (), reject: Sequence[str] = (), default: Sequence[str] = (),
                 kinds: frozenset[Kind] = ALL_KINDS) -> Rules:
    """The rules of a command line. Raises BadInput."""
    defaults: dict[Key, bool] = {}
    for text in default:
        key, what = parse_default(text)
        if defaults.setdefault(key, what) != what:
            raise BadInput("contradicts another default", where=f"--default {text}", remedy="give one for each key")
    rules = (*(parse_rule(text, accept=True) for text in accept), *(parse_rule(text, accept=False) for text in reject))
    return _checked(Rules(rules, defaults, kinds), "--accept and --reject")


def _checked(rules: Rules, where: str) -> Rules:
    if len(rules.rules) > MAX_RULES:
        raise BadInput(f"are {len(rules.rules)} rules, more than {MAX_RULES}", where=where,
                       remedy="use a coarser key")
    return rules


def _strings(table: dict[str, object], name: str, where: str) -> list[str]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"{name} is no list of strings", where=where, remedy=f'write {name} = ["comm=nginx"]')
    return [str(one) for one in value]


def load(path: Path) -> Rules:
    """Rules of a TOML file: lists `accept`, `reject`, `default` and `kinds` of strings as on the command line, in its
    table `[filter]`. Raises BadInput."""
    where = str(path)
    try:
        with path.open("rb") as source:
            document = tomllib.load(source)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=where, remedy="check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"is no TOML ({error})", where=where, remedy="see ptweave events --help") from error
    table = document.get("filter")
    known = {"accept", "reject", "default", "kinds"}
    if not isinstance(table, dict) or set(table) - known or set(document) - {"filter"}:
        raise BadInput("has other contents than a table [filter] with accept, reject, default and kinds", where=where,
                       remedy="see ptweave events --help")
    kinds = parse_kinds(",".join(_strings(table, "kinds", where)), where) if "kinds" in table else ALL_KINDS
    return from_options(_strings(table, "accept", where), _strings(table, "reject", where),
                        _strings(table, "default", where), kinds)


def choose(given: Rules, file: Path | None) -> Rules:
    """The rules of the command line, or of a file. Raises BadInput for both."""
    if file is None:
        return given
    if given.rules or given.defaults:
        raise BadInput("rules are given twice", where=f"--filter {file}",
                       remedy="put those of --accept, --reject and --default into the file")
    return load(file)


__all__ = ["ALL_KINDS", "PROBED", "USUAL", "Key", "Kind", "PackedRule", "Rule", "Rules", "bits", "choose",
           "from_options", "load", "pack",
           "parse_default", "parse_kinds", "parse_rule"]
