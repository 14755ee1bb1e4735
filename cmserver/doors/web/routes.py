"""All routes of the web interface: the `routes` of each file of pages."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from starlette.routing import BaseRoute, Route

from cmserver.doors.web import pages, static_files
from cmserver.doors.web.page import NoPage

_FOUND: list[Route] = [
    route
    for module in iter_modules(pages.__path__, f"{pages.__name__}.")
    for route in getattr(import_module(module.name), "routes", [])
]
PAGES: list[Route] = sorted(_FOUND, key=lambda route: (-route.path.count("/"), route.path.replace("{", "~")))
"""The first that matches answers: a longer path before a shorter one, and a word (`why`) before a name in braces."""

routes: list[BaseRoute] = [
    *PAGES,
    *static_files.routes,
    NoPage(),  # answers whatever is left below /ui
]
