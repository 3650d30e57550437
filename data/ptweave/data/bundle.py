# SPDX-License-Identifier: MIT
"""The run bundle: one folder (`NAME.ptw/`, mode 0700) that holds everything recorded in one run.

    run.json                  manifest (`ptweave.data.manifest`)
    trace/<thread>.pt         Intel PT packets of one thread, as recorded (SDM vol. 3, chapter 33)
    trace/<thread>.psb        where its PSBs are: pairs of little-endian u64, offset and TSC (0 unknown), in order
    trace/<thread>.sys        the soft engine's log of the system calls the thread made (`ptweave.data.syslog`)
    trace/engine.log          what the soft engine had to say: there when it failed
    sideband.arrow            maps, threads, slices (`ptweave.data.sideband`)
    dependence/<thread>.evl   event list of libtthread (`ptweave.data.evl`)
    events/syscalls.arrow     system calls as the kernel saw them (`ptweave.data.schemas.RAW_SYSCALLS`)
    images/<name>             code images by build id, or sha256 of their bytes
    images/perf-<pid>.map     names of the code a process generated, as it left them in /tmp (`perf_map_name`)
    ledger.json               what was produced, stored, lost (`ptweave.data.ledger`)
    decoded/                  between decode and merge: intermediate tables, safe to delete
    tables/<table>/*.parquet  the answer (`ptweave.data.schemas`)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest, State

SUFFIX = ".ptw"
FOLDERS = ("trace", "dependence", "events", "images", "decoded", "tables")
SPOOL = "spool"
"""Where an engine writes while a run is recorded; gone from a finished bundle."""


def perf_map_name(pid: int) -> str:
    """Name of a process's map of generated code, in /tmp and in `images/`: lines of START SIZE NAME, in hexadecimal."""
    return f"perf-{pid}.map"


class Bundle:
    """Paths and small files of one run bundle. Opening one checks its manifest."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, path: Path, manifest: Manifest, *, made: bool = False) -> Bundle:
        """Make a new bundle folder; `made`: it is there, ours and empty. Raises BadInput when the path exists,
        MachineLacks when it cannot be made."""
        try:
            if not made:
                path.mkdir(mode=0o700)
            for name in FOLDERS:
                (path / name).mkdir(mode=0o700)
            bundle = cls(path, manifest)
            bundle.save_manifest()
        except FileExistsError as error:
            raise BadInput("exists already", where=str(path),
                           remedy="remove it, or choose another name with -o") from error
        except FileNotFoundError as error:
            raise BadInput("cannot be made: the folder above it does not exist", where=str(path),
                           remedy="make that folder, or choose another name with -o") from error
        except OSError as error:
            raise MachineLacks(f"cannot be made ({error.strerror})", where=str(path),
                               remedy="choose a place that can be written with -o") from error
        return bundle

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Open an existing bundle. Raises BadInput when it is none, malformed, or of a newer format."""
        if not path.exists():
            raise BadInput("does not exist", where=str(path), remedy="give the path of a run bundle")
        if not path.is_dir():
            raise BadInput("is not a run bundle (a folder NAME.ptw)", where=str(path),
                           remedy="give the folder that ptweave wrap or record made")
        return cls(path, Manifest.load(path / "run.json"))

    @property
    def unfinished(self) -> bool:
        """Whether its recorder could not finish it, or is still at it: what the engine wrote lies about."""
        return self.manifest.state is State.RECORDING or (self.path / SPOOL).exists()

    def save_manifest(self) -> None:
        self.manifest.save(self.path / "run.json")

    @property
    def trace(self) -> Path:
        return self.path / "trace"

    @property
    def dependence(self) -> Path:
        return self.path / "dependence"

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def images(self) -> Path:
        return self.path / "images"

    @property
    def decoded(self) -> Path:
        return self.path / "decoded"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def sideband(self) -> Path:
        return self.path / "sideband.arrow"

    def ledger(self) -> Ledger:
        return Ledger.load(self.path / "ledger.json")

    def save_ledger(self, ledger: Ledger) -> None:
        ledger.save(self.path / "ledger.json")

    def size(self, names: Iterable[str]) -> int:
        """Bytes of the files below the named entries."""
        total = 0
        for name in names:
            entry = self.path / name
            files = entry.rglob("*") if entry.is_dir() else [entry]
            total += sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
        return total
