"""Rules that wait for a person's yes, over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Callable

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import Typed, VerbCall, command, option
from cmserver.base.columns import Columns
from cmserver.observations.answering import wire
from cmserver.observations.answering.answer import Answer, answer_rule, list_rules
from cmserver.observations.plain import one_line

_LINE_CHARS = 160
_TABLE = Columns(
    wire.RuleOut,
    "number, asked, ends=expires, by, text",
    by=lambda rule: rule.origin if rule.actor_id is None else f"{rule.origin} ({rule.actor_id})",
    text=lambda rule: one_line(rule.title or rule.content, _LINE_CHARS),
)


@command(
    "rules pending",
    _TABLE.page("rules", "No rule waits for a yes.", shrink=("text",)),
    text="List rules that a model or an agent's tool wrote and that wait for your yes, the last first.",
)
@option("--project", "Only of this project.", metavar="PROJECT")
@option("--state", "What became of them.")
@verb.get("/v1/rules", "observations:read")
async def get_rules(call: VerbCall, given: wire.RulesQuery) -> wire.RulesOut:
    """A page of the rules that a model or an agent's tool wrote in a team that asks, the last asked first. For people only."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    async with call.read() as conn:
        rules, next_cursor = await list_rules(
            conn, call.principal, project_id=project_id, state=given.state, limit=given.limit, cursor=given.cursor
        )
    return wire.RulesOut(rules=[*map(wire.rule_out, rules)], next_cursor=next_cursor)


async def _answer(call: VerbCall, number: str, answer: Answer) -> wire.OneRuleOut:
    rule = await call.write(lambda conn: answer_rule(conn, call.principal, number, answer))
    return wire.OneRuleOut(rule=wire.rule_out(rule))


def _shows(done: str) -> Callable[[wire.OneRuleOut, Typed], str]:
    return lambda result, _: f"#{result.rule.number} {done}: {one_line(result.rule.title or result.rule.content, _LINE_CHARS)}"


@command("rules approve", _shows("counts from now on"), text="Say yes to a rule: it counts from now on.")
@option("NUMBER", field="id")
@verb.post("/v1/rules/{id}/approve", "observations:write")
async def post_approve(call: VerbCall, given: str) -> wire.OneRuleOut:
    """Say yes to a rule: it is shown from now on. For people only."""
    return await _answer(call, given, "approved")


@command("rules reject", _shows("does not count"), text="Say no to a rule: it is deleted after seven days.")
@option("NUMBER", field="id")
@verb.post("/v1/rules/{id}/reject", "observations:write")
async def post_reject(call: VerbCall, given: str) -> wire.OneRuleOut:
    """Say no to a rule: it is shown to nobody, and deleted after seven days. For people only."""
    return await _answer(call, given, "rejected")


@command("rules undo", _shows("waits for an answer again"), text="Take an answer back: the rule waits anew, and does not count.")
@option("NUMBER", field="id")
@verb.post("/v1/rules/{id}/undo", "observations:write")
async def post_undo(call: VerbCall, given: str) -> wire.OneRuleOut:
    """Take the answer to a rule back: it waits anew, and is not shown. For people only."""
    return await _answer(call, given, "pending")


routes = [get_rules, post_approve, post_reject, post_undo]
