# SPDX-License-Identifier: MIT
"""`ptweave notebook`: JupyterLab on a notebook made for a run."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from ptweave.cli.options import add_quiet
from ptweave.data.errors import Exit, MachineLacks, NotInstalled
from ptweave.merge import Run

SUMMARY = "open JupyterLab on a notebook made for a run"
EXAMPLES = """\
  ptweave notebook prog.ptw                      # makes prog.ipynb here, if it is not there, and opens it
  ptweave notebook prog.ptw --no-open            # makes it only
  ptweave notebook prog.ptw -- --no-browser --port 9999   # what follows -- goes to jupyter lab

A notebook that is there already is opened as it is. Needs, in ptweave's own folder:
.venv/bin/pip install -e '.[notebook]'.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="run bundle (NAME.ptw)")
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path, help="the notebook (default: NAME.ipynb here)")
    parser.add_argument("--no-open", action="store_true", help="make the notebook, and leave it at that")
    add_quiet(parser)
    parser.set_defaults(command_words=[])


def run(args: argparse.Namespace) -> int:
    """Make the notebook and become JupyterLab; returns the exit status only when it does not."""
    from ptweave.cli import say
    from ptweave.merge.notebook import notebook_of

    if not args.no_open and find_spec("jupyterlab") is None:
        raise NotInstalled("JupyterLab", "notebook")
    with Run(args.run) as opened:
        output: Path = args.output or Path(opened.path.name).with_suffix(".ipynb")
        content = notebook_of(opened)
    try:
        with output.open("x") as file:
            file.write(content)
    except FileExistsError:
        say(f"{output}: is there already: {'left' if args.no_open else 'opened'} as it is")
    except OSError as error:
        raise MachineLacks(f"cannot be written ({error.strerror})", where=str(output),
                           remedy="choose another place with -o") from error
    else:
        if args.no_open and not args.quiet:
            say(f"{output}: made; open it with: {_opening(args)}")
    if not args.no_open:
        # JupyterLab does not start as root unless told so; who runs ptweave as root has chosen that
        root = ["--allow-root"] if os.geteuid() == 0 else []
        first = f"--LabApp.default_url=/lab/tree/{quote(output.name)}"  # without a browser it says where to go: there
        sys.stdout.flush()
        os.execv(sys.executable,
                 [sys.executable, "-m", "jupyterlab", *root, first, *args.command_words, "--", str(output)])
    return int(Exit.DONE)


def _opening(args: argparse.Namespace) -> str:
    """The command that opens the notebook which is there now."""
    return shlex.join(["ptweave", "notebook", str(args.run), *(["-o", str(args.output)] if args.output else [])])
