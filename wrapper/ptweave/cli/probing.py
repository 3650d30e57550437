# SPDX-License-Identifier: MIT
"""From --probe and --handler to a plan."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ptweave.cli import say
from ptweave.cli.code import load_code
from ptweave.data import BadInput
from ptweave.preload import include_path, library_path
from ptweave.wrapper.probes.handlers import Handlers
from ptweave.wrapper.probes.plan import Plan, Wanted, linked_files, make_plan
from ptweave.wrapper.probes.spec import Form, parse_spec
from ptweave.wrapper.target import Target

DEFAULT = "log"


def plan_for(given: Sequence[tuple[str, str]], target: Target, *, arrivals: bool = False) -> Plan:
    """`given`: --probe and --handler with their values, in their order; `arrivals`: libraries that come are to be
    noticed. Raises BadInput before anything runs."""
    linked = linked_files(target.executable)
    scratch = Path(tempfile.mkdtemp(prefix="ptweave-handlers-"))
    try:
        wanted = _wanted(given, Handlers(include_path(), scratch)) if given else []
        plan = make_plan(wanted, linked, load_code, arrivals=arrivals, preloaded=library_path())
        plan.keep_objects()
    finally:
        for path in scratch.iterdir():
            path.unlink()
        scratch.rmdir()
    if plan.refused:
        first = plan.refused[0]
        say(f"{len(plan.refused)} of {len(plan.hits)} places cannot be probed, such as {first.function or 'one'} at "
            f"{first.path}+{first.address:#x}: {first.reason} (table probe_sites)")
    return plan


def _wanted(given: Sequence[tuple[str, str]], handlers: Handlers) -> list[Wanted]:
    handler, found = handlers.get(DEFAULT), []
    for option, value in given:
        if option == "--handler":
            handler = handlers.get(value)
        elif value.startswith("@"):
            found += [Wanted(parse_spec(line), handler, strict=False) for line in _lines(Path(value[1:]))]
        else:
            spec = parse_spec(value)
            many = spec.form in (Form.BYTES, Form.ASSEMBLY) or (spec.form is Form.SYMBOL and "*" in spec.name)
            found.append(Wanted(spec, handler, strict=not many))
    if not found:
        raise BadInput("comes with no --probe behind it", where="--handler", remedy="put it before its --probe")
    return found


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read ({error})", where=str(path), remedy="check --probe @LIST") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise BadInput("has no SPEC in it", where=str(path), remedy="write one a line")
    return found
