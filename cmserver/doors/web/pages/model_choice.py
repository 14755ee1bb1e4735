"""The model that words the memory: how its answers are, and a form that tries another one and keeps it."""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response

from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.doors.web.page import Page
from cmserver.doors.web.visit import Visit
from cmserver.ops.model_health import describe_wording, read_model_health
from cmserver.ops.provider_choice.choice import TRIAL_SECONDS, choose_model, read_model, render_settings, try_model
from cmserver.ops.provider_choice.trial import ProviderTrialOut
from cmserver.ops.provider_choice.wire import ModelIn


class ModelForm(ModelIn, rename="camel", frozen=True, kw_only=True):
    """A choice, and what to do with it; `untried` keeps it without a call."""

    act: Literal["try", "save"] = "try"
    untried: bool = False


async def get_model(visit: Visit) -> Response:
    """The model that words the memory, how its answers are, and a form that tries another one and keeps it."""
    return await _render(visit)


async def post_model(visit: Visit) -> Response:
    """Try a model with one real call; keep it when its answer can be used."""
    form = await visit.form(ModelForm)
    choice, settings, start = reshape(form, ModelIn), visit.dependency(Settings), visit.dependency(ServerStart)
    trial = None
    if form.act == "try" or not form.untried:
        trial = await try_model(settings, start, choice)
        if form.act == "try" or not trial.usable:
            return await _render(visit, choice, trial, was_kept=False if form.act == "save" else None)
    kept = await choose_model(visit.db, visit.principal, settings, start, choice)
    said = f" {trial.message}" if trial else ""
    return visit.redirect("/ui/model", f"{kept.provider} is kept in {kept.file}. The server begins to use it now.{said}")


async def _render(
    visit: Visit, choice: ModelIn | None = None, trial: ProviderTrialOut | None = None, *, was_kept: bool | None = None
) -> Response:
    model = await read_model(visit.db, visit.dependency(Settings), visit.dependency(ServerStart))
    async with visit.tenant() as conn:
        own = await read_model_health(conn, visit.dependency(Settings), visit.principal)
    return visit.render(
        "model.html",
        title="Model",
        model=model,
        sources=[(row.setting, row.source) for row in model.sources],
        titles=[(row.name, row.title) for row in model.providers],
        trial_seconds=int(TRIAL_SECONDS),
        trial=trial,
        was_kept=was_kept,
        variables=render_settings(choice) if choice and trial and trial.usable else "",
        own=own,
        wording=describe_wording(visit.dependency(Settings), model.answers or None),
    )


routes = [
    Page("GET", "/ui/model", get_model, scope="*", is_for_operators=True),
    Page("POST", "/ui/model", post_model, scope="*", is_for_operators=True, form_of=get_model),
]
