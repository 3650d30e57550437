# SPDX-License-Identifier: MIT
"""Which servers are asked for debug files: checked before a command runs, so nothing heavy is imported here."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from ptweave.data.errors import BadInput

VARIABLE = "DEBUGINFOD_URLS"


def servers_of(environment: dict[str, str] | os._Environ[str]) -> list[str]:
    """The servers in $DEBUGINFOD_URLS. Raises BadInput when there is none, or one that is not reached safely."""
    urls = environment.get(VARIABLE, "").split()
    if not urls:
        raise BadInput(f"no server is known: ${VARIABLE} is not set", where="--debuginfod",
                       remedy=f"set it, such as {VARIABLE}=https://debuginfod.debian.net")
    for url in urls:
        if not is_safe(url):
            raise BadInput("is not an https address", where=url, remedy=f"give https addresses in ${VARIABLE}")
    return urls


def is_safe(url: str) -> bool:
    """Whether what comes from an address cannot be changed on the way: https, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme == "http" and host is not None and (host == "localhost" or _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
