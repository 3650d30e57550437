# SPDX-License-Identifier: MIT
"""Random programs whose call tree is the recursion of the very function that runs them: what ran in which stack is
known without following blocks."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from support.bundle_writer import BundleWriter

FUNCTIONS = 5
SITES = 3


@dataclass
class Program:
    """Functions that call, tail-jump, loop and return; what they do is drawn as they run."""

    writer: BundleWriter
    entry: list[int] = field(default_factory=list)
    loop: list[int] = field(default_factory=list)
    call: list[list[int]] = field(default_factory=list)
    leave: list[list[int]] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(FUNCTIONS):
            name, block = f"fn{number}", self.writer.block
            self.entry.append(block(name, "cond_jump"))
            self.loop.append(block(name, "jump", instructions=5))
            calls, leaves = [], []
            for _ in range(SITES):
                calls.append(block(name, "call", instructions=2))
                leaves.append(block(name, "cond_jump"))  # what a call returns to
            self.call.append(calls)
            self.leave.append([*leaves, block(name, "return")])
            self.tail.append(block(name, "jump"))


@dataclass
class Reference:
    """What ran in each stack: a stack is a tuple of (function, block that called it)."""

    blocks: list[int] = field(default_factory=list)
    calls: dict[tuple[tuple[str, int | None], ...], int] = field(default_factory=lambda: defaultdict(int))
    ran: dict[tuple[tuple[str, int | None], ...], int] = field(default_factory=lambda: defaultdict(int))
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    owners: list[tuple[tuple[str, int | None], ...]] = field(default_factory=list)

    def execute(self, stack: tuple[tuple[str, int | None], ...], block: int) -> None:
        self.blocks.append(block)
        self.owners.append(stack)
        self.ran[stack] += 1

    def times(self, known: list[tuple[int, int]]) -> dict[tuple[tuple[str, int | None], ...], Fraction]:
        """How long each stack ran: between two known moments blocks take equally long; what passes at one is that of
        the block before it."""
        found: dict[tuple[tuple[str, int | None], ...], Fraction] = defaultdict(Fraction)
        for (begin, t), (end, until) in pairwise(known):
            here = self.owners[begin:end] or self.owners[begin - 1:begin] * bool(begin)
            for owner in here:
                found[owner] += Fraction(until - t, end - begin or 1)
        return found


def execute(program: Program, reference: Reference, draw: random.Random, function: int,
            stack: tuple[tuple[str, int | None], ...], depth: int) -> None:
    """Run a function: the call tree is the recursion of this very function."""
    reference.calls[stack] += 1
    began = len(reference.blocks)
    reference.execute(stack, program.entry[function])
    for _ in range(draw.randint(0, 3)):
        if depth and draw.random() < 0.6:
            site = draw.randrange(SITES)
            reference.execute(stack, program.call[function][site])
            callee = draw.randrange(FUNCTIONS)
            inner = (*stack, (f"fn{callee}", program.call[function][site]))
            execute(program, reference, draw, callee, inner, depth - 1)
            reference.execute(stack, program.leave[function][site])
        else:
            reference.execute(stack, program.loop[function])
    if depth and draw.random() < 0.2 and len(stack) > 1:
        reference.execute(stack, program.tail[function])
        reference.spans.append((stack[-1][0], began, len(reference.blocks)))
        other = (function + draw.randint(1, FUNCTIONS - 1)) % FUNCTIONS
        execute(program, reference, draw, other, (*stack[:-1], (f"fn{other}", stack[-1][1])), depth - 1)
    else:
        reference.execute(stack, program.leave[function][SITES])
        reference.spans.append((stack[-1][0], began, len(reference.blocks)))
