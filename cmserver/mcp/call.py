"""What a tool is, and what a call of one is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from cmserver.access.limits.denials import Denials
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import convert
from cmserver.ingest.accept import Acceptance
from cmserver.observations.hand import Hand
from cmserver.recall.contexts import Contexts
from cmserver.recall.search.searcher import Searcher
from cmserver.recall.timeline.timelines import Timelines

T = TypeVar("T", bound=msgspec.Struct)
Arguments = Mapping[str, object]


class Verbs(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to do, which REST does as well, and the tools for it. One per process."""

    db: Db
    denials: Denials
    projects: Projects
    searcher: Searcher
    timelines: Timelines
    contexts: Contexts
    hand: Hand
    acceptance: Acceptance
    tools: Sequence[Tool]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request: who sent it, what there is to do, and which project its client works in, as the client says."""

    who: Principal
    verbs: Verbs
    project: str | None
    size_bytes: int


class Taking(msgspec.Struct, frozen=True):
    """The Struct that REST takes as well, and the verb for arguments as they come. It answers in text; raises a refusal of ours."""

    struct: type[msgspec.Struct]
    run: Callable[[Call, Arguments], Awaitable[str]]


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A name, and one verb with what it takes.

    `shows` are the fields that a model is told of, each with a short description; what else REST takes is taken, too.
    `project_in` is the field that says which project is meant: the client's own where it is left out, unless one of
    `unless` is there.
    """

    name: str
    title: str
    description: str
    takes: Taking
    shows: Mapping[str, str]
    scope: str
    writes: bool = False
    project_in: str | None = None
    unless: tuple[str, ...] = ()


def taking(struct: type[T], verb: Callable[[Call, T], Awaitable[str]]) -> Taking:
    """The verb for arguments as they come: Invalid, with the path of the wrong field, when they are no such Struct."""
    names = {field.encode_name for field in msgspec.structs.fields(struct)}

    async def run(call: Call, arguments: Arguments) -> str:
        unknown = next((name for name in arguments if name not in names), None)
        if unknown is not None:  # REST lets claude-mem's clients say more than it knows; a model has misspelt something
            raise Invalid.at(f"$.{unknown}", f"Unknown field at $.{unknown}.")
        return await verb(call, convert(dict(arguments), struct))

    return Taking(struct, run)
