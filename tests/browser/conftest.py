"""Tests of the page in a real browser, against real servers."""

from __future__ import annotations

from tests.support.browser import chromium, screens

__all__ = ["chromium", "screens"]
