# SPDX-License-Identifier: MIT
"""A small Intel PT packet writer: one method a packet (SDM vol. 3, 33.4), bytes out.

IPs are compressed as a processor would, against the last IP written, unless a test asks for a form by name. Nothing
is checked: tests write wrong streams too.
"""

from __future__ import annotations

from enum import IntEnum

PSB = b"\x02\x82" * 8
PSBEND = b"\x02\x23"


class Ip(IntEnum):
    """IPBytes: how much of an IP a packet carries."""

    SUPPRESSED = 0
    UPDATE_16 = 1
    UPDATE_32 = 2
    SEXT_48 = 3
    UPDATE_48 = 4
    FULL = 6


WIDTH = {Ip.SUPPRESSED: 0, Ip.UPDATE_16: 2, Ip.UPDATE_32: 4, Ip.SEXT_48: 6, Ip.UPDATE_48: 6, Ip.FULL: 8}


class PtWriter:
    """Packets in the order they are written; `data` is the trace."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.last_ip = 0

    def __len__(self) -> int:
        return len(self.data)

    def raw(self, data: bytes) -> PtWriter:
        self.data += data
        return self

    # --- synchronisation

    def psb(self) -> PtWriter:
        self.last_ip = 0
        return self.raw(PSB)

    def psbend(self) -> PtWriter:
        return self.raw(PSBEND)

    def psb_plus(self, ip: int | None = None, tsc: int | None = None) -> PtWriter:
        """PSB+: with `ip` tracing is on and there; the processor runs in 64-bit mode."""
        self.psb()
        if tsc is not None:
            self.tsc(tsc)
        if ip is not None:
            self.mode_exec().fup(ip)
        return self.psbend()

    def pad(self, count: int = 1) -> PtWriter:
        return self.raw(bytes(count))

    def ovf(self) -> PtWriter:
        self.last_ip = 0  # as after a PSB, the next IP is not compressed
        return self.raw(b"\x02\xf3")

    # --- branches

    def tnt(self, bits: str) -> PtWriter:
        """Short TNT: up to six bits, `!` or `1` taken, `.` or `0` not."""
        value = 1
        for bit in bits:
            value = value << 1 | (bit in "!1")
        return self.raw(bytes([value << 1]))

    def tnt_long(self, bits: str) -> PtWriter:
        """Long TNT: up to 47 bits."""
        value = 1
        for bit in bits:
            value = value << 1 | (bit in "!1")
        return self.raw(b"\x02\xa3" + value.to_bytes(6, "little"))

    def _ip(self, opcode: int, ip: int | None, form: Ip | None) -> PtWriter:
        if ip is None:
            return self.raw(bytes([opcode]))
        if form is None:
            if ip >> 16 == self.last_ip >> 16:
                form = Ip.UPDATE_16
            elif ip >> 32 == self.last_ip >> 32:
                form = Ip.UPDATE_32
            else:
                form = Ip.SEXT_48 if ip < 1 << 47 else Ip.FULL
        self.last_ip = ip
        width = WIDTH[form]
        return self.raw(bytes([form << 5 | opcode]) + (ip & (1 << 8 * width) - 1).to_bytes(width, "little"))

    def tip(self, ip: int | None, form: Ip | None = None) -> PtWriter:
        return self._ip(0x0D, ip, form)

    def pge(self, ip: int, form: Ip | None = None) -> PtWriter:
        return self._ip(0x11, ip, form)

    def pgd(self, ip: int | None = None, form: Ip | None = None) -> PtWriter:
        return self._ip(0x01, ip, form)

    def fup(self, ip: int | None, form: Ip | None = None) -> PtWriter:
        return self._ip(0x1D, ip, form)

    # --- state

    def mode_exec(self, bits: int = 64, *, interrupts: bool = False) -> PtWriter:
        return self.raw(bytes([0x99, {16: 0, 32: 2, 64: 1}[bits] | interrupts << 2]))

    def mode_tsx(self, *, begun: bool = False, aborted: bool = False) -> PtWriter:
        return self.raw(bytes([0x99, 0x20 | aborted << 1 | begun]))

    def pip(self, cr3: int, *, non_root: bool = False) -> PtWriter:
        return self.raw(b"\x02\x43" + (cr3 >> 5 << 1 | non_root).to_bytes(6, "little"))

    def vmcs(self, base: int) -> PtWriter:
        return self.raw(b"\x02\xc8" + (base >> 12).to_bytes(5, "little"))

    def stop(self) -> PtWriter:
        return self.raw(b"\x02\x83")

    # --- time

    def tsc(self, value: int) -> PtWriter:
        return self.raw(b"\x19" + value.to_bytes(7, "little"))

    def tma(self, ctc: int, fast: int) -> PtWriter:
        return self.raw(b"\x02\x73" + ctc.to_bytes(2, "little") + b"\0" + fast.to_bytes(2, "little"))

    def mtc(self, ctc: int) -> PtWriter:
        return self.raw(bytes([0x59, ctc]))

    def cyc(self, value: int) -> PtWriter:
        first = 3 | value << 3 & 0xF8 if value < 32 else 7 | value << 3 & 0xF8
        data = bytearray([first])
        value >>= 5
        while value:
            data.append((value & 0x7F) << 1 | (value > 0x7F))
            value >>= 7
        return self.raw(bytes(data))

    def cbr(self, ratio: int) -> PtWriter:
        return self.raw(bytes([0x02, 0x03, ratio, 0]))

    # --- what software and power management say

    def ptw(self, payload: int, *, fup: bool = False, size: int = 8) -> PtWriter:
        return self.raw(bytes([0x02, 0x12 | (size == 8) << 5 | fup << 7]) + payload.to_bytes(size, "little"))

    def exstop(self, *, fup: bool = False) -> PtWriter:
        return self.raw(bytes([0x02, 0x62 | fup << 7]))

    def mwait(self, hints: int, extensions: int) -> PtWriter:
        return self.raw(b"\x02\xc2" + hints.to_bytes(4, "little") + extensions.to_bytes(4, "little"))

    def pwre(self, state: int, sub_state: int, *, hardware: bool = False) -> PtWriter:
        # HW is bit 7; libipt 2.0 looks at bit 3, which is reserved
        return self.raw(bytes([0x02, 0x22, hardware << 7 | hardware << 3, state << 4 | sub_state]))

    def pwrx(self, last: int, deepest: int, wake: int) -> PtWriter:
        return self.raw(bytes([0x02, 0xA2, last << 4 | deepest, wake, 0, 0, 0]))

    def mnt(self, payload: int) -> PtWriter:
        return self.raw(b"\x02\xc3\x88" + payload.to_bytes(8, "little"))

    # --- events, and records of PEBS

    def cfe(self, kind: int, vector: int = 0, *, fup: bool = False) -> PtWriter:
        return self.raw(bytes([0x02, 0x13, kind | fup << 7, vector]))

    def evd(self, kind: int, payload: int) -> PtWriter:
        return self.raw(bytes([0x02, 0x53, kind]) + payload.to_bytes(8, "little"))

    def bbp(self, kind: int, *, small: bool = False) -> PtWriter:
        """The items that follow have 4 bytes if `small`, else 8."""
        return self.raw(bytes([0x02, 0x63, kind | small << 7]))

    def bip(self, number: int, payload: int, *, small: bool = False) -> PtWriter:
        return self.raw(bytes([number << 3 | 4]) + payload.to_bytes(4 if small else 8, "little"))

    def bep(self, *, fup: bool = False) -> PtWriter:
        return self.raw(bytes([0x02, 0x33 | fup << 7]))
