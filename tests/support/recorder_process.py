# SPDX-License-Identifier: MIT
"""A recorder in a process of its own, for tests that kill it or confine it: recorder_process BUNDLE COMMAND…

Prints, one a line: `started PID` (the target's) and, with SHOW_PROGRAMS set, `program ID` of each BPF program; at the
end the ledger as JSON. With PAUSE set it never services the recorder while the target runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from ptweave.data.bundle import Bundle
from ptweave.data.errors import PtweaveError
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest
from ptweave.wrapper.syscalls import SyscallRecorder
from support.bpf import fork_waiting, wait_serving


def main(bundle_path: str, words: list[str]) -> int:
    bundle = Bundle.create(Path(bundle_path), Manifest(command=words))
    recorder = SyscallRecorder(bundle)
    try:
        recorder.start()
    except PtweaveError as error:
        print(error.line(), file=sys.stderr)
        return int(error.status)
    pid, go = fork_waiting(words)
    recorder.follow(pid)
    for entry in Path("/proc/self/fdinfo").iterdir() if "SHOW_PROGRAMS" in os.environ else ():
        found = re.search(r"^prog_id:\s+(\d+)$", entry.read_text() if entry.exists() else "", re.MULTILINE)
        if found:
            print("program", found[1])
    print("started", pid, flush=True)  # before the target can write to the same pipe
    os.write(go, b"x")
    os.close(go)
    if "PAUSE" in os.environ:
        os.waitpid(pid, 0)
    else:
        wait_serving(pid, recorder)
    ledger = Ledger()
    recorder.finish(ledger)
    print(json.dumps(ledger.to_json()["streams"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
