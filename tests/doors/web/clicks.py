"""A person who clicks through the pages without JavaScript: follows links and sends forms, and counts the clicks."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin

import httpx

from tests.doors.web.visitor import ORIGIN, Visitor

VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})


class Element:
    """An element of a page, with what is in it."""

    def __init__(self, tag: str, attributes: dict[str, str], parent: Element | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        words = "".join(child if isinstance(child, str) else child.text for child in self.children)
        return " ".join(words.split())

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find_all(self, tag: str) -> list[Element]:
        return [element for element in self.walk() if element.tag == tag]

    def closed_details(self) -> list[Element]:
        """The `details` around it that have to be opened first."""
        found: list[Element] = []
        inner, around = self, self.parent
        while around is not None:
            if around.tag == "details" and "open" not in around.attributes and inner.tag != "summary":
                found.append(around)
            inner, around = around, around.parent
        return found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self._at = Element("document", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self._at)
        self._at.children.append(element)
        if tag not in VOID:
            self._at = element

    def handle_endtag(self, tag: str) -> None:
        at: Element | None = self._at
        while at is not None and at.tag != tag:
            at = at.parent
        if at is not None and at.parent is not None:
            self._at = at.parent

    def handle_data(self, data: str) -> None:
        self._at.children.append(data)


def parse(text: str) -> Element:
    parser = _Parser()
    parser.feed(text)
    return parser.root


class Clicker:
    """Begins at `/`. Each link, button and opened `details` is a click; typing and choosing are none."""

    def __init__(self, visitor: Visitor) -> None:
        self._client = visitor.client
        self.clicks = 0
        self.page = httpx.Response(200)
        self.document = Element("document", {}, None)

    async def begin(self) -> None:
        await self._show(await self._client.get("/", follow_redirects=True))

    @property
    def main(self) -> Element:
        (main,) = self.document.find_all("main")
        return main

    @property
    def heading(self) -> str:
        return self.main.find_all("h1")[0].text

    async def follow(self, text: str, *, within: str = "body") -> None:
        """Click on the first link whose text contains this one."""
        links = [link for link in self.document.find_all(within)[0].find_all("a") if text in link.text]
        assert links, f"no link {text!r} at {self.page.url}: {[link.text for link in self.document.find_all('a')]}"
        self._count(links[0])
        await self._show(await self._client.get(urljoin(str(self.page.url), links[0].attributes["href"]), follow_redirects=True))

    async def send(self, button: str, **fields: str) -> None:
        """Fill in the form with that button, and click on it."""
        forms = [form for form in self.main.find_all("form") if any(one.text == button for one in form.find_all("button"))]
        assert forms, f"no form {button!r} at {self.page.url}"
        form = forms[0]
        values = [(name, value) for name, value in _values(form) if name not in fields]
        names = {element.attributes.get("name") for element in form.walk()}
        assert fields.keys() <= names, f"the form has {names}"
        values += [(name, value) for name, value in fields.items() if value]
        target = urljoin(str(self.page.url), form.attributes["action"])
        self._count(form)
        if form.attributes.get("method") == "post":
            headers = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
            answer = await self._client.post(target, content=urlencode(values), headers=headers, follow_redirects=True)
        else:
            answer = await self._client.get(f"{target}?{urlencode(values)}", follow_redirects=True)
        await self._show(answer)

    def _count(self, element: Element) -> None:
        self.clicks += 1 + len(element.closed_details())

    async def _show(self, page: httpx.Response) -> None:
        assert page.is_success, f"{page.status_code} {page.url}: {page.text[-2000:]}"
        self.page = page
        self.document = parse(page.text)


def _values(form: Element) -> Iterator[tuple[str, str]]:
    """What the form sends when nobody changes anything."""
    for element in form.walk():
        name = element.attributes.get("name")
        if not name or "disabled" in element.attributes:
            continue
        if element.tag == "input":
            is_box = element.attributes.get("type") in {"checkbox", "radio"}
            if not is_box or "checked" in element.attributes:
                yield name, element.attributes.get("value", "")
        elif element.tag == "textarea":
            yield name, "".join(child for child in element.children if isinstance(child, str)).removeprefix("\n")
        elif element.tag == "select":
            options = element.find_all("option")
            chosen = next((option for option in options if "selected" in option.attributes), options[0])
            yield name, chosen.attributes["value"]
