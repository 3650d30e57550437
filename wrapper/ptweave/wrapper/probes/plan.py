# SPDX-License-Identifier: MIT
"""All probes of a run: which file is patched where, and what is called there.

`make_plan` decides; `Plan.write` leaves a folder that libtthread reads (preload/src/probe_format.h) and `probes.json`,
which the decoder reads.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path

from ptweave.data import BadInput, MachineLacks
from ptweave.wrapper.probes.code import Code
from ptweave.wrapper.probes.search import find_addresses
from ptweave.wrapper.probes.sites import Refusal, Site, examine_site
from ptweave.wrapper.probes.spec import Form, Spec
from ptweave.wrapper.probes.trampolines import Builder, Call

PLAN_MAGIC, PLAN_VERSION = 0x31304E4C_50505450, 1  # "PTPPLN01"
PLAN_HEAD, PLAN_HIT, PLAN_FUNCTION = struct.Struct("<QIIII"), struct.Struct("<HH"), struct.Struct("<64s192s")
FOLDER, PLAN_FILE, LIST_FILE = "probes", "plan", "probes.json"
VARIABLE = "PTWEAVE_PROBES"
HITS_MAX = 1 << 20
SHOWN = 5
ARRIVAL_SYMBOL = "_dl_debug_state"
UNWINDER = "libgcc_s.so.1"
UNWIND_SYMBOLS = ("_Unwind_RaiseException", "_Unwind_ForcedUnwind", "_Unwind_Resume_or_Rethrow", "_Unwind_Backtrace")
REMEDY = "ptweave probe --list shows what can be probed"


class Builtin(IntEnum):
    """What libtthread does at a probe (preload/src/probe_format.h)."""

    LOG = 1
    ARGS = 2
    STACK = 3
    TIME = 4
    RETURN = 5
    USER = 6
    ARRIVAL = 7  # its own, in the loader: libraries have come or gone
    UNWIND = 8  # its own, in the unwinder: return addresses have to be right


@dataclass(frozen=True)
class Handler:
    """What a probe calls. `function` of `object` (a shared object) when it is the user's."""

    text: str
    kind: Builtin
    object: Path | None = None
    function: str = ""

    @property
    def at_entry_only(self) -> bool:
        return self.kind in (Builtin.TIME, Builtin.RETURN)


@dataclass(frozen=True)
class Wanted:
    """A SPEC with its handler. `strict`: a place that cannot be patched is an error; else it is told."""

    spec: Spec
    handler: Handler
    strict: bool = True


@dataclass(frozen=True)
class Hit:
    """A row of the table `probe_sites`. `hit`: its number, None when it was refused; `reason` says why it was."""

    hit: int | None
    spec: str
    handler: str
    path: str
    address: int
    function: str
    reason: str = ""


@dataclass
class Plan:
    """`files`: per patched file its trampolines. `hits` include those refused."""

    hits: list[Hit] = field(default_factory=list)
    files: list[tuple[Path, bytes]] = field(default_factory=list)
    handlers: list[Handler] = field(default_factory=list)  # by number of hit
    objects: dict[Path, bytes] = field(default_factory=dict)  # of the user's handlers

    @property
    def refused(self) -> list[Hit]:
        return [hit for hit in self.hits if hit.hit is None]

    def keep_objects(self) -> None:
        """Take the user's handlers into memory: their files may go."""
        for handler in self.handlers:
            if handler.object is not None and handler.object not in self.objects:
                self.objects[handler.object] = handler.object.read_bytes()

    def write(self, folder: Path) -> None:
        """Make the folder and everything in it."""
        self.keep_objects()
        folder.mkdir(mode=0o700)
        for number, (_, data) in enumerate(self.files):
            (folder / f"{number}.so").write_bytes(data)
        objects: dict[Path, str] = {}
        functions: dict[tuple[Path, str], int] = {}
        for handler in self.handlers:
            if handler.object is not None:
                objects.setdefault(handler.object, f"handler-{len(objects)}.so")
                functions.setdefault((handler.object, handler.function), len(functions))
        for path, name in objects.items():
            (folder / name).write_bytes(self.objects[path])
        out = PLAN_HEAD.pack(PLAN_MAGIC, PLAN_VERSION, len(self.handlers), len(self.files), len(functions))
        for handler in self.handlers:
            out += PLAN_HIT.pack(handler.kind, functions[handler.object, handler.function] if handler.object else 0)
        for path, name in functions:
            out += PLAN_FUNCTION.pack(objects[path].encode(), name.encode())
        (folder / PLAN_FILE).write_bytes(out)
        (folder / LIST_FILE).write_text(json.dumps([asdict(hit) for hit in self.hits]))


def linked_files(executable: Path, environment: dict[str, str] | None = None) -> list[Path]:
    """The executable, and the libraries its loader would load, in their order; the loader itself is the last.

    The loader is asked, which runs nothing of the program; a static program has none, and is alone. Raises MachineLacks
    when it cannot be asked, or cannot load them.
    """
    from ptweave.wrapper.target import interpreter_of

    loader = interpreter_of(executable)
    if loader is None:
        return [executable]
    found = [executable]
    for line in _listed(loader, executable, environment).splitlines():
        path = line.split("=>")[-1].strip().rpartition(" (")[0]
        if path.startswith("/") and Path(path).exists() and Path(path) != loader:
            found.append(Path(path))
    return [*found, loader]


def _listed(loader: Path, executable: Path, environment: dict[str, str] | None) -> str:
    """What the loader says of a program, which it would look for among the libraries if there were no slash in its
    name. Raises MachineLacks."""
    where, remedy = str(executable), "the program must start: see what ldd says of it"
    try:
        done = subprocess.run([loader, "--list", executable.absolute()], capture_output=True, text=True, check=False,
                              errors="replace", timeout=60, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineLacks(f"the loader does not list its libraries ({error})", where=where, remedy=remedy) from error
    if done.returncode != 0:
        said = (done.stderr.splitlines() or [f"status {done.returncode}"])[-1].rpartition("shared libraries: ")[-1]
        raise MachineLacks(f"the loader does not list its libraries ({said})", where=where, remedy=remedy)
    return done.stdout


def choose_files(spec: Spec, linked: Sequence[Path]) -> list[Path]:
    """The files a spec is about. Raises BadInput when the file it names is not there."""
    if spec.file is None:
        return list(linked[:-1]) if len(linked) > 1 else list(linked)
    if "/" in spec.file:
        if not Path(spec.file).is_file():
            raise BadInput("does not exist", where=spec.file, remedy="check the file of the probe")
        return [Path(spec.file).resolve()]
    named = [path for path in linked if spec.file in (path.name, path.resolve().name)
             or path.name.startswith(spec.file + ".so")]
    if not named:
        raise BadInput(f"the program has no library {spec.file}", where=f"--probe '{spec.text}'",
                       remedy="name it as ldd does, or give its path")
    return named[:1]


def symbols_like(code: Code, spec: Spec) -> list[Spec]:
    """What a name with `*` stands for; a name without stands for itself."""
    if spec.form is not Form.SYMBOL or "*" not in spec.name:
        return [spec]
    return [Spec(spec.text, Form.SYMBOL, spec.file, name, spec.number) for name in sorted(code.symbols)
            if fnmatchcase(name, spec.name)]


def called_file(spec: Spec, path: Path, linked: Sequence[Path], load: Callable[[Path], Code],
                preloaded: Path | None) -> Path:
    """Where calls of a function go that `path` has: to `preloaded`, which stands before all libraries, if it has one of
    that name, too. Not if the user names a file or a place within the function."""
    if preloaded is None or spec.file is not None or spec.form is not Form.SYMBOL or spec.number or path == linked[0]:
        return path
    return preloaded if spec.name in load(path).exports and spec.name in load(preloaded).exports else path


def find_sites(wanted: Wanted, linked: Sequence[Path], load: Callable[[Path], Code], *, listing: bool = False,
               preloaded: Path | None = None) -> list[tuple[Path, int]]:
    """Every file and address that is meant. Raises BadInput where there is none, or (but for a `listing`) a symbol is
    several things."""
    spec = wanted.spec
    found: list[tuple[Path, int]] = []
    for path in choose_files(spec, linked):
        code = load(path)
        for one in symbols_like(code, spec):
            called = called_file(one, path, linked, load, preloaded)
            found += [(called, address) for address in find_addresses(load(called), one)]
    found = list(dict.fromkeys(found))
    if not found:
        raise BadInput(f"found nowhere in {_places(choose_files(spec, linked))}", where=f"--probe '{spec.text}'",
                       remedy="check its spelling; a library loaded later has to be named (FILE:…)")
    if spec.form is Form.SYMBOL and "*" not in spec.name and len(found) > 1 and not listing:
        raise BadInput("is ambiguous: " + _some([f"{path}+{address:#x}" for path, address in found]),
                       where=f"--probe '{spec.text}'", remedy="say which: FILE:SYMBOL or FILE+OFFSET")
    return found


def _places(paths: Sequence[Path]) -> str:
    return _some([path.name for path in paths])


def _some(words: Sequence[str]) -> str:
    return ", ".join([*words[:SHOWN], *(["…"] if len(words) > SHOWN else [])])


@dataclass
class _File:
    code: Code
    sites: dict[int, Site] = field(default_factory=dict)
    calls: dict[int, list[Call]] = field(default_factory=dict)

    def clash(self, site: Site) -> Site | None:
        return next((one for one in self.sites.values() if one.address != site.address
                     and one.address < site.address + site.size and site.address < one.address + one.size), None)


def make_plan(wanted: Sequence[Wanted], linked: Sequence[Path], load: Callable[[Path], Code], *,
              arrivals: bool = False, preloaded: Path | None = None) -> Plan:
    """Decide about every place. `arrivals`: something else has to know when libraries come. `preloaded`: libtthread,
    which the program's calls of many functions go to.

    Raises BadInput for what is found nowhere, is ambiguous or, when `strict`, refused; MachineLacks when `arrivals`
    cannot be noticed."""
    plan = Plan()
    files: dict[Path, _File] = {}
    for one in wanted:
        for path, address in find_sites(one, linked, load, preloaded=preloaded):
            file = files.setdefault(path, _File(load(path)))
            _add(plan, file, path, address, one)
    if len(linked) > 1 and (files or arrivals):
        _watch(plan, files, linked[-1], (ARRIVAL_SYMBOL,), Builtin.ARRIVAL, load)
        if any(one.handler.at_entry_only for one in wanted):
            for path in unwinders(linked):
                _watch(plan, files, path, UNWIND_SYMBOLS, Builtin.UNWIND, load)
    if arrivals and not any(one.kind is Builtin.ARRIVAL for one in plan.handlers):
        raise MachineLacks(f"its {ARRIVAL_SYMBOL} cannot be probed: libraries that come later would not be noticed",
                           where=str(linked[-1]), remedy="watch what is there from the beginning")
    for path, file in files.items():
        if file.sites:
            ordered = sorted(file.sites)
            plan.files.append((path, Builder(file.code, [(file.sites[at], file.calls[at]) for at in ordered]).build()))
    return plan


def _add(plan: Plan, file: _File, path: Path, address: int, wanted: Wanted) -> None:
    outcome = examine_site(file.code, address)
    reason = outcome.reason if isinstance(outcome, Refusal) else ""
    if isinstance(outcome, Site):
        clash = file.clash(outcome)
        if clash is not None:
            reason = f"its bytes and those of the probe at {clash.address:#x} overlap"
        elif wanted.handler.at_entry_only and not outcome.entry:
            reason = f"{wanted.handler.text} needs the beginning of a function"
    if reason:
        if wanted.strict:
            raise BadInput(f"cannot be probed at {path}+{address:#x}: {reason}", where=f"--probe '{wanted.spec.text}'",
                           remedy=REMEDY)
        plan.hits.append(Hit(None, wanted.spec.text, wanted.handler.text, str(path), address, outcome.function, reason))
        return
    assert isinstance(outcome, Site)
    number = len(plan.handlers)
    if number >= HITS_MAX:
        raise BadInput(f"there would be more than {HITS_MAX} probes", where=f"--probe '{wanted.spec.text}'",
                       remedy="name fewer places")
    plan.handlers.append(wanted.handler)
    plan.hits.append(Hit(number, wanted.spec.text, wanted.handler.text, str(path), outcome.address, outcome.function))
    file.sites[outcome.address] = outcome
    file.calls.setdefault(outcome.address, []).append(Call(number, wanted.handler.kind is Builtin.LOG))


def unwinders(linked: Sequence[Path]) -> list[Path]:
    """Where functions are that unwind stacks: in a library that programs load when they need it."""
    folders = {path.parent for path in linked if path.name.startswith("libc.so")}
    found = [path for path in linked if path.name == UNWINDER] or [folder / UNWINDER for folder in folders]
    return [path for path in found if path.is_file()][:1]


def _watch(plan: Plan, files: dict[Path, _File], path: Path, symbols: Sequence[str], kind: Builtin,
           load: Callable[[Path], Code]) -> None:
    """Probes of our own: where the loader tells debuggers that libraries have come, and where stacks are unwound."""
    file = files.setdefault(path, _File(load(path)))
    for address in [place for symbol in symbols for place in file.code.symbols.get(symbol, ())[:1]]:
        outcome = examine_site(file.code, address, padded=True)
        if isinstance(outcome, Site) and not file.clash(outcome):
            file.sites[outcome.address] = outcome
            file.calls.setdefault(outcome.address, []).append(Call(len(plan.handlers), False))
            plan.handlers.append(Handler("", kind))


def probes_environment(folder: Path | None) -> dict[str, str]:
    """What the target's environment must have."""
    return {} if folder is None else {VARIABLE: os.fspath(folder.resolve())}
