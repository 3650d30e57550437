# SPDX-License-Identifier: MIT
"""What the commands load: each module is time that the user waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def loaded(*words: str | Path) -> set[str]:
    """The modules that a Python process given `words` loads."""
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, text=True,
                          timeout=120, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_pandas_is_not_loaded_to_wrap_a_run_and_to_ask_it(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    for words in (("wrap", "-q", "-o", bundle, "--", "/bin/true"), ("query", bundle, "select count(*) from flow")):
        modules = loaded("-m", "ptweave.cli", *words)
        assert "pyarrow" in modules
        assert "pandas.core" not in modules


def test_pyarrow_by_itself_loads_pandas() -> None:
    assert "pandas.core" in loaded("-c", "import pyarrow; pyarrow.array([0])")


def test_pandas_can_be_imported_after_it_was_hidden() -> None:
    loaded("-c", "from ptweave.data.lean_arrow import load_lean_arrow; load_lean_arrow(); import pandas; "
                 "assert len(pandas.DataFrame({'a': [1]})) == 1")


THREADS = """
import os
names = [open(f"/proc/self/task/{tid}/comm").read().strip() for tid in os.listdir("/proc/self/task")]
print(len(names) - names.count("jemalloc_bg_thd"), "OPENBLAS_NUM_THREADS" in os.environ)"""
"""Arrow's allocator has a thread that begins in its own time."""


def test_no_threads_of_blas_are_made_and_the_environment_stays() -> None:
    def told(code: str) -> list[str]:
        environment = {name: value for name, value in os.environ.items()
                       if not name.endswith("_NUM_THREADS")}  # Dask sets them, in this process
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              env=environment).stdout.split()

    hidden = told(f"from ptweave.data.lean_arrow import load_lean_arrow; load_lean_arrow(){THREADS}")
    plain = told(f"import pyarrow{THREADS}")
    assert hidden[1] == "False"
    if len(os.sched_getaffinity(0)) > 1:
        assert int(hidden[0]) < int(plain[0])  # by itself it makes them



def test_arrow_takes_memory_from_the_c_library_unless_the_user_says_otherwise() -> None:
    def pool(code: str, **more: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"} | more
        return subprocess.run([sys.executable, "-c", code + "; print(pyarrow.default_memory_pool().backend_name)"],
                              capture_output=True, text=True, check=True, env=environment).stdout.strip()

    lean = "from ptweave.data.lean_arrow import load_lean_arrow; load_lean_arrow(); import pyarrow"
    assert pool(lean) == "system" != pool("import pyarrow")
    assert "ARROW" not in pool(lean + "; import os; print(*os.environ)")
    assert pool(lean, ARROW_DEFAULT_MEMORY_POOL="mimalloc") == "mimalloc"


def test_threads_share_one_arena_of_the_c_library_unless_the_user_says_otherwise() -> None:
    def arenas(lean: str, **more: str) -> int:
        code = f"""{lean}
import ctypes, threading
c = ctypes.CDLL(None)
c.malloc.restype = c.fdopen.restype = ctypes.c_void_p
c.fdopen.argtypes, c.malloc_info.argtypes = [ctypes.c_int, ctypes.c_char_p], [ctypes.c_int, ctypes.c_void_p]
threads = [threading.Thread(target=c.malloc, args=(ctypes.c_size_t(1 << 16),)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
c.malloc_info(0, c.fdopen(1, b"w"))
c.fflush(None)"""
        environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | more
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              env=environment).stdout.count("<heap ")

    lean = "from ptweave.data.lean_arrow import load_lean_arrow; load_lean_arrow()"
    assert arenas(lean) == 1 < arenas("")
    assert arenas(lean, MALLOC_ARENA_MAX="8") > 1


def test_memory_that_was_freed_stays_with_the_process_unless_the_user_says_otherwise() -> None:
    def kept(lean: str, **more: str) -> int:
        """Megabytes more of 100 that were written and freed."""
        code = f"""{lean}
import ctypes
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.free.argtypes = [ctypes.c_void_p]
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096 // 1_000_000
before = resident()
blocks = [c.malloc(ctypes.c_size_t(1_000_000)) for _ in range(100)]
for block in blocks: ctypes.memset(block, 1, 1_000_000)
for block in blocks: c.free(block)
print(resident() - before)"""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | more
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                                  env=environment).stdout)

    lean = "from ptweave.data.lean_arrow import load_lean_arrow; load_lean_arrow()"
    assert kept(lean) > 80 > 20 > kept("")
    assert kept(lean, MALLOC_MMAP_THRESHOLD_="131072") < 20


def test_a_decode_forks_its_processes_where_there_are_no_other_threads() -> None:
    code = """
from ptweave.data.lean_arrow import load_lean_arrow
load_lean_arrow()
import threading
from ptweave.decode.workers import start_method
print(start_method())
begun = threading.Event()
thread = threading.Thread(target=begun.wait)
thread.start()
print(start_method())
begun.set()
thread.join()"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == [
        "fork", "spawn"]


def test_merging_loads_nothing_of_recording_and_decoding_nothing_of_sql(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    assert "ptweave.wrapper.supervisor" in loaded("-m", "ptweave.cli", "record", "-q", "-o", bundle, "--", "/bin/true")
    modules = loaded("-m", "ptweave.cli", "decode", "-q", bundle)
    assert "ptweave.decode.flow" in modules and not {"ptweave.wrapper.supervisor", "duckdb"} & modules
    modules = loaded("-m", "ptweave.cli", "merge", "-q", bundle)
    assert "ptweave.merge.stage" in modules and not {"ptweave.wrapper.supervisor", "ptweave.merge.diff"} & modules
    assert {"ptweave.merge.diff", "duckdb"} <= loaded("-m", "ptweave.cli", "hot", bundle)  # what Run loads


def test_decoding_loads_nothing_of_datasets_servers_and_packages(tmp_path: Path) -> None:
    """`socket` and `ssl` are pyarrow's."""
    bundle = tmp_path / "run.ptw"
    loaded("-m", "ptweave.cli", "record", "-q", "-o", bundle, "--", "/bin/true")
    modules = loaded("-m", "ptweave.cli", "decode", "-q", bundle)
    assert not {"pyarrow.dataset", "http.client", "importlib.metadata"} & modules
    assert "pyarrow.dataset" in loaded("-c", "import sys; from pathlib import Path; import pyarrow.parquet as pq; "
                                             "pq.read_table(next(Path(sys.argv[1]).glob('*.parquet')))",
                                       bundle / "tables/images")
    assert "http.client" in loaded("-c", "import ptweave.decode.debuginfod")
    assert "importlib.metadata" in loaded("-m", "ptweave.cli", "--version")
