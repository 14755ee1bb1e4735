"""How the models do that word the memory: what `cmserver status`, the doctor and the pages show of it."""

from __future__ import annotations

from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.money import usd
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Rules
from cmserver.models.providers.registry import chain_models
from cmserver.ops.spending.wire import budget_out
from cmserver.ops.wire import AnswersOut, LastErrorOut


async def read_model_health(
    conn: Conn, settings: Settings, principal: Principal | None, project_id: UUID | None = None
) -> AnswersOut | None:
    """Answers, last error, and today's cost with the budgets: of the caller's team or its project, of the server without a caller.

    None where rules alone word the memory: no provider is set, and none was called.
    """
    team_id = principal and principal.team_id
    project_id = project_id or (principal and principal.project_id)
    health = await calls.model_health(conn, team_id, project_id)
    in_use = {model.name for model in chain_models(settings)}
    if not health.calls and not health.tokens_today and in_use == {Rules().name}:
        return None
    knows_names = not any(":" in name for name in in_use)  # one of the operator's own is recorded under a name that it gives itself
    statuses = [] if team_id is None else await calls.budget_statuses(conn, team_id, project_id=project_id)
    return reshape(
        health,
        AnswersOut,
        cost_usd_today=usd(health.cost_usd_today),
        budgets=[budget_out(status, principal) for status in statuses] if principal else [],
        last_error=health.last_error and reshape(health.last_error, LastErrorOut),
        not_in_use=[name for name in health.providers if name not in in_use] if knows_names else [],
    )


def describe_wording(settings: Settings, answers: AnswersOut | None) -> str:
    """Who words the memory, and whether that works: one sentence, the same wherever it is said."""
    first, *others = chain_models(settings)
    if first.name == Rules().name:
        return "The server's own rules word the memory, without a model."
    who = f"{first.name} ({first.model})" if first.model else first.name
    rest = f", and where it fails {', then '.join(other.name for other in others)}" if others else ""
    if answers is None or not answers.calls:
        return f"{who} words the memory{rest}."
    error = answers.last_error
    judged = error and (error.answered_by or error.provider)
    if answers.not_in_use and (judged is None or judged in answers.not_in_use):
        return f"{who} words the memory{rest}."  # who is in use now may not have been asked since
    if error is not None and error.answered_by is None:
        return f"{who} words the memory{rest}. It does not work now: no answer could be used since the last error."
    by = f", of {error.answered_by}," if error and error.answered_by != first.name else ""
    return f"{who} words the memory{rest}. It works: the last answer{by} could be used."
