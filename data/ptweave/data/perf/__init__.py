# SPDX-License-Identifier: MIT
"""What Linux's perf events say: records, samples and attributes, and what they mean for the sideband.

The recorder reads them from rings, the importer from perf.data files. Sources: `include/uapi/linux/perf_event.h`
(records up to 63, samples, attributes) and `tools/lib/perf/include/perf/event.h` (records from 64 on). Everything is
checked before it is used: sizes, counts and offsets.
"""
