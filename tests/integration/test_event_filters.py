# SPDX-License-Identifier: MIT
"""The filters in the kernel against a model of them in Python, on processes whose events are known."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ptweave.data.syscall_table import NUMBERS
from ptweave.wrapper import event_columns
from ptweave.wrapper.filters import USUAL, Key, Kind, Rule, Rules
from ptweave.wrapper.kernel_events import KernelEvents, Options, Variant
from support.bpf import needs_bpf
from support.programs import compile_program

pytestmark = [pytest.mark.root, needs_bpf]

GETPPID = NUMBERS["getppid"]
RULE_SETS = 1000
COMMS = (b"one", b"two", b"fifteen bytes !", b"\xff\xfe")


@dataclass
class Server:
    """A process that makes events when it is told to, and who it is."""

    process: subprocess.Popen[bytes]
    exe: bytes
    comm: bytes
    words: bytes
    expected: Counter[Kind] = field(default_factory=Counter)

    @property
    def pid(self) -> int:
        return self.process.pid

    def value(self, key: Key) -> int | bytes:
        return {Key.PID: self.pid, Key.TID: self.pid, Key.COMM: self.comm, Key.EXE: self.exe,
                Key.CMDLINE: self.words}[key]

    def tell(self, command: bytes) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(command)
        self.process.stdin.flush()
        assert self.process.stdout.read(1) in (b"d", b"r")

    def rename(self, comm: bytes) -> None:
        self.tell(b"c" + comm.ljust(15, b"\0"))
        self.comm = comm

    def become(self, exe: bytes) -> None:
        self.tell(b"x" + bytes([len(exe)]) + exe)
        self.exe, self.comm = exe, exe.rsplit(b"/", 1)[1][:15]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    first = compile_program(tmp_path, "event_server")
    deep = tmp_path / "deep" / "er"
    deep.mkdir(parents=True)
    other = deep / "other-server"
    shutil.copy2(first, other)
    made = []
    for exe, words in ((first, ["a"]), (first, ["a", "b c"]), (other, ["a"]), (other, [""])):
        process = subprocess.Popen([str(exe), *words], executable=exe, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        text = b"".join(word.encode() + b"\0" for word in [str(exe), *words])
        made.append(Server(process, bytes(exe), exe.name.encode()[:15], text))
        assert process.stdout is not None and process.stdout.read(1) == b"r"
    yield made
    for server in made:
        server.process.kill()
        server.process.communicate()


def passes(rules: Rules, server: Server, kind: Kind) -> bool:
    """The model: what the rules mean, said in another way than the programs do it."""
    if kind not in rules.kinds:
        return False
    for key in Key:
        mine = [rule for rule in rules.rules if rule.key is key]
        if not mine and key not in rules.defaults:
            continue
        fitting = [rule for rule in mine if kind in rule.kinds and rule.value == server.value(key)]
        if any(not rule.accept for rule in fitting):
            return False
        if fitting:
            continue
        accepts_others = any(rule.accept and kind in rule.kinds for rule in mine)
        if not rules.defaults.get(key, not accepts_others):
            return False
    return True


def random_rules(rng: random.Random, servers: list[Server]) -> Rules:
    rules = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
        key = rng.choice(list(Key))
        value = rng.choice([server.value(key) for server in servers])
        if rng.random() < 0.15:
            value = 1 if isinstance(value, int) else b"/nobody"
        if key is Key.COMM and rng.random() < 0.3:
            value = rng.choice(COMMS)
        kinds = frozenset(rng.sample(list(USUAL), rng.randint(1, len(USUAL))))
        rules.append(Rule(rng.random() < 0.6, key, value, kinds))
    defaults = {key: rng.random() < 0.5 for key in Key if rng.random() < 0.1}
    kinds = frozenset(rng.sample(list(USUAL), rng.randint(1, 5))) if rng.random() < 0.2 else frozenset(USUAL)
    return Rules(tuple(rules), defaults, kinds)


@dataclass
class Seen:
    """How many events of each kind each server made under each number."""

    events: Counter[tuple[int, Kind, int]] = field(default_factory=Counter)
    numbers: dict[int, int] = field(default_factory=dict)  # pid → number of its last getppid

    def take(self, recorder: KernelEvents, *, everything: bool) -> None:
        for batch in recorder.batches(everything=everything):
            calls = event_columns.syscalls(recorder.ffi, batch)
            for pid, number, args in zip(*(calls.column(name).to_pylist() for name in ("pid", "number", "args")),
                                         strict=True):
                if number == GETPPID:
                    self.events[pid, Kind.SYSCALL, args[0]] += 1
            for row in event_columns.events(recorder.ffi, batch, Kind.WRITE):
                if row["bytes"] > 1:
                    self.events[int(row["pid"]), Kind.WRITE, int(row["bytes"])] += 1


@pytest.mark.parametrize("variant", [Variant.TYPED, Variant.RAW], ids=lambda variant: variant.value)
def test_a_thousand_random_rule_sets_pass_what_the_model_passes(variant: Variant, servers: list[Server]) -> None:
    """Rules change while the processes run; each number is used under one set only.

    System calls and writes can be told apart by number; the other kinds are compared in total, set by set.
    """
    rng = random.Random(12)
    recorder = KernelEvents(Options(variant=variant, rules=Rules()))
    try:
        for server in servers:
            recorder.follow(server.pid)
        seen, expected = Seen(), Counter[tuple[int, Kind, int]]()
        for turn in range(RULE_SETS // 2):
            number = 2 + turn
            if rng.random() < 0.2:
                rng.choice(servers).rename(rng.choice(COMMS))
            rules = random_rules(rng, servers)
            recorder.filter(rules)
            if rng.random() < 0.05:
                rng.choice(servers).become(rng.choice([one.exe for one in servers]))
            for server in servers:
                server.tell(b"t" + number.to_bytes(2, "little"))
                for kind in (Kind.SYSCALL, Kind.WRITE):
                    if passes(rules, server, kind):
                        expected[server.pid, kind, number] += 1
            seen.take(recorder, everything=False)
        recorder.stop()
        seen.take(recorder, everything=True)
        assert seen.events == expected
        assert 500 < len(expected) < 8 * RULE_SETS
    finally:
        recorder.close()


def counts(recorder: KernelEvents) -> Counter[tuple[int, Kind]]:
    """Events by process and kind, of what is there now; calls only those of `events` in the program."""
    found: Counter[tuple[int, Kind]] = Counter()
    for batch in recorder.batches(everything=True):
        calls = event_columns.syscalls(recorder.ffi, batch)
        found.update((pid, Kind.SYSCALL) for pid, number in zip(
            calls.column("pid").to_pylist(), calls.column("number").to_pylist(), strict=True) if number == GETPPID)
        for kind in (Kind.BLOCKING, Kind.FILE_DESCRIPTOR_CHANGE, Kind.SIGNAL, Kind.WRITE):
            for row in event_columns.events(recorder.ffi, batch, kind):
                if kind is Kind.BLOCKING and row["number"] != GETPPID:
                    continue
                if kind is Kind.WRITE and row["bytes"] != 9:
                    continue
                found[int(row["pid"]), kind] += 1
    return found


def test_every_kind_follows_the_rules_of_its_own(servers: list[Server]) -> None:
    """Five kinds, compared set by set: one getppid, one blocking of it, dup and close, one signal, one write."""
    each = {Kind.SYSCALL: 1, Kind.BLOCKING: 1, Kind.FILE_DESCRIPTOR_CHANGE: 2, Kind.SIGNAL: 1, Kind.WRITE: 1}
    rng = random.Random(3)
    recorder = KernelEvents(Options(rules=Rules()))
    passed = 0
    try:
        for server in servers:
            recorder.follow(server.pid)
        for _ in range(100):
            rules = random_rules(rng, servers)
            recorder.filter(rules)
            counts(recorder)
            for server in servers:
                server.tell(b"t" + (9).to_bytes(2, "little"))
            expected = {(server.pid, kind): each[kind] for server in servers for kind in USUAL
                        if passes(rules, server, kind)}
            assert dict(counts(recorder)) == expected, rules
            passed += len(expected)
        assert passed > 300
    finally:
        recorder.close()


def test_the_model_can_tell_a_wrong_filter(servers: list[Server]) -> None:
    """The control: rules that say the opposite are found to differ."""
    rules = Rules((Rule(True, Key.PID, servers[0].pid),))
    opposite = replace(rules, rules=(replace(rules.rules[0], accept=False),))
    assert [passes(rules, server, Kind.WRITE) for server in servers] == [True, False, False, False]
    assert [passes(opposite, server, Kind.WRITE) for server in servers] == [False, True, True, True]


def test_no_event_is_lost_while_rules_change(servers: list[Server]) -> None:
    """A process makes calls at full rate; every rule set lets them pass."""
    recorder = KernelEvents(Options(rules=Rules()))
    rounds, changes = 500, 20  # so many calls are under way at each change, at least
    try:
        recorder.follow(servers[0].pid)
        pipe = servers[0].process.stdin
        assert pipe is not None and servers[0].process.stdout is not None
        os.set_blocking(servers[0].process.stdout.fileno(), True)
        asked = answered = changed = 0
        seen = Seen()
        while changed < changes or answered < asked:
            if changed < changes:
                pipe.write(b"".join(b"t" + (2).to_bytes(2, "little") for _ in range(rounds)))
                pipe.flush()
                asked += rounds
                changed += 1
                recorder.filter(Rules((Rule(True, Key.PID, servers[0].pid),
                                       Rule(False, Key.COMM, b"nobody %d" % changed))))
            seen.take(recorder, everything=False)
            answered += len(os.read(servers[0].process.stdout.fileno(), 1 << 16))
        recorder.stop()
        seen.take(recorder, everything=True)
        assert answered == asked == rounds * changes
        assert seen.events[servers[0].pid, Kind.SYSCALL, 2] == asked
        assert seen.events[servers[0].pid, Kind.WRITE, 2] == asked
    finally:
        recorder.close()


def test_a_comm_that_changes_all_the_time_is_judged_call_by_call(servers: list[Server]) -> None:
    recorder = KernelEvents(Options(rules=Rules((Rule(True, Key.COMM, b"two"),))))
    try:
        recorder.follow(servers[0].pid)
        for turn in range(500):
            servers[0].rename(COMMS[turn % 2])
            servers[0].tell(b"t" + (turn + 2).to_bytes(2, "little"))
        recorder.stop()
        seen = Seen()
        seen.take(recorder, everything=True)
        calls = sorted(number for _, kind, number in seen.events if kind is Kind.SYSCALL)
        assert calls == [turn + 2 for turn in range(500) if turn % 2]
    finally:
        recorder.close()
