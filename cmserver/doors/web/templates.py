"""Renders the templates. Everything stored is text: escaped, and with its invisible characters made visible."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from cmserver.access.model import Project
from cmserver.base.errors import CmserverError, Issue
from cmserver.base.ids import from_epoch_ms
from cmserver.base.lookalikes import CONTROL, INVISIBLE
from cmserver.generation.operate.words import in_words

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

_VISIBLE = "\n\t\u200d\ufe0f"
"""Line ends, and what composes emoji."""
_HIDDEN = re.compile(f"(?![{_VISIBLE}])(?:{CONTROL.pattern}|[{INVISIBLE}])")


_ADDRESS = re.compile(r' (?:href|src|action|formaction|hx-get|data-live)="(?=/(?!/))')
"""Where an address on this server begins. Stored text has no quotation marks as such, so that it is never taken for one."""


def show_hidden(text: str) -> str:
    """The text with a visible mark for each invisible, control and direction character: `⟨U+202E⟩`."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text)


def as_stored(value: object) -> Markup:
    """The text as it is, escaped, for the fields of forms: what is not changed there comes back unchanged."""
    return escape(value)


def _finalize(value: object) -> object:
    return show_hidden(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def format_number(value: float | Decimal | None) -> str:
    """With separators of thousands; a dash for None."""
    return "\u2013" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def format_bytes(value: float | None) -> str:
    """1.4 MB."""
    if value is None:
        return "\u2013"
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def format_money(value: Decimal | float | None) -> str:
    """US dollars, with as many digits as small amounts need."""
    if value is None:
        return "\u2013"
    amount = Decimal(str(value))
    text = f"{amount:,.2f}" if amount == 0 or abs(amount) >= 1 else f"{amount:,.4f}"
    return f"${text.removesuffix('00')}" if text[-5:-4] == "." else f"${text}"


def format_duration(seconds: float | None) -> str:
    """850 ms, 12 s, 3 min, 2 h 5 min, 4 days."""
    if seconds is None:
        return "\u2013"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{round(hours / 24)} days"


def format_json(value: object) -> str:
    """With a line for each field."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def to_moment(value: datetime | int) -> datetime:
    """A time, also of epoch milliseconds, in UTC."""
    return from_epoch_ms(value) if isinstance(value, int) else value.astimezone(UTC)


def is_unknown_time(value: datetime | int) -> bool:
    """Whether it is 1970, which imports have where no time was known."""
    return to_moment(value).timestamp() == 0


def format_relative(value: datetime | int) -> str:
    """`3 minutes ago`, `in 2 days`; the date where it is more than a month away."""
    moment = to_moment(value)
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if abs(seconds) < 45:
        return "just now" if seconds >= 0 else "in a moment"
    if abs(seconds) > timedelta(days=30).total_seconds():
        return f"{moment:%-d %b %Y}"
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if abs(seconds) >= size or unit == "minute":
            count = max(1, round(abs(seconds) / size))
            words = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"{words} ago" if seconds >= 0 else f"in {words}"
    return ""


def format_exact(value: datetime | int) -> str:
    """`2026-11-24 10:15:03 UTC`."""
    return f"{to_moment(value):%Y-%m-%d %H:%M:%S} UTC"


def format_iso(value: datetime | int) -> str:
    return to_moment(value).isoformat(timespec="milliseconds")


_MARKS = re.compile(r"`(?P<code>[^`\n]+)`|#(?P<number>[1-9][0-9]{0,17})\b")


def marked(text: str) -> Markup:
    """The text as HTML, in which `#12` is a link to that observation, and what stands in backticks is code."""
    done, pieces = 0, list[Markup]()
    for match in _MARKS.finditer(text):
        pieces.append(escape(show_hidden(text[done : match.start()])))
        if match["code"] is not None:
            pieces.append(Markup("<code>{}</code>").format(show_hidden(match["code"])))
        else:
            pieces.append(Markup('<a href="/ui/observations/{0}">#{0}</a>').format(match["number"]))
        done = match.end()
    return Markup("").join([*pieces, escape(show_hidden(text[done:]))])


def for_form(error: CmserverError) -> str:
    """The refusal of a form; wrong fields are called as people call them, and not by their paths."""
    text = str(error)
    for issue in cast("list[Issue]", getattr(error, "issues", [])):
        name = issue.path.removeprefix("$.").replace("_", " ")
        text = text.replace(f" at {issue.path}", f" ({name})").replace(f"{issue.path}:", f"{name}:")
    return text


_CODE = re.compile(r"`([^`\n]+)`")


def titled(text: str) -> Markup:
    """A title as HTML, in which what stands in backticks is code; also inside of a link."""
    code = Markup("<code>{}</code>")
    pieces = enumerate(map(show_hidden, _CODE.split(text)))
    return Markup("").join(code.format(piece) if place % 2 else escape(piece) for place, piece in pieces)


def axis_top(values: Sequence[float]) -> float:
    """Where the axis of a chart of these values ends: a round number whose half is one, too."""
    most = max(values, default=0)
    if most <= 0:
        return 2.0
    power = 10.0 ** math.floor(math.log10(most))
    factors = (1, 2, 4, 6, 8, 10) if power >= 10 else (2, 4, 6, 8, 10)
    return next(factor * power for factor in factors if factor * power >= most or factor == 10)


def axis_label(value: float, unit: str) -> str:
    """A value as an axis writes it: `1,200`, `3.4M`, `$0.20`, `12 MB`."""
    if unit == "money":
        return format_money(Decimal(f"{value:.6g}"))
    if unit == "bytes":
        return format_bytes(value)
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (size if letter != 'k' else 1e3):g}{letter}"
    return f"{value:,g}"


def plural(count: int, singular: str, plural_form: str = "") -> str:
    """`1 session`, `1,200 sessions`."""
    return f"{count:,} {singular if count == 1 else plural_form or singular + 's'}"


def path_segment(text: object) -> str:
    """The text escaped as one segment of a path."""
    return quote(str(text), safe="")


def with_query(path: str, parameters: Mapping[str, object], **changes: object) -> str:
    """The path with these query parameters; None and empty ones are left out."""
    merged = {**parameters, **changes}
    pairs = [
        (name, str(item))
        for name, value in merged.items()
        if value not in (None, "", False)
        for item in (cast("list[object]", value) if isinstance(value, list) else [value])
    ]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def short_project(canonical_id: str, projects: Iterable[Project]) -> str:
    """What a person calls the project with that canonical id; the id itself where it is none of the projects."""
    return next((project.name for project in projects if project.canonical_id == canonical_id), canonical_id)


def project_options(projects: Iterable[Project]) -> list[tuple[str, str]]:
    """The projects as options of a select."""
    return [(str(project.id), project.name) for project in projects]


def named_option(word: str) -> tuple[str, str]:
    """A word of ours (`security_alert`) as an option of a select."""
    return word, word.replace("_", " ")


def has_many_columns(headings: Sequence[str]) -> bool:
    """Whether a table has more columns than fit on a narrow screen. Headings of numbers begin with `#`."""
    return len(headings) > 3 or sum(not heading.startswith("#") for heading in headings) > 2


def label_cells(row: Markup, headings: Sequence[str]) -> Markup:
    """The cells of a table's row with their headings as `data-label`, but for the first, which is what the row is about."""
    start, *cells = row.split("<td")
    labels = [
        Markup(' data-label="{}"').format(heading.lstrip("#")) if place and heading else ""
        for place, heading in enumerate(headings)
    ]
    return Markup("<td").join([start, *(text + cell for text, cell in zip(labels, cells, strict=True))])


@cache
def static_path(name: str) -> str:
    """The address of a static file, with its hash, so that browsers keep it until it changes."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/ui/static/{name}?v={digest}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cast("dict[str, object]", environment.tests)["unknown_time"] = is_unknown_time
    filters = cast("dict[str, object]", environment.filters)
    filters.update(
        number=format_number,
        bytes=format_bytes,
        money=format_money,
        duration=format_duration,
        relative=format_relative,
        exact=format_exact,
        iso=format_iso,
        label_cells=label_cells,
        segment=path_segment,
        project_options=project_options,
        short_project=short_project,
        named_option=named_option,
        in_words=in_words,
        marked=marked,
        titled=titled,
        for_form=for_form,
        as_stored=as_stored,
        shell=shlex.quote,
        axis_label=axis_label,
    )
    names = cast("dict[str, object]", environment.globals)
    names.update(static=static_path, has_many_columns=has_many_columns, plural=plural, with_query=with_query, axis_top=axis_top)
    return environment


def render_template(name: str, context: Mapping[str, object], *, below: str) -> str:
    """The template as HTML; all its addresses on this server begin with the path `below`."""
    html = _environment().get_template(name).render(context)
    return _ADDRESS.sub(rf"\g<0>{below}", html) if below else html
