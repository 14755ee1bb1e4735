"""Takes the screenshots of docs/howto/use-the-web-interface.md: `bin/screenshots [FOLDER [PAGE ...]]`.

It starts a server with made-up content, and opens each page wide and narrow, light and dark; the guide shows some of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import async_playwright

from tests.doors.web.pages_table import PAGES
from tests.doors.web.running import find_chromium, new_context, run_seeded_server

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "web"
SHOWN = {"today": "/ui?project={project}", "review": "/ui/review", "team": "/ui/team"}
"""The pages that the guide shows, and their addresses there."""


async def take(folder: Path | None, names: Sequence[str]) -> None:
    """The pages of these names, or all, into the folder; without one, those of the guide into docs/howto/web."""
    chosen = names if folder else SHOWN
    async with run_seeded_server(hostile=folder is not None) as (url, seed), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for case in PAGES:
            if chosen and case.name not in chosen:
                continue
            for theme in ("light", "dark") if folder else ("light",):
                for width in (1280, 390) if folder else (1280,):
                    context = await new_context(browser, url, None if case.is_signed_out else seed.full, theme=theme)
                    page = await context.new_page()
                    await page.set_viewport_size({"width": width, "height": 800})
                    path = case.path if folder else SHOWN[case.name]
                    await page.goto(path.format(**seed.things))
                    name = f"{case.name}-{width}-{theme}.png" if folder else f"{case.name}.png"
                    target = (folder or GUIDE) / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    await page.screenshot(path=target, full_page=folder is not None)
                    await context.close()
        await browser.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:]))
