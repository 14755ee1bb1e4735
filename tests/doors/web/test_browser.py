"""Every page in a real browser: light and dark, wide and narrow, with hostile texts and with nothing; and by keyboard."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright

from cmserver.base.settings import Settings
from tests.conftest import Server
from tests.doors.web.pages_table import PAGES, PageCase
from tests.doors.web.running import find_chromium, new_context, serve
from tests.doors.web.seed import LONG_NAME, PASSWORD, Seed

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
WIDTHS = (1280, 360)
GONE = ("not-found", "observation-merged", "observation-expired")
"""Pages that are answered with 404 or 410."""
_WIDER = """() => {
    const limit = document.documentElement.clientWidth;
    const inScroller = (element) => element.closest('.scroll, pre, [data-scrolls], .account > summary') !== null;
    return [...document.querySelectorAll('body *')]
        .filter((element) => element.getClientRects().length && !inScroller(element)
                             && element.getBoundingClientRect().right > limit + 1
                             && getComputedStyle(element).position !== 'absolute')
        .slice(0, 5).map((element) => element.outerHTML.slice(0, 160));
}"""


MAX_BYTES = 100_000
_TOP = "document.querySelector('#list').getBoundingClientRect().top"
_SHIFT = """() => new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => { sum += entry.value; }))
        .observe({type: 'layout-shift', buffered: true});
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
})"""
"""How far the page jumped while it was loaded (CLS)."""


class Site:
    """The running server, the browser, and the seed."""

    def __init__(self, url: str, browser: Browser, seed: Seed) -> None:
        self.url = url
        self.browser = browser
        self.seed = seed

    async def context(self, token: str | None, *, theme: str = "light", javascript: bool = True) -> BrowserContext:
        """A fresh profile of the browser."""
        return await new_context(self.browser, self.url, token, theme=theme, javascript=javascript)


@pytest.fixture(scope="module")
async def site(server: Server, template: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """One server and one browser for all tests of this file."""
    name = "cmserver_test_browser"
    url = server.create(name, template)
    settings = Settings(data_dir=tmp_path_factory.mktemp("browser"), database_url=url, generation_debounce_seconds=0)
    async with serve(server.urls_of(url), settings) as (address, seed), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield Site(address, browser, seed)
        await browser.close()
    server.drop(name)


def watch(page: Page) -> list[str]:
    """What the browser complains of from now on: errors on the console, CSP reports, exceptions."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


async def violations(page: Page) -> list[str]:
    """What axe finds, with the elements."""
    await page.evaluate(AXE)
    result: Any = await page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [f"{rule['id']}: {node['html'][:200]} {node['failureSummary'][:300]}" for rule in result for node in rule["nodes"][:3]]


def expected_errors(case: PageCase, found: list[str]) -> list[str]:
    """The complaints without that of the browser about the page's own status."""
    return [text for text in found if not (case.name in GONE and ("404" in text or "410" in text))]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("case", PAGES, ids=lambda case: case.name)
async def test_a_page_with_hostile_texts_is_whole(site: Site, case: PageCase, theme: str):
    context = await site.context(None if case.is_signed_out else site.seed.full, theme=theme)
    page = await context.new_page()
    complaints = watch(page)

    await page.goto(case.path.format(**site.seed.things))

    assert (await page.inner_text("h1")).startswith(case.heading)
    assert await violations(page) == []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate(_WIDER) == [], f"wider than {width} px"
        assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), f"{width} px"
    assert expected_errors(case, complaints) == []
    await context.close()


@pytest.mark.parametrize("case", [case for case in PAGES if case.empty_path], ids=lambda case: case.name)
async def test_a_page_with_nothing_says_what_to_do(site: Site, case: PageCase):
    context = await site.context(site.seed.empty)
    page = await context.new_page()
    await page.set_viewport_size({"width": 360, "height": 800})
    complaints = watch(page)

    await page.goto(case.empty_path or "")

    assert (await page.inner_text("h1")).startswith(case.heading)
    assert await page.evaluate(_WIDER) == []
    assert expected_errors(case, complaints) == []
    await context.close()


async def test_ten_thousand_rows_are_paged_lightly_and_without_a_jump(site: Site):
    context = await site.context(site.seed.long)
    page = await context.new_page()
    complaints = watch(page)
    paths = ("/ui", "/ui/sessions", "/ui/observations", "/ui/jobs", "/ui/graph", "/ui/team/audit?reads=true")
    sizes = {path: await first_paint_bytes(site, path) for path in paths}
    found = [f"{path}: {size} bytes with all that it loads" for path, size in sizes.items() if size >= MAX_BYTES]
    for path in ("/ui", "/ui/sessions", "/ui/observations", "/ui/jobs", "/ui/graph", "/ui/team/audit?reads=true"):
        answer = await page.goto(path)
        assert answer is not None
        first, top = await rows_of(page), await page.evaluate(_TOP)
        if len(first) > 100 or await page.evaluate(_SHIFT) > 0.1:
            found.append(f"{path}: {len(first)} rows, shifted by {await page.evaluate(_SHIFT)}")
        async with page.expect_navigation():
            await page.click("a[rel=next]")
        if set(first) & set(await rows_of(page)) or await page.evaluate(_TOP) != top:
            found.append(f"{path}: the next page repeats rows, or begins elsewhere")
        await page.set_viewport_size({"width": 360, "height": 800})
        found += await page.evaluate(_WIDER)
        await page.set_viewport_size({"width": 1280, "height": 900})

    assert found == []
    assert complaints == []
    await context.close()


async def first_paint_bytes(site: Site, path: str) -> int:
    """What a browser that has nothing of ours yet is sent for the page and its files, with headers."""
    context = await site.context(site.seed.long)
    page = await context.new_page()
    sent: list[Request] = []

    def note(request: Request) -> None:
        sent.append(request)

    page.on("requestfinished", note)
    await page.goto(path)
    sizes = [await request.sizes() for request in sent if request.resource_type in ("document", "stylesheet", "script", "image")]
    await context.close()
    return sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes)


async def rows_of(page: Page) -> list[str]:
    """The texts of the rows of the list."""
    return await page.eval_on_selector_all("#list [data-row]", "all => all.map(row => row.innerText)")


async def test_a_person_works_without_javascript(site: Site):
    context = await site.context(None, javascript=False)
    page = await context.new_page()

    await page.goto("/")
    await page.fill("#name", LONG_NAME)
    await page.fill("#password", PASSWORD)
    await page.click("form[action='/ui/sign-in'] button")
    assert await page.inner_text("h1") == "Today"
    await page.select_option("#note-project", index=0)
    await page.fill("#text", "Deploys happen on Tuesdays.")
    await page.click("form[action='/ui/notes'] button")
    assert "Kept as" in await page.inner_text(".notice")
    await page.goto("/ui")
    await page.check("#running")
    await page.click(".filters button")
    assert "running=true" in page.url
    await page.click(".account summary")
    await page.click("form[action='/ui/sign-out'] button")

    assert await page.inner_text("h1") == "Sign in"
    await context.close()


async def test_the_list_follows_a_filter_without_leaving_the_page(site: Site):
    context = await site.context(site.seed.full)
    page = await context.new_page()
    complaints = watch(page)
    await page.goto("/ui/team/keys")

    async with page.expect_response(lambda response: "all=true" in response.url):
        await page.check("#all")
    await page.wait_for_url("**/ui/team/keys?*all=true*")

    assert await page.locator("#list").count() == 1
    assert complaints == []
    await context.close()


async def test_the_keyboard_opens_the_help_and_goes_through_a_list(site: Site):
    context = await site.context(site.seed.full)
    page = await context.new_page()
    await page.goto("/ui")

    await page.keyboard.press("?")
    assert await page.locator("#keys").is_visible()
    await page.keyboard.press("?")
    assert not await page.locator("#keys").is_visible()
    await page.keyboard.press("j")
    assert await page.evaluate("document.activeElement.closest('[data-row]') !== null")
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.id") == "search"
    await context.close()


async def test_a_screen_has_thirteen_rows_and_their_acts_open_by_keyboard_without_javascript(site: Site):
    context = await site.context(site.seed.full, javascript=False)
    page = await context.new_page()
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.goto("/ui/observations")

    box = await page.locator("#list tbody tr").nth(12).bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 800
    menu = page.locator("#list tbody tr").nth(12).locator("details.dots")
    assert not await menu.get_by_role("button", name="Forget").is_visible()
    await menu.locator("summary").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    assert await menu.get_by_role("button", name="Forget").is_visible()
    assert await menu.locator("button:focus, a:focus").count() == 1
    await context.close()


async def test_a_command_is_copied(site: Site):
    context = await site.context(site.seed.full)
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    await page.goto("/ui/team")

    await page.locator(".command").get_by_role("button", name="Copy").click()
    await page.get_by_role("button", name="Copied").wait_for()

    assert (await page.evaluate("navigator.clipboard.readText()")).startswith("cmserver teams limits '")
    await context.close()


async def test_the_areas_stand_in_one_line_and_a_telephone_shows_them_whole_in_a_menu(site: Site):
    context = await site.context(site.seed.full)
    page = await context.new_page()
    for path in ("/ui", "/ui/observations", "/ui/doctor"):
        await page.goto(path)
        tops = await page.eval_on_selector_all(".areas a", "all => [...new Set(all.map(a => a.getBoundingClientRect().top))]")
        assert len(tops) == 1, path
    for width in (1280, 800, 360):
        await page.set_viewport_size({"width": width, "height": 800})
        bottom = await page.evaluate("document.querySelector('header').getBoundingClientRect().bottom")
        assert bottom < 100, f"the header takes {bottom} px at {width} px"
        assert await page.locator("#search").is_visible(), width
    assert not await page.locator(".areas a").first.is_visible()

    await page.click(".menu-button")

    boxes = await page.eval_on_selector_all(
        ".areas a", "all => all.map(a => a.getBoundingClientRect()).map(box => [box.right, box.bottom])"
    )
    assert len(boxes) == 16
    assert all(right <= 360 and bottom <= 800 for right, bottom in boxes), boxes
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    assert not await page.locator(".areas a").first.is_visible()
    await context.close()


async def test_a_running_session_appears_and_ends_by_itself(site: Site):
    context = await site.context(site.seed.full)
    page = await context.new_page()
    complaints = watch(page)
    async with page.expect_response(lambda response: response.url.endswith("/ui/live")):
        await page.goto("/ui")

    async with httpx.AsyncClient(base_url=site.url, headers=site.seed.headers) as agent:
        hook = {"session_id": "live", "cwd": "/home/dev/orders", "transcript_path": "/tmp/t"}
        for fields in (
            {"hook_event_name": "SessionStart", "source": "startup"},
            {"hook_event_name": "UserPromptSubmit", "prompt": "Look"},
        ):
            (await agent.post("/v1/hooks/claude-code", json={**hook, **fields})).raise_for_status()
        card = page.locator("li.card", has=page.get_by_role("link", name="Look", exact=True))
        await card.get_by_text("running").wait_for()
        end = {"hook_event_name": "SessionEnd", "reason": "exit"}
        (await agent.post("/v1/hooks/claude-code", json={**hook, **end})).raise_for_status()
        await card.get_by_text("ended after").wait_for()

    assert complaints == []
    await context.close()


async def decide(page: Page, key: str) -> list[str]:
    """Press a key on the first pair, and return the numbers of the pairs that are left."""
    async with page.expect_navigation():
        await page.keyboard.press(key)
    return await pairs_of(page)


async def pairs_of(page: Page) -> list[str]:
    return await page.eval_on_selector_all("article.pair", "all => all.map(pair => pair.getAttribute('aria-label'))")


async def test_pairs_are_reviewed_and_undone_by_keys_alone(site: Site):
    context = await site.context(site.seed.full)
    page = await context.new_page()
    complaints = watch(page)
    await page.goto("/ui/review")
    before = await pairs_of(page)
    assert len(before) >= 2

    for key, notice in (("m", "merged"), ("r", "merged"), ("b", "Kept"), ("d", "Dismissed")):
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        left = await decide(page, key)
        assert left == [pair for pair in before if pair != before[1]], key
        assert notice in await page.inner_text(".notice")
        assert await decide(page, "u") == before, key

    assert complaints == []
    await context.close()


async def test_a_person_signs_in_and_writes_by_keyboard_alone(site: Site):
    context = await site.context(None)
    page = await context.new_page()
    await page.goto("/")

    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    for text in (LONG_NAME, PASSWORD):
        await page.keyboard.press("Tab")
        while not await page.evaluate("document.activeElement.matches('input')"):
            await page.keyboard.press("Tab")
        await page.keyboard.type(text)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    assert await page.inner_text("h1") == "Today"
    async with page.expect_navigation():
        await page.keyboard.press("g")
        await page.keyboard.press("4")
    assert await page.inner_text("h1") == "Observations"
    await page.keyboard.press("/")
    await page.keyboard.type("payments")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/observations?*q=payments*")
    await page.locator("tbody tr").first.wait_for()
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("j")
    while not await page.evaluate("document.activeElement.matches('td.title a')"):
        await page.keyboard.press("Tab")
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    assert (await page.inner_text("h1")) != ""
    assert "/ui/observations/" in page.url
    await context.close()
