# SPDX-License-Identifier: MIT
"""Raw recordings to tables. Nothing is imported here: the C half is needed only by the modules that use it."""
