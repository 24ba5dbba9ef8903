"""Debian's Chromium without a screen: what a page holds, what it complains of, how it looks."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 120.0
_CONSOLE: Final = re.compile(r":CONSOLE[:(]\d+\)?\]?\s*(.*)")


def chromium() -> str | None:
    """The program."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One browser with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        self._profile = folder / "profile"
        self._folder = folder

    def document(self, page: Path) -> str:
        """The page as the browser has understood it."""
        return self._run(page, "--dump-dom").stdout

    def complaints(self, page: Path) -> list[str]:
        """What the page has written to the console: errors, refused resources."""
        said = self._run(page, "--dump-dom", "--enable-logging=stderr", "--log-level=0").stderr
        return [found.group(1) for line in said.splitlines() if (found := _CONSOLE.search(line))]

    def screenshot(self, page: Path, width: int, height: int, *, dark: bool = False) -> Path:
        """How the page looks."""
        shot = self._folder / f"{page.stem}-{'dark' if dark else 'light'}.png"
        options = [f"--window-size={width},{height}", f"--screenshot={shot}", "--hide-scrollbars"]
        if dark:
            options.append("--blink-settings=preferredColorScheme=0")
        self._run(page, *options)
        return shot

    def _run(self, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            chromium() or "chromium",
            "--headless",
            "--no-sandbox",  # tests run as root in containers
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={self._profile}",
            *options,
            page.absolute().as_uri(),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
