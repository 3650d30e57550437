# SPDX-License-Identifier: MIT
"""Probes: places in a program's code at which a handler is called (docs/probes.md).

`spec` says what a user may write, `code` what is known of a file's code, `search` finds the places a spec means,
`sites` whether they can be patched, `trampolines` makes the code that patched places jump to, `plan` all of it for a
command.
"""
