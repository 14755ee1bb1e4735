"""Has a model word the page about a project, in one call outside of any transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast
from uuid import UUID

import msgspec

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.graph.overviews import repository
from cmserver.graph.overviews.compose import LATEST, OverviewSource
from cmserver.graph.overviews.model import Overview
from cmserver.models.calls.recorded_call import RecordedCaller
from cmserver.models.providers.model import Prompt, ProviderError
from cmserver.models.providers.prompts.render import OVERVIEW_CHARS
from cmserver.observations.plain import one_line
from cmserver.redaction.redact import redact

log = get_logger(__name__)

ANSWER_TOKENS = 2_500
"""500 words take so many in German, Russian or Japanese."""
TEMPERATURE = 0.2
MAX_BODY_CHARS = 8_000
_ANSWER_SECONDS = 60.0
_MAX_TEXTS = 50
_TEXT_CHARS = 3_000
"""The most of one summary or turn."""
_LINE_CHARS = 400
_THOUGHTS = re.compile(
    r"<(think|thinking|thought|reasoning|reflection|analysis|scratchpad)\b[^>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
_CHATML = re.compile(r"<\|im_start\|>(?:system|user|assistant|tool)?[ \t]*\n?|<\|[a-z_]{1,20}\|>")
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class OverviewDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was made by rules, and what a model may make it of: texts with their numbers, the newest last."""

    overview: Overview
    project: str
    texts: list[str]


class OverviewWriter:
    """Asks the configured provider for the words of pages, where `CMSERVER_ENTITIES` is `model`."""

    def __init__(self, db: Db, settings: Settings) -> None:
        self._db = db
        self._caller = RecordedCaller(db, settings)
        self.is_on = settings.entities == "model" and self._caller.first_provider != "offline"

    @property
    def max_texts(self) -> int:
        """Of how many summaries or turns a page is made."""
        return _MAX_TEXTS if self.is_on else LATEST

    async def word(self, team_id: UUID, made: OverviewDraft) -> Overview:
        """The page in a model's words; as it is where no model is to be asked, or none answers. Never raises for a provider."""
        if not self.is_on or not made.texts:
            return made.overview
        prompt = Prompt(
            kind="overview",
            project=made.project,
            stored=made.texts,
            answer_tokens=ANSWER_TOKENS,
            temperature=TEMPERATURE,
        )
        project_id = made.overview.project_id
        try:
            provider = await self._caller.load_provider()
            if provider is None:
                return made.overview
            completion = await self._caller.call(team_id, project_id, provider, prompt, seconds=_ANSWER_SECONDS)
        except (Invalid, ProviderError) as error:
            log.warning("overview.wording_failed", project=str(project_id), error=str(error))
            return made.overview
        body = read_page(completion.text) if completion else ""
        if not body:
            return made.overview
        made_by = f"{provider.name}/{provider.model}"
        async with self._db.tenant(team_id) as conn:
            if not await repository.word(conn, team_id, made.overview, body, made_by):
                return made.overview
        return msgspec.structs.replace(made.overview, body=body, made_by=made_by)


def list_texts(source: OverviewSource) -> list[str]:
    """What a model is shown, the newest last, as far as there is room: what users laid down, what is open, summaries, turns."""
    texts: list[str] = []
    room = OVERVIEW_CHARS
    for text in _texts(source):
        room -= len(text)
        if room < 0:
            break
        texts.append(text)
    return texts[::-1]


def _texts(source: OverviewSource) -> Iterator[str]:
    """Those that must not be missing first, then the newest."""
    for instruction in source.instructions:
        yield f"#{instruction.number} laid down by a user: {instruction.title}"
    for observation in source.open_ends:
        yield f"#{observation.number} open: {observation.title or observation.content[:_TEXT_CHARS]}"
    for observation in source.summaries:
        yield f"#{observation.number} {observation.created_at:%Y-%m-%d}\n{observation.content[:_TEXT_CHARS]}"
    for turn in source.turns:
        yield f"#{turn.number} {turn.created_at:%Y-%m-%d}\n{turn.text[:_TEXT_CHARS]}"


def read_page(answer: str) -> str:
    """The page in an answer, without thoughts, marks of a chat and secrets; "" when there is none."""
    text = _CHATML.sub("", _THOUGHTS.sub("", answer))
    found = _OBJECT.search(text)
    page = _read_field(found[0]) if found else None
    text = _CHATML.sub("", _THOUGHTS.sub("", page)) if page is not None else text
    lines = [one_line(line, _LINE_CHARS) for line in redact(text)[0].splitlines()]
    return "\n".join(lines).strip()[:MAX_BODY_CHARS].rstrip()


def _read_field(text: str) -> str | None:
    """The field `page` of a JSON object; None when it is none."""
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    page = cast("dict[str, object]", value).get("page") if isinstance(value, dict) else None
    return page if isinstance(page, str) else None
