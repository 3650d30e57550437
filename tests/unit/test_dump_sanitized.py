# SPDX-License-Identifier: MIT
"""The dump's C half under the address and undefined-behaviour sanitizers, with what a hostile bundle may hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.assembler import PROGRAMS, ROOT, compile_c
from support.pt_writer import PtWriter

SOURCES = [ROOT / "decode/src" / f"{name}.c" for name in
           ("dump_code", "dump_events", "dump_flow", "dump_lengths", "dump_packets", "dump_text", "walker")]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "dump_driver.c", tmp_path_factory.mktemp("driver") / "driver", *map(str, SOURCES), "-g",
                     f"-I{ROOT / 'decode/src'}", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-lipt",
                     "-lZydis")


def drive(driver: Path, *args: str | Path) -> int:
    """Run the driver; returns bytes of text it made."""
    done = subprocess.run([str(driver), *map(str, args)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout.split()[0])


def every_packet() -> bytes:
    packets = PtWriter()
    for number in range(20):
        packets.psb_plus(0x401000 + number, tsc=number).tip(0x402000 + number).tnt("!.!").tnt_long("!." * 20).mtc(3)
        packets.cyc(1 << number).tma(1, 2).cbr(9).pip(0x1000).vmcs(0x2000).ptw(7, fup=True).exstop().mwait(1, 2)
        packets.pwre(1, 2).pwrx(1, 2, 3).mnt(5).mode_tsx(begun=True).fup(0x7FFF00000000).ovf().stop().pad(3)
        packets.pgd().pge(0xFFFF800000000000)
    return bytes(packets.data)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_damaged_packets_cannot_hurt(driver: Path, tmp_path: Path, seed: int) -> None:
    (tmp_path / "trace").write_bytes(every_packet())
    assert drive(driver, "packets", tmp_path / "trace", str(seed), "1500") > 1_000_000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tables_of_random_numbers_cannot_hurt(driver: Path, seed: int) -> None:
    assert drive(driver, "flow", "/bin/true", str(seed), "120") > 100_000


def test_control_a_reader_beyond_the_end_would_be_caught(tmp_path: Path) -> None:
    """The same sanitizers stop a program that reads a byte too many."""
    source = tmp_path / "beyond.c"
    source.write_text("#include <stdlib.h>\nint main(int n, char **v) { (void)v; char *p = malloc((size_t)n);\n"
                      "return p[n]; }\n")
    program = compile_c(source, tmp_path / "beyond", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
