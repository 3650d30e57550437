# SPDX-License-Identifier: MIT
"""Random programs, run by an interpreter that writes packets: decoding gives back the addresses it executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptweave.decode.expand import Expansion, instruction_hash
from support.pt_oracle import Oracle
from support.random_program import random_run
from support.trace_bundle import Decoded, TraceBundle


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """libipt's instruction decoder, compiled once."""
    return Oracle(tmp_path_factory.mktemp("oracle"))


def addresses(decoded: Decoded) -> list[int]:
    """Every executed address, from the tables."""
    parts = list(Expansion(decoded.bundle).addresses(0))
    return np.concatenate(parts).tolist() if parts else []  # type: ignore[no-any-return]


def hash_of(ips: list[int]) -> int:
    state = 0
    for ip in ips:
        state = (state ^ ip) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 29
    return state


@pytest.mark.parametrize("seed", range(40))
def test_the_executed_addresses_come_back(tmp_path: Path, seed: int) -> None:
    machine = random_run(seed, tmp_path)
    bundle = TraceBundle(tmp_path / "run.ptw").map(machine.code.data, machine.code.base)
    decoded = bundle.thread(machine.packets.data).decode()
    decoded.check()
    assert decoded.gaps() == []
    assert addresses(decoded) == machine.executed
    assert instruction_hash(decoded.bundle, 0) == (len(machine.executed), hash_of(machine.executed))


def test_a_wrong_address_would_be_noticed(tmp_path: Path) -> None:
    """The control: the same packets over a program with one instruction changed."""
    machine = random_run(3, tmp_path)
    at = machine.executed[50] - machine.code.base
    wrong = bytearray(machine.code.data)
    wrong[at:at + 2] = b"\xcd\x80"
    decoded = TraceBundle(tmp_path / "run.ptw").map(bytes(wrong), machine.code.base).thread(
        machine.packets.data).decode()
    assert addresses(decoded) != machine.executed


@pytest.mark.parametrize("seed", range(100, 112))
def test_blocks_agree_with_the_instruction_decoder(tmp_path: Path, seed: int, oracle: Oracle) -> None:
    machine = random_run(seed, tmp_path, steps=5000)
    bundle = TraceBundle(tmp_path / "run.ptw").map(machine.code.data, machine.code.base)
    decoded = bundle.thread(machine.packets.data).decode()
    run = oracle.run(machine.packets.data, [(machine.code.data, machine.code.base)])
    assert instruction_hash(decoded.bundle, 0) == (run.count, run.hash)
    assert run.errors == 0
    assert run.count == len(machine.executed)


@pytest.mark.parametrize("seed", range(200, 210))
def test_every_psb_is_as_good_a_beginning_as_the_first(tmp_path: Path, seed: int) -> None:
    """Cut off before any PSB, the rest decodes to the rest."""
    machine = random_run(seed, tmp_path)
    whole = machine.executed
    for begin in machine.psbs[1:4]:
        path = tmp_path / f"from-{begin}.ptw"
        bundle = TraceBundle(path).map(machine.code.data, machine.code.base)
        rest = addresses(bundle.thread(bytes(machine.packets.data[begin:])).decode())
        assert rest
        assert rest == whole[len(whole) - len(rest):]


@pytest.mark.parametrize("seed", range(300, 304))
def test_no_block_has_a_branch_before_its_end(tmp_path: Path, seed: int) -> None:
    machine = random_run(seed, tmp_path)
    decoded = TraceBundle(tmp_path / "run.ptw").map(machine.code.data, machine.code.base).thread(
        machine.packets.data).decode()
    starts = {machine.ip(index): instruction for index, instruction in enumerate(machine.program)}
    expansion = Expansion(decoded.bundle)
    for row in decoded.rows("blocks"):
        begin = expansion.length_starts[row["block"]]
        lengths = expansion.lengths[begin:begin + row["instructions"]].tolist()
        ips = [row["ip"] + sum(lengths[:index]) for index in range(len(lengths))]
        kinds = [starts[ip].kind.value for ip in ips]
        assert set(kinds[:-1]) <= {"fill"}
        last = {"cond": "cond_jump", "fill": "other"}.get(kinds[-1], kinds[-1])
        assert row["last"] == last
        assert (row["last_ip"], row["size"]) == (ips[-1], sum(lengths))
