"""Chromium for tests of pages, where it's installed.

Without it these tests are skipped, unless D2L_GPU_BROWSER=require, as in CI: then they
fail.
"""

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # which root needs in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def missing() -> str | None:
    """Say what these tests lack on this machine, if anything."""
    if not importlib.util.find_spec("playwright"):
        return "playwright is not installed: pip install 'd2l-gpu[test]'"
    if not any(map(shutil.which, NAMES)):
        return "there is no Chromium, which on Debian is: apt-get install chromium"
    return None


@contextlib.contextmanager
def chromium(flags: Sequence[str] = (), env: dict[str, str] | None = None) -> Iterator:
    """Run Chromium for the time of a ``with`` block.

    Args:
        flags: beside `FLAGS`.
        env: variables beside those of this process.
    """
    if reason := missing():
        required = os.environ.get("D2L_GPU_BROWSER") == "require"
        (pytest.fail if required else pytest.skip)(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, NAMES))),
            args=[*FLAGS, *flags],
            env=os.environ | (env or {}),
        )
        yield browser
        browser.close()


def watched_page(
    browser: Any, name: str, allowed: tuple[str, ...], wrong: list[str], **options: Any
) -> Any:
    """Return a page, in a context of its own, that may ask only for some addresses.

    Args:
        browser: of `chromium`.
        name: of what is opened, for messages.
        allowed: how the addresses begin that it may ask for.
        wrong: gets a line for each other request, error and complaint on the console.
        options: of the context.
    """
    context = browser.new_context(**options)

    def answer(route: Any) -> None:
        if route.request.url.startswith(allowed):
            route.continue_()
        else:
            wrong.append(f"{name} asks for {route.request.url}")
            route.abort()

    context.route("**/*", answer)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda said: (
            said.type == "error"
            and wrong.append(f"{page.url}: {said.text} {said.location}")
        ),
    )
    return page
