# SPDX-License-Identifier: MIT
"""Builds the soft engine: the Valgrind tool `ptsoft`, a static program of its own.

Debian's valgrind package ships what a tool is made of: headers, the core and VEX as static libraries. The tool needs
nothing of Valgrind's when it runs. Valgrind keeps no stable interface for what is used here, so only the 3.19 series
is accepted.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "data"))
from build_tools import fail, fresh, mark, run

HEADERS = Path("/usr/include/valgrind")
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/valgrind")
SERIES = "3.19"
REMEDY = f"install Debian 12's valgrind package ({SERIES}): apt-get install valgrind"

ARCHIVES = ("libcoregrind-amd64-linux.a", "libvex-amd64-linux.a")
SUPPORT = "libgcc-sup-amd64-linux.a"

C_FLAGS = (
    "-m64", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-fno-builtin",
    "-fno-stack-protector", "-fno-pie", "-mcmodel=small",
    "-DVGA_amd64=1", "-DVGO_linux=1", "-DVGP_amd64_linux=1", "-DVGPV_amd64_linux_vanilla=1",
    "-isystem", str(HEADERS),  # Valgrind's own headers are not written to -Wextra
)
LINK_FLAGS = (
    "-m64", "-static", "-nodefaultlibs", "-nostartfiles", "-no-pie", "-u", "_start", "-Wl,--build-id=none",
    "-Wl,-Ttext-segment=0x7e000000",  # at the end of the 2 GiB its code is made for: programs want some of them (SBCL)
)
WRAPPED = (  # functions of Valgrind's that ours stand in front of: vg_*.c
    "vgSysWrap_linux_sys_clone_before", "vgSysWrap_generic_sys_fork_before", "vgPlain_should_we_trace_this_child",
    "vgPlain_env_setenv", "vgPlain_env_remove_valgrind_env_stuff", "vgPlain_sigtimedwait_zero",
    "amd64g_dirtyhelper_CPUID_avx2", "vgPlain_di_notify_mmap",
    "LibVEX_Translate", "vgPlain_translate", "ado_treebuild_BB", "do_iropt_BB", "sanityCheckIRSB", "vgPlain_do_syscall",
    "vgModuleLocal_do_syscall_for_client_WRK", "getRRegUniverse_AMD64", "emit_AMD64Instr",
    "vgPlain_disp_run_translations", "vgPlain_disp_cp_chain_me_to_slowEP", "vgPlain_disp_cp_chain_me_to_fastEP",
    "vgSysWrap_linux_sys_prlimit64_before", "vgSysWrap_linux_sys_prlimit64_after",
    "vgSysWrap_generic_sys_setrlimit_before", "vgSysWrap_generic_sys_getrlimit_before",
    "vgSysWrap_generic_sys_getrlimit_after",
    "vgModuleLocal_generic_PRE_sys_mmap", "vgSysWrap_generic_sys_mremap_before", "vgSysWrap_generic_sys_brk_before",
    "vgSysWrap_generic_sys_execve_before", "vgSysWrap_linux_sys_execveat_before",
    "vgModuleLocal_get_linux_syscall_entry",
    "vgPlain_mkstemp", "vgPlain_unlink", "vgPlain_do_sys_sigaction", "vgPlain_sigprocmask",
    "vgPlain_sigstartup_actions", "vgPlain_sigframe_create", "vgPlain_getrlimit",
    "vgPlain_clear_out_queued_signals",
    "vgPlain_synth_sigtrap", "vgPlain_disp_cp_xindir", "vgPlain_disp_cp_xassisted", "vgPlain_disp_cp_evcheck_fail",
)


def valgrind_version() -> str:
    """Version of the installed headers and libraries. Raises SystemExit when they are missing or another series."""
    config = HEADERS / "config.h"
    missing = [path for path in (config, *(LIBRARIES / name for name in (*ARCHIVES, SUPPORT))) if not path.exists()]
    if missing:
        raise fail(f"the soft engine is built on Valgrind's libraries, and {missing[0]} is not there", REMEDY)
    found = re.search(r'^#define (?:PACKAGE_)?VERSION "([\w.]+)"', config.read_text(), re.MULTILINE)
    version = found.group(1) if found else "unknown"
    if not version.startswith(SERIES + "."):
        raise fail(f"the soft engine needs Valgrind {SERIES}, and {version} is installed", REMEDY)
    return version


def build(root: Path) -> list[Path]:
    """Build the tool below `root`; returns the files made."""
    sources = sorted((root / "wrapper/engine").glob("*.c"))
    headers = [*sorted((root / "wrapper/engine").glob("*.h")), root / "preload/src/watch_format.h"]
    folder = root / "wrapper/ptweave/wrapper/_engine"
    tool, version_file = folder / "ptsoft-amd64-linux", folder / "version"
    version = valgrind_version()
    archives = [LIBRARIES / name for name in ARCHIVES]
    inputs = [*sources, *headers, *archives]
    key = " ".join([version, *C_FLAGS, *LINK_FLAGS, *WRAPPED])
    if fresh(tool, inputs, key) and version_file.exists():
        return [tool, version_file]
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    made = []
    for source in sources:
        made.append(objects / (source.stem + ".o"))
        run(["gcc", *C_FLAGS, f'-DPTSOFT_BUILD="1 (Valgrind {version})"', "-c", source, "-o", made[-1]], REMEDY)
    partial = folder / ".ptsoft.partial"
    run(["gcc", *LINK_FLAGS, "-o", partial, *made, *(f"-Wl,--wrap={name}" for name in WRAPPED),
         *archives, "-lgcc", LIBRARIES / SUPPORT], REMEDY)
    partial.replace(tool)
    for path in made:
        path.unlink()
    objects.rmdir()
    version_file.write_text(f"1 {version}\n")
    mark(tool, inputs, key)
    return [tool, version_file]


if __name__ == "__main__":
    build(Path(__file__).resolve().parent.parent)
