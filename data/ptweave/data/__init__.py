# SPDX-License-Identifier: MIT
"""The data model: the run bundle, its manifest, ledger, sideband and tables. Every room builds on this one."""

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, Exit, MachineLacks, PtweaveError
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Clocks, Cpu, Manifest, State, Times

__all__ = ["BadInput", "Bundle", "Clocks", "Cpu", "Exit", "Ledger", "MachineLacks", "Manifest", "PtweaveError",
           "State", "Times"]
