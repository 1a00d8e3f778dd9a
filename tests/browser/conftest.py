"""A real browser, Debian's Chromium, on the Airflow that the cluster's tests run on as well."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright

from tests.browser.pages import Site

if TYPE_CHECKING:  # the plugin is loaded below
    from tests.cluster.fixtures import AirflowUnderTest

TEST_SECONDS = 600
WAIT_SECONDS = 90
PICTURES = Path(__file__).parents[2] / "docs" / "images"


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which another tier may have loaded before."""
    config.pluginmanager.import_plugin("tests.cluster.fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a test its own time limit, which starting cluster and Airflow does not use up."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep pictures of what the browser shows when a test fails, in pytest's cache."""
    report = yield
    sites: list[Site] = getattr(item, "funcargs", {}).get("_sites", [])
    if report.failed and call.when == "call" and item.config.cache is not None:
        folder = item.config.cache.mkdir("screenshots")
        for number, site in enumerate(sites):
            picture = folder / f"{re.sub('[^a-z0-9]+', '-', item.name)}-{number}.png"
            with suppress(Error):  # the failure is what is told, and the browser may be part of it
                site.page.screenshot(path=picture)
            report.sections.append(("browser", f"{site.page.url}\n{picture}"))
    return report


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests; each test has contexts of its own in it."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium: `make browser` installs it"
    expect.set_options(timeout=WAIT_SECONDS * 1000)
    with sync_playwright() as playwright:
        # As root, which tests in containers are, Chromium starts without its sandbox only.
        browser = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=False)
        yield browser
        browser.close()


@pytest.fixture
def _sites() -> list[Site]:
    """What the test looks at."""
    return []


@pytest.fixture
def visit(
    browser: Browser, airflow: AirflowUnderTest, _sites: list[Site]
) -> Iterator[Callable[..., Site]]:
    """Open Airflow as one of its users, or with None as somebody who is not logged in."""
    contexts: list[BrowserContext] = []

    def visit(user: str | None = "admin") -> Site:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(WAIT_SECONDS * 1000)
        # Each pod that comes or goes changes the machine's addresses, for which Chromium breaks
        # its requests off. Those that playwright makes in its place stay.
        context.route("**/*", lambda route: route.fulfill(response=route.fetch(max_redirects=0)))
        contexts.append(context)
        page: Page = context.new_page()
        site = Site(page, airflow.server.url)
        if user is not None:
            with airflow.server.log_in(user) as api:
                token = api.read_token()
            context.add_cookies([{"name": "_token", "value": token, "url": site.url}])
        _sites.append(site)
        return site

    yield visit
    for context in contexts:
        context.unroute_all(behavior="ignoreErrors")  # pages ask on and on
        context.close()


@pytest.fixture
def take_picture() -> Callable[[Site, str], None]:
    """Take a picture for the documentation; only when LEARNER_PICTURES is set."""

    def take(site: Site, name: str) -> None:
        if os.environ.get("LEARNER_PICTURES"):
            site.page.screenshot(path=PICTURES / f"{name}.png")

    return take
