# SPDX-License-Identifier: MIT
"""The recorder does not get to read a thread's ring of records: the kernel drops some, and says how many. Another event
of the same thread, with room for all, is what they are counted by."""

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from labtools import Gated, note

from ptweave.data.perf.format import RecordType
from ptweave.data.perf.records import Lost, Switch
from ptweave.wrapper import pt, pt_spool
from ptweave.wrapper.perf import synthesis
from ptweave.wrapper.perf.abi import PerfEventAttr
from ptweave.wrapper.perf.event import Event

PERF_TYPE_SOFTWARE, DUMMY = 1, 9
RING = 16 << 10
ROUNDS = 400  # two switches and a record of packets each: three times as many as the ring takes
RECORDS = Path("run.ptw/spool/0.rec")

finish = pt_spool.finish


def kept(bundle, folder, *more):  # type: ignore[no-untyped-def]
    shutil.copytree(folder, "spool")
    finish(bundle, folder, *more)


pt_spool.finish = kept
pt.DATA_SIZE = RING
target = Gated("--snapshot", rounds=1)
target.done()
target.quiet()
time.sleep(0.1)  # the recorder has read all of them
os.kill(target.pid, signal.SIGSTOP)
before = RECORDS.stat().st_size
attr = PerfEventAttr()
attr.type, attr.config = PERF_TYPE_SOFTWARE, DUMMY
attr.exclude_kernel = attr.exclude_hv = attr.sample_id_all = attr.watermark = 1
attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = attr.context_switch = 1
attr.sample_type = synthesis.TRAILER
other = Event(attr, target.traced, -1, data=1 << 20, aux=0, file=-1)
for _ in range(ROUNDS):
    target.again()
    target.quiet()  # else it may be told to go on before it waits, and is not switched
os.kill(target.pid, signal.SIGCONT)
status = target.end()
seen: Counter[str] = Counter()
outs = 0
while data := other.records():
    taken = [record for record in pt_spool.parse_records(data) if record is not None]
    seen.update(RecordType(record.type).name for record in taken)
    outs += sum(isinstance(record, Switch) and record.out for record in taken)
other.close()
records = [record for record in pt_spool.parse_records(Path("spool/0.rec").read_bytes()[before:])
           if record is not None]
note("seen", json.dumps(seen))
note("outs", outs)
note("stored", json.dumps(Counter(RecordType(record.type).name for record in records)))
note("lost", sum(record.count for record in records if isinstance(record, Lost)))
sys.exit(status)
