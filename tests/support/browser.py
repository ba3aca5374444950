"""A real browser for tests of the page: Debian's Chromium, driven by Playwright.

    def test_something(screens: Screens, served: ServedApplications) -> None:
        screen = screens.open(served.url, token)
        screen.press("j", "Enter")

Every screen keeps what went wrong beside what a test looks at: errors on the console, requests to
another origin, reports of the content security policy. The fixture fails the test for any of them.
Where there is no browser the set-up installs one as root on Debian; else the tests are skipped, and
with HOLDFAST_REQUIRE_BROWSER=1 they fail.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    expect,
    sync_playwright,
)

REQUIRED = "HOLDFAST_REQUIRE_BROWSER"
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --mute-audio"
).split()
WAIT_MS = 15_000
NPM_FOLDER = Path(__file__).parents[1] / "browser"
"""Has the locked checkers of types and of accessibility."""

expect.set_options(timeout=WAIT_MS)


def find_browser() -> str | None:
    """Return the program, where one is installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


def find_or_install_browser() -> str | None:
    """Return the program, installing Debian's where that is possible."""
    if found := find_browser():
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    with _one_at_a_time("browser"):
        if found := find_browser():
            return found
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
        ):
            subprocess.run(command, env=environment, capture_output=True, check=False)
    return find_browser()


def npm_file(name: str) -> Path:
    """Return a file of a locked npm package, installing what is locked where it is missing."""
    found = NPM_FOLDER / "node_modules" / name
    if not found.exists():
        npm = shutil.which("npm")
        if npm is None:
            skip_without_browser("npm is not installed: apt-get install npm.")
        with _one_at_a_time("npm"):
            if not found.exists():
                command = [str(npm), "ci", "--silent", "--no-audit", "--no-fund"]
                subprocess.run(command, cwd=NPM_FOLDER, check=True)
    return found


@contextmanager
def _one_at_a_time(what: str) -> Iterator[None]:
    """Several workers of one run install nothing twice."""
    with Path(tempfile.gettempdir(), f"holdfast-{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def skip_without_browser(reason: str) -> None:
    """Skip loudly, or fail where a browser is required."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(reason)
    pytest.skip(f"SKIPPED without a browser: {reason}")


@dataclass
class Screen:
    """One tab, and what went wrong in it."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    tolerated: list[str] = field(default_factory=list)
    """Parts of messages that the test itself brings about."""

    def __post_init__(self) -> None:
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", lambda request: self._check_origin(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _check_origin(self, url: str) -> None:
        if (
            url.startswith(("http:", "https:"))
            and urlsplit(url).netloc != urlsplit(self.url).netloc
        ):
            self.problems.append(f"another origin was asked: {url}")

    @property
    def found(self) -> list[str]:
        return [
            each for each in self.problems if not any(known in each for known in self.tolerated)
        ]

    def sign_in(self, token: str, *, path: str = "/ui/") -> Screen:
        """Paste a token on the login screen."""
        self.page.goto(f"{self.url}/ui/login?next={path}")
        self.page.get_by_label("Token").fill(token)
        self.page.keyboard.press("Enter")
        expect(self.page.locator("header.top")).to_be_visible()
        return self

    def go(self, path: str) -> Screen:
        self.page.goto(self.url + path)
        return self

    def press(self, *keys: str) -> Screen:
        for key in keys:
            self.page.keyboard.press(key)
        return self

    @property
    def title(self) -> Locator:
        return self.page.locator("main h1")

    @property
    def rows(self) -> Locator:
        return self.page.locator("[role=row][data-key]")

    def row(self, text: str) -> Locator:
        return self.rows.filter(has_text=text)

    def see(self, text: str) -> None:
        expect(self.page.locator("body")).to_contain_text(text)

    def not_see(self, text: str) -> None:
        expect(self.page.locator("main")).not_to_contain_text(text)

    def check_accessibility(self, *rules: str) -> list[str]:
        """Return what axe-core finds wrong, each with where it is; by all rules, or by some."""
        # As the browser's own tool would: the page's policy forbids foreign script to the page.
        session = self.page.context.new_cdp_session(self.page)
        loaded = session.send("Runtime.evaluate", {"expression": "typeof axe"})
        if loaded["result"]["value"] == "undefined":
            axe = npm_file("axe-core/axe.min.js").read_text()
            session.send("Runtime.evaluate", {"expression": axe})
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = list(rules)
        found = session.send(
            "Runtime.evaluate",
            {
                "expression": f"axe.run(document, {json.dumps(options)}).then((found) =>"
                " JSON.stringify(found.violations.map((each) => `${each.id}: ${each.help} `"
                " + each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | '))))",
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        session.detach()
        if "exceptionDetails" in found:
            return [str(found["exceptionDetails"])]
        listed: list[str] = json.loads(found["result"]["value"])
        return listed


@dataclass
class Screens:
    """Makes tabs, each with a profile of its own."""

    browser: Browser
    opened: list[Screen] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(
        self,
        url: str,
        token: str = "",
        *,
        path: str = "/ui/",
        width: int = 1280,
        height: int = 800,
        scheme: Literal["light", "dark"] = "light",
        **more: Any,
    ) -> Screen:
        """Open the page in a new profile; with a token, signed in."""
        context = self.browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, **more
        )
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        screen = Screen(page=context.new_page(), url=url)
        self.opened.append(screen)
        if token:
            screen.sign_in(token, path=path)
        return screen

    def close(self) -> None:
        for context in self.contexts:
            context.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module, and no longer.

    While Playwright runs, its loop is the thread's, and no test elsewhere could run one.
    """
    program = find_or_install_browser()
    if program is None:
        skip_without_browser("No Chromium is installed: apt-get install chromium.")
    with sync_playwright() as playwright:
        # An empty profile each time: Playwright makes one and removes it.
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def screens(chromium: Browser) -> Iterator[Screens]:
    """Tabs for one test, which fails where anything went wrong in them."""
    made = Screens(chromium)
    yield made
    found = [problem for screen in made.opened for problem in screen.found]
    made.close()
    assert not found, "\n".join(found)
