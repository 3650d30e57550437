# SPDX-License-Identifier: MIT
"""A page in headless Chromium: Debian's, driven by playwright, with no way to the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright


@dataclass
class Opened:
    """A page, the addresses it asked for, and what it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def status(self, name: str) -> str:
        """What a picture says of what is chosen in it."""
        return self.page.inner_text(f"#{name}-status")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. It is given to root without its sandbox, which it does not start with."""
    path = shutil.which("chromium")
    assert path is not None, "chromium is not installed: make setup-test"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*arguments, "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def shown(browser: Browser, path: Path, **options: object) -> Iterator[Opened]:
    """A file in a window of its own, when its script is through."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True, **options)  # type: ignore[arg-type]
    opened = Opened(context.new_page())
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.page.on("console", lambda message: opened.errors.append(message.text) if message.type == "error" else None)
    try:
        opened.page.goto(path.as_uri())
        opened.page.wait_for_selector("html[data-ready]", state="attached")
        yield opened
    finally:
        context.close()
