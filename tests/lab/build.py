# SPDX-License-Identifier: MIT
"""Builds the laboratory below build/lab: module, initramfs, Python image, the state of a machine that has booted. What
did not change is not built again. docs/hardware.md, "The laboratory"."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.packages import DRIVER, TAKEN, Unavailable, fetch, kernel_release, pins, taken, unpack, unpack_driver

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "lab"
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "cpio": "cpio", "mkfs.ext4": "e2fsprogs", "dpkg-deb": "dpkg",
         "gcc": "gcc", "make": "make", "xz": "xz-utils"}
DRIVERS = ("virtio/virtio_ring", "virtio/virtio", "virtio/virtio_pci_modern_dev", "virtio/virtio_pci_legacy_dev",
           "virtio/virtio_pci", "block/virtio_blk")
"""Modules of the guest's disks, in the order they are loaded in."""
PACKAGES = ("numpy", "numpy.libs", "pyarrow", "cffi", "elftools", "iced_x86", "duckdb")
ROOMS = ("data", "preload", "wrapper", "decode", "merge")
"""What of the project the guest has."""
UNUSED = ("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "distutils", "pydoc_data",
          "site-packages", "include", "__pycache__", "config-3*", "*.a", "libarrow_flight*",
          "_flight*", "_substrait*", "*.h", "*.pxd", "*.pyx",
          "f2py", "random/lib", "libarrow_python_flight*")


@dataclass(frozen=True)
class Machine:
    """Files to boot."""

    kernel: Path
    initramfs: Path
    python: Path  # an ext4 image with Python and the packages
    interpreter: str  # its path in there


@contextmanager
def locked() -> Iterator[None]:
    """Two test runs in one working tree do not build over each other, nor over what the other is about to start."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def machine() -> Machine:
    """The laboratory, built, by the holder of the lock. Raises Unavailable where it cannot be."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)} (apt-get install {' '.join(missing)})")
    return _build()


def loaded(built: Machine, project: Path) -> Path:
    """The state of a machine that has booted and loaded Python and the project, a tar; saved by the holder of the lock.
    To wake it takes a second, to boot ten. Another project is another state."""
    from lab import emulator

    booted, state = FOLDER / "booted", FOLDER / "loaded"
    inputs = [*_digests([built.kernel, built.initramfs, HERE / "emulator.py", HERE / "given.py"]), emulator.version()]
    with _step("booted", [*inputs, (FOLDER / ".python").read_text()], [booted]) as needed:
        if needed:
            emulator.save(built, None, "LAB: booted", booted)
    with _step("loaded", [(FOLDER / ".booted").read_text(), *_digests([project])], [state]) as needed:
        if needed:
            emulator.save(built, project, "LAB: loaded", state, booted)
    return state


def _build() -> Machine:
    root, module = FOLDER / "root", FOLDER / "module"
    interpreter = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    debs = FOLDER / "debs"
    with _step("packages", [str(pins())], [root]) as needed:
        if needed:
            versions, files = fetch(debs)
            unpack(files, versions, root)
            unpack_driver(files, module / "intel")
            for file in debs.glob("*.deb"):
                file.unlink()  # 180 MB, and what is needed is unpacked
    release = kernel_release(taken(root))
    sources = sorted((HERE / "module").iterdir())
    module.mkdir(exist_ok=True)
    own = own_pmu()
    with _step("module", [release, str(own), *_digests(sources)], [module / "ptlab.ko"]) as needed:
        if needed:
            _build_module(root, module, sources, release, own)
    init = HERE / "guest" / "init"
    initramfs = FOLDER / "initramfs.cpio"
    with _step("initramfs", [*_digests([init, module / "ptlab.ko"]), release], [initramfs]) as needed:
        if needed:
            _make_initramfs(root, module, release, init, initramfs)
    image = FOLDER / "python.ext4"
    first = [HERE / "guest" / name for name in ("start.py", "disks.py")]
    with _step("python", [sys.version, interpreter, *_package_versions(), str(UNUSED),
                          *_digests([Path(__file__), *first]), *_linked()], [image]) as needed:
        if needed:
            _make_image(interpreter, first, image)
    return Machine(root / "boot" / f"vmlinuz-{release}", initramfs, image, interpreter)


@contextmanager
def _step(name: str, inputs: Iterable[str], made: Iterable[Path]) -> Iterator[bool]:
    """Gives whether the step has to run: its inputs are others than the last time, or what it made is gone."""
    stamp = FOLDER / f".{name}"
    wanted = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
    needed = not all(path.exists() for path in made) or not stamp.exists() or stamp.read_text() != wanted
    if needed:
        stamp.unlink(missing_ok=True)
    yield needed
    if needed:
        stamp.write_text(wanted)


def _digests(files: Iterable[Path]) -> list[str]:
    return [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]


def _run(words: list[object], where: Path | None = None) -> None:
    done = subprocess.run([str(word) for word in words], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def instead() -> str | None:
    """What the laboratory is made of where that is not what is pinned."""
    if not (FOLDER / "root" / TAKEN).exists():
        return None
    found = sorted(taken(FOLDER / "root").items() - pins().items())
    return ", ".join(f"{name} {version}" for name, version in found) or None


def own_pmu() -> bool:
    """Whether the PMU is ours, not the kernel's driver's."""
    module = FOLDER / "module"
    gone = module.exists() and not (module / "intel" / Path(DRIVER[0]).name).exists()
    return gone or os.environ.get("PTWEAVE_LAB_PMU") == "own"


def _build_module(root: Path, module: Path, sources: list[Path], release: str, own: bool) -> None:
    headers = root / "usr/src" / f"linux-headers-{release}"
    makefile = headers / "Makefile"  # names where the package would be installed
    makefile.write_text(makefile.read_text().replace("include /usr/src/", f"include {root}/usr/src/"))
    for source in sources:
        shutil.copy(source, module / source.name)
    _run(["make", "-s", "-C", headers, f"M={module}", f"PTLAB_PMU={'own' if own else 'driver'}", "modules"])


def _make_initramfs(root: Path, module: Path, release: str, init: Path, made: Path) -> None:
    folder = FOLDER / "initramfs"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("bin", "dev", "proc", "sys", "new", "modules"):
        (folder / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", folder / "bin/busybox")
    drivers = root / "lib/modules" / release / "kernel/drivers"
    names = []
    for name in DRIVERS:
        _run(["strip", "-g", "-o", folder / "modules" / f"{Path(name).name}.ko", drivers / f"{name}.ko"])
        names.append(Path(name).name)
    _run(["strip", "-g", "-o", folder / "modules/ptlab.ko", module / "ptlab.ko"])
    (folder / "modules/order").write_text(" ".join(names) + "\n")
    shutil.copy(init, folder / "init")
    (folder / "init").chmod(0o755)
    listed = "\n".join(str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))) + "\n"
    with made.open("wb") as out:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=listed.encode(), cwd=folder, stdout=out,
                       check=True)


# --- Python -----------------------------------------------------------------------------------------------------------


def _package_versions() -> list[str]:
    return sorted(path.name for path in _site().glob("*.dist-info"))


def _linked() -> list[str]:
    """The project's own objects, whose libraries the image must have."""
    return sorted(path.name for room in ROOMS for path in _objects(ROOT / room))


def _site() -> Path:
    return Path(sysconfig.get_path("platlib"))


def _make_image(interpreter: str, first: list[Path], image: Path) -> None:
    folder = FOLDER / "python"
    shutil.rmtree(folder, ignore_errors=True)
    _copy(Path(interpreter).resolve(), folder, interpreter)
    standard = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns(*UNUSED)
    shutil.copytree(standard, _below(folder, standard), ignore=ignored)
    site = _site()
    if str(site) == str(standard / "site-packages") or not (standard / "site-packages").exists():
        _below(folder, site).mkdir(parents=True, exist_ok=True)
    packages = folder / "packages"
    packages.mkdir()
    for name in PACKAGES:
        if (site / name).exists():
            shutil.copytree(site / name, packages / name, ignore=ignored)
    for info in site.glob("duckdb-*.dist-info"):  # it looks for its version there
        shutil.copytree(info, packages / info.name)
    for pattern in ("_cffi_backend*.so", "_duckdb*.so"):
        for file in site.glob(pattern):
            shutil.copy(file, packages / file.name)
    ours = [path for room in ROOMS for path in _objects(ROOT / room)]
    _copy_libraries(folder, [Path(interpreter).resolve(), *_objects(folder), *ours, Path("/usr/bin/perf")])
    if Path("/usr/bin/perf").exists():
        _copy(Path("/usr/bin/perf").resolve(), folder, "/usr/bin/perf")
    (folder / "lab").mkdir()
    for file in first:
        shutil.copy(file, folder / "lab")
    (folder / "start").write_text("export PATH=/in/bin:/bin:/usr/bin HOME=/tmp PYTHONPATH=/packages "
                                  "OPENSSL_ia32cap=0:0 "  # emulated, digests by vectors take four times as long
                                  f"PYTHONDONTWRITEBYTECODE=1\nexec {interpreter} -S /lab/start.py\n")
    for program in ("sh", "true", "cat", "tar"):
        found = shutil.which(program)
        if found is not None:
            _copy(Path(found).resolve(), folder, f"/bin/{program}")
            _copy_libraries(folder, [Path(found).resolve()])
    for name in ("proc", "sys", "dev", "tmp", "in", "out", "run", "root", "etc", "var"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    _run([sys.executable, "-m", "compileall", "-q", "-x", "bad_coding|lib2to3", folder])
    size = sum(path.lstat().st_size + 4096 for path in folder.rglob("*")) // (1 << 20) + 48
    partial = image.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    _run(["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "root_owner=0:0", "-d", folder, partial, f"{size}M"])
    partial.replace(image)
    shutil.rmtree(folder)


def _below(folder: Path, path: Path) -> Path:
    return folder / str(path).lstrip("/")


def _copy(file: Path, folder: Path, name: str) -> None:
    target = _below(folder, Path(name))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)


def _objects(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.so*") if path.is_file() and not path.is_symlink()]


def _copy_libraries(folder: Path, objects: Iterable[Path]) -> None:
    """What ld.so will look for, where it is on this machine."""
    for file in objects:
        done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            path = next((word for word in line.split() if word.startswith("/")), None)
            if path is None or str(FOLDER) in path:
                continue
            target = _below(folder, Path(os.path.normpath(path)))
            if not target.exists() and Path(path).exists():
                _copy(Path(path).resolve(), folder, os.path.normpath(path))
