# SPDX-License-Identifier: MIT
"""A run as one HTML file that needs nothing else: no network, no other file.

The page may do nothing but show itself: its policy allows the one script and the one style sheet in it, by their
hashes, and no connection. Everything from the run is text: the template escapes it, the script makes text nodes.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import jinja2
from markupsafe import Markup

from ptweave.merge.report.contents import Collector, Report
from ptweave.merge.run import Run

SCRIPTS = ("base.js", "timeline.js", "flame.js", "graph.js", "source.js", "start.js")
"""What the page's script is put together from, in this order."""

__all__ = ["Report", "collect", "render"]


def collect(run: Run, folders: list[Path] | None = None) -> Report:
    """What a report shows; source files are read below `folders` only."""
    return Collector(run, folders or []).report()


def render(report: Report) -> str:
    """A report as HTML."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("ptweave.merge.report"), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    loader = environment.loader
    assert loader is not None
    script = "\n".join(loader.get_source(environment, name)[0] for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    style = loader.get_source(environment, "report.css")[0]
    return environment.get_template("report.html").render(
        report=report, script=Markup(script), style=Markup(style), script_hash=_hash(script), style_hash=_hash(style))


def _hash(text: str) -> str:
    """A source for the page's policy (CSP, "hash-source")."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
