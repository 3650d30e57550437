# SPDX-License-Identifier: MIT
"""What the commands do with a bundle: decode it, merge it, and say what is missing. What only recording needs is not
imported here: a command that decodes does not wait for it."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptweave.cli import say
from ptweave.cli.progress import Advance, progress
from ptweave.data import BadInput, Bundle, State, Times
from ptweave.data.locks import STEP, alone

if TYPE_CHECKING:
    from ptweave.data.written import Written
    from ptweave.decode.debug_files import DebugFiles

SHOWN_LOSSES = 3


def open_finished(args: argparse.Namespace) -> Bundle:
    """Open a bundle for decoding; one that its recorder could not finish is finished first, and that is said."""
    bundle = Bundle.open(args.bundle)
    if not bundle.unfinished:
        return bundle
    from ptweave.wrapper.supervisor import repair

    why = repair(bundle)
    if why is not None:
        say(f"{bundle.path}: {why.value}")
    return bundle


def decode(bundle: Bundle, args: argparse.Namespace, files: DebugFiles | None, cluster: Any = None, *,
           merges: bool = False) -> Written | None:
    """Packets, event lists and system calls to tables, as the options of `decode` and `wrap` say, with a progress line;
    `files` finds debug files, `cluster` is a Dask client that is to do the work. `merges`: merging comes next, whose
    modules are loaded meanwhile, and which is given what this returns. Raises BadInput, as `merge` does, while another
    command does one of the two."""
    from ptweave.decode.flow import Decoder, decode_flow

    began = time.monotonic()
    with alone(bundle, STEP), progress("decode", quiet=args.quiet, unit="bytes") as advance:
        bundle.manifest.times = Times(args.times)
        bundle.save_manifest()
        report = decode_flow(bundle, _loading_merge(advance) if merges and args.jobs > 1 else advance, jobs=args.jobs,
                             decoder=Decoder(args.decoder), files=files, cluster=cluster, streams=True, keep=merges)
        _step(bundle, "decode", began)
    if args.verbose:
        seconds = bundle.manifest.steps["decode"]
        say(f"decode: {report.decoder}, {report.jobs} process{'es' * (report.jobs > 1)}: "
            f"{report.trace_bytes / 1e6:.1f} MB of trace, {report.blocks / 1e6:.2f} M blocks, "
            f"{report.instructions / 1e6:.2f} M instructions in {seconds:.2f} s "
            f"({report.trace_bytes / 1e6 / max(seconds, 1e-6):.1f} MB/s)")
        say(f"decode: {report.tasks} tasks, {report.found} of them finished by an earlier decode")
        say("decode: " + ", ".join(f"{name} {took:.2f} s" for name, took in report.seconds.items()))
    _report_names(bundle, files)
    return report.paths


def _loading_merge(advance: Advance) -> Advance:
    """The same; when it is called first, what merging needs is loaded in a thread: the decoder's processes, which are
    forked only where there is no other thread, are there then, and this one has little to do beside them."""
    begun = False

    def told(done: int, total: int) -> None:
        nonlocal begun
        advance(done, total)
        if not begun:
            begun = True
            with contextlib.suppress(RuntimeError):  # no thread is to be had: it is loaded when it is needed
                threading.Thread(target=_load_merge).start()

    return told


def _load_merge() -> None:
    with contextlib.suppress(Exception):  # merging meets what cannot be loaded, and says so
        import ptweave.merge.stage  # noqa: F401


def _report_names(bundle: Bundle, files: DebugFiles | None) -> None:
    """Say which images' symbols could not be read as they should."""
    from ptweave.decode.images import damaged_images
    from ptweave.merge.render import safe

    damaged = damaged_images(bundle.tables)
    if damaged:
        names = ", ".join([safe(name) for name in damaged[:SHOWN_LOSSES]] + ["…"] * (len(damaged) > SHOWN_LOSSES))
        say(f"{bundle.path}: {len(damaged)} image{'s have' if len(damaged) > 1 else ' has'} damaged symbol tables, or "
            f"files that do not fit ({names}): see the column problem of the table images")
    if files is not None:
        for problem in files.server_problems:
            say(f"debuginfod: {safe(problem)}")


def merge(bundle: Bundle, *, calls: bool, quiet: bool, jobs: int, paths: Written | None = None) -> None:
    """Everything onto the flow, with a progress line. `paths`: what `decode` left in memory."""
    from ptweave.merge.stage import merge_run

    if not is_decoded(bundle):
        raise BadInput("is not decoded yet", where=str(bundle.path), remedy=f"run ptweave decode {bundle.path} first")
    began = time.monotonic()
    with alone(bundle, STEP), progress("merge", quiet=quiet) as advance:
        merge_run(bundle, calls=calls, progress=advance, jobs=jobs, paths=paths)
        _step(bundle, "merge", began)


def is_decoded(bundle: Bundle) -> bool:
    """Whether there is flow to merge onto: it appears when all of it is decoded."""
    return (bundle.tables / "flow").is_dir()


def _step(bundle: Bundle, name: str, began: float) -> None:
    bundle.manifest.steps[name] = round(time.monotonic() - began, 6)
    bundle.save_manifest()


def incomplete(bundle: Bundle) -> bool:
    """Whether anything is known to be missing."""
    return bool(bundle.ledger().losses or bundle.manifest.lacks or bundle.manifest.state is not State.COMPLETE)


_UNDECODED = {"missing_image": "code that is not in the bundle", "decode_error": "packets that cannot be decoded",
              "overflow": "packets that were never recorded", "truncated": "packets that are cut"}
"""Kinds of gaps in words."""

_PLACED = {"time": "by time only", "none": "nowhere"}


def _loss(name: str, why: str, count: int, unit: str) -> str:
    """A loss of the ledger in words: stream, why, how much."""
    stream, _, of = name.partition("/")
    if stream == "decode" and why in _UNDECODED:
        trace = f"thread {of}" if of.isdigit() else of
        return f"{count} {unit} of the trace of {trace} ({why}: {_UNDECODED[why]}; where: table gaps)"
    if stream == "placed" and why in _PLACED:
        return f"exact places of {count} {of} (placed {_PLACED[why]})"
    return f"{count} {unit} of {name} ({why})"


def losses(bundle: Bundle) -> list[str]:
    """What is missing, in words."""
    parts = list(bundle.manifest.lacks)
    lost = sorted(bundle.ledger().losses, key=lambda loss: -loss[2])
    parts += [_loss(*loss) for loss in lost[:SHOWN_LOSSES]]
    if len(lost) > SHOWN_LOSSES:
        parts.append(f"{len(lost) - SHOWN_LOSSES} more in ledger.json")
    return parts


def report_losses(bundle: Bundle, *, quiet: bool, more: Sequence[str] = ()) -> None:
    """The last line a user sees: what is missing, or that nothing is. `more` is missing though the bundle is whole."""
    parts = [*more, *losses(bundle)]
    if parts:
        say(f"{bundle.path}: incomplete: lacks {'; '.join(parts)}")
    elif not quiet:
        say(f"{bundle.path}: nothing lost")
