# SPDX-License-Identifier: MIT
"""`python -m ptweave.cli`."""

import sys

from ptweave.cli import main

sys.exit(main())
