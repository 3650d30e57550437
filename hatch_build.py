# SPDX-License-Identifier: MIT
"""Build every C part of ptweave, in place: as hatchling's build hook, or alone as `python hatch_build.py`.

Each room describes its own parts in a `build_*.py` beside its package: a function `build(root)` that
returns the files it made. Nothing is rebuilt whose inputs did not change.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

PARTS = (
    "preload/build_tthread.py",
    "wrapper/build_host.py",
    "wrapper/build_perf.py",
    "wrapper/build_vector.py",
    "wrapper/build_engine.py",
    "wrapper/build_events.py",
    "decode/build_demangle.py",
    "decode/build_evl.py",
    "decode/build_dump.py",
    "decode/build_ipt.py",
    "decode/build_syscalls.py",
    "decode/build_vector.py",
    "merge/build_merge.py",
)


def build_all(root: Path) -> list[Path]:
    """Build all parts below `root`; returns the artefacts. Raises SystemExit with one line when one fails."""
    sys.path.insert(0, str(root / "data"))
    try:
        made: list[Path] = []
        for part in PARTS:
            script = root / part
            if script.exists():
                made += runpy.run_path(str(script))["build"](root)
        return made
    finally:
        sys.path.remove(str(root / "data"))


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, without hatchling: only build_all is wanted
    pass
else:

    class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
        """hatchling's view of `build_all`."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            build_all(Path(self.root))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


if __name__ == "__main__":
    for artefact in build_all(Path(__file__).resolve().parent):
        print(artefact.relative_to(Path(__file__).resolve().parent))
