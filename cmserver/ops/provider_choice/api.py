"""The model that words the memory over HTTP, for operators of the server."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.verb import VerbCall, command
from cmserver.base.columns import render_fields
from cmserver.base.db import Db
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.ops.provider_choice.choice import choose_model, read_model, try_model
from cmserver.ops.provider_choice.trial import ProviderTrialOut
from cmserver.ops.provider_choice.wire import ChosenModelOut, ModelIn, ModelOut


def _render(model: ModelOut, _: verb.Typed) -> str:
    return render_fields(
        ("provider", model.provider),
        ("model", model.model or "the provider's default"),
        ("address", model.base_url or "the usual one"),
        *((row.setting, f"from {row.source}") for row in model.sources),
        ("choice kept in", model.file if model.fixed_because is None else f"nowhere: {model.fixed_because}"),
        *(model.answers.fields() if model.answers else []),
    )


@command("model show", _render, text="Show the model that words the memory. Operator only: a key with the scope *.")
@verb.get("/v1/model", "*", whole_team=True)
async def get_model(call: VerbCall) -> ModelOut:
    """The model that words the memory, where that is set, what there is to choose, and how its answers are."""
    return await read_model(call.dependency(Db), call.dependency(Settings), call.dependency(ServerStart))


@verb.post("/v1/model/trial", "*", whole_team=True)
async def post_trial(call: VerbCall, given: ModelIn) -> ProviderTrialOut:
    """Try a model: one real call with two made-up events, which costs what it says, read as a job reads it. Keeps nothing."""
    return await try_model(call.dependency(Settings), call.dependency(ServerStart), given)


@verb.put("/v1/model", "*", whole_team=True)
async def put_model(call: VerbCall, given: ModelIn) -> ChosenModelOut:
    """Choose the model. It is kept in the data folder, and the server begins to use it within seconds."""
    settings, start = call.dependency(Settings), call.dependency(ServerStart)
    return await choose_model(call.dependency(Db), call.principal, settings, start, given)


routes = [get_model, post_trial, put_model]
