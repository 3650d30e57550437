# SPDX-License-Identifier: MIT
"""`--cluster`: decode and merge by the workers of a Dask cluster, of runs anywhere fsspec reaches.

A single run that is decoded in a folder is shared out task by task. Otherwise each run is one task: a worker fetches
it, works on it as this command would, and puts back what it made.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptweave.data.errors import BadInput, Exit, MachineLacks, PtweaveError
from ptweave.data.store import bundle_at, matching, place

if TYPE_CHECKING:
    from ptweave.data.bundle import Bundle

def add_cluster(parser: argparse.ArgumentParser) -> None:
    """The option --cluster."""
    parser.add_argument("--cluster", metavar="ADDRESS",
                        help="have the workers of this Dask scheduler do it (tcp://host:8786; docs/scale.md); RUN may "
                        "then be a URL of any store fsspec knows (s3://bucket/a.ptw), a pattern, or several of them")


@dataclass(frozen=True)
class Job:
    """What a worker is to do with a run. `options`: those of the command."""

    url: str
    step: str  # decode or merge
    options: argparse.Namespace
    version: str


@dataclass(frozen=True)
class Outcome:
    """What came of it: what the run lacks, or one line of an error with its exit status."""

    url: str
    lacks: tuple[str, ...] = ()
    error: str = ""
    status: Exit = field(default=Exit.DONE)


def run_on_cluster(step: str, args: argparse.Namespace, runs: list[str]) -> int:
    """Do a step with all runs; returns the exit status, the worst of them. What is wrong with one is said, the others
    are done."""
    from ptweave.cli import say
    from ptweave.cli.version import version_line
    from ptweave.decode.cluster import connect

    urls = [one for run in runs for one in matching(run)]
    options = argparse.Namespace(**{name: value for name, value in vars(args).items() if name in _OPTIONS})
    options.quiet, options.verbose, options.jobs = True, False, 1
    worst = Exit.DONE
    with connect(args.cluster) as client, client.as_current():
        for outcome in _outcomes(client, [Job(url, step, options, version_line()) for url in urls]):
            worst = max(worst, outcome.status)
            if outcome.error:
                say(outcome.error)
            elif outcome.lacks:
                say(f"{outcome.url}: incomplete: lacks {'; '.join(outcome.lacks)}")
            elif not args.quiet:
                say(f"{outcome.url}: {step}d, nothing lost")
    return int(worst)


_OPTIONS = ("times", "decoder", "calls", "debug_dir", "debuginfod")


def _outcomes(client: Any, jobs: list[Job]) -> Iterator[Outcome]:
    """What comes of the jobs, as they are done. A job whose worker died is done again by another, as Dask does."""
    distributed: Any = import_module("distributed")
    futures = {future.key: (future, job) for job in jobs for future in [client.submit(do, job, pure=False)]}
    for future in distributed.as_completed([future for future, _ in futures.values()]):
        _, job = futures.pop(future.key)
        error = future.exception()
        if error is None:
            yield future.result()
        else:
            yield Outcome(job.url, error=f"{job.url}: workers of the cluster were lost with it "
                          f"({type(error).__name__}): give them more memory", status=Exit.MACHINE)


def do(job: Job) -> Outcome:
    """On a worker: the job, and what came of it."""
    from ptweave.cli import explain
    from ptweave.cli.version import version_line

    try:
        if version_line() != job.version:
            raise MachineLacks(f"a worker has another ptweave ({version_line()})", where=job.url,
                               remedy=f"install {job.version} there")
        without = ("tables",) if job.step == "decode" else ("trace", "spool")
        with bundle_at(job.url, without=without) as bundle:
            return _step(bundle, job)
    except (PtweaveError, OSError) as error:
        status = error.status if isinstance(error, PtweaveError) else Exit.MACHINE
        return Outcome(job.url, error=explain(error), status=status)


def _step(bundle: Bundle, job: Job) -> Outcome:
    from ptweave.cli.options import debug_files
    from ptweave.cli.session import decode, incomplete, losses, merge
    from ptweave.wrapper.supervisor import repair

    repair(bundle)
    if job.step == "decode":
        decode(bundle, job.options, debug_files(job.options))
    else:
        merge(bundle, calls=job.options.calls, quiet=True, jobs=1)
    return Outcome(job.url, tuple(losses(bundle)), status=Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)


def one_folder(runs: list[str]) -> Path | None:
    """The folder that is meant, when it is one run on a file system here."""
    urls = [one for run in runs for one in matching(run)]
    return place(urls[0]).here if len(urls) == 1 else None


def only_one(runs: list[str]) -> str:
    """The run that is meant where there may be one alone. Raises BadInput."""
    if len(runs) > 1:
        raise BadInput("is one run too many", where=runs[1], remedy="several go with --cluster")
    if "://" in runs[0] and place(runs[0]).here is None:
        raise BadInput("is in a store", where=runs[0], remedy="have a cluster work on it (--cluster), or copy it here")
    return runs[0]
