"""`conn` means: in somebody's transaction, never the network. And the owner's connection, which sees every team, is taken in few
places, each with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.house import Source, source, sources
from tests.table import try_rows

OPENS = {"tenant", "system", "system_statement", "owner_session", "transaction", "connection"}
NETWORK = {"httpx", "anthropic"}


def network_with_a_connection(one: Source) -> Iterator[str]:
    """Calls of a provider or an HTTP client between taking a connection and giving it back."""
    for node in ast.walk(one.tree):
        if isinstance(node, (ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and _has_connection(node):
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and _is_network(call.func):
                    yield f"{one.module}:{call.lineno} calls {ast.unparse(call.func)} while it has a connection"


def _has_connection(node: ast.AsyncWith | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    if not isinstance(node, ast.AsyncWith):
        return any(argument.arg == "conn" for argument in [*node.args.args, *node.args.kwonlyargs])
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in OPENS for call in calls)


def _is_network(called: ast.expr) -> bool:
    words = ast.unparse(called).split(".")
    return words[-1] in {"complete", "complete_in_time", "word_merge", "word_suggestion", "embed"} or bool(NETWORK & set(words))


def test_nobody_calls_the_network_while_he_has_a_connection():
    assert [said for one in sources() for said in network_with_a_connection(one)] == []


@try_rows(
    "text",
    [
        "async def run(self):\n    async with self._db.system() as conn:\n        await self._provider.complete(prompt)",
        "async def run(db):\n    async with db.tenant(team) as conn, other:\n        httpx.get(url)",
        "async def run(conn: Conn):\n    async with anthropic.AsyncAnthropic() as model:\n        pass",
        "act = lambda conn: provider.complete(conn)",
        "async def run(db):\n    async with db.tenant(team) as conn:\n        await embedder.embed(texts, 'query')",
        "async def run(conn: Conn):\n    await complete_in_time(provider, prompt, 60)",
    ],
)
def test_the_test_above_sees_what_it_should(text: str):
    assert len(list(network_with_a_connection(source(text)))) == 1


def test_calling_the_network_between_two_connections_is_right():
    text = """
async def run(self):
    async with self._db.system() as conn:
        asked = await prompts(conn)
    completion = await self._provider.complete(asked)
    async with self._db.system() as conn:
        await keep(conn, completion)
"""

    assert list(network_with_a_connection(source(text))) == []


OWNERS_DOOR = {
    "access.authenticate.Authenticator._find_keys": "a key's team is known only once the key is found",
    "access.people.accounts.Accounts.run": "who is signed in, and in which team, is known only once the session is found",
    "access.bootstrap.bootstrap": "makes the first team and its key",
    "access.bootstrap.replace_unused_first_key": "looks whether a key is the only one of the whole database",
    "access.loopback.LoopbackAccess._look_up": "the team that the operator has named for guests, who have no key",
    "models.calls.recorded_call.RecordedCaller.call": "records a provider call, which requests may only read",
    "models.calls.recorded_call.RecordedCaller.load_provider": "pauses have no team",
    "base.follow.reading_alone": "a lock over several transactions, which reads no table",
    "consolidation.comparison.compare.compare_new": "a periodic task: finds the teams that have something new",
    "embeddings.turn_sentences.write_due_sentences": "the worker's: turns of all teams wait for their sentences",
    "generation.trace_old_turns.trace_old_turns": "the worker's: turns of all teams wait",
    "graph.overviews.make.make_due_overviews": "a periodic task: finds the projects whose page is due",
    "graph.read_observations.read_new_observations": "a periodic task: finds the teams that have something new",
    "cli.api_server.open_api_server": "reads the installation's secret at the start",
    "cli.first_key.make_owner_link": "nobody has an account yet, and who has the terminal of the server may make the first",
    "cli.first_key._is_known": "whose key stands in the credentials file is not known",
    "cli.operator.Operator.all_teams": "an operator's command: names any team",
    "cli.operator.open_operator_client": "an operator's command: the schema, and the installation's secret",
    "cli.run._begin": "makes the column of vectors one, at the start",
    "cli.verify._sums": "an operator's command: the sums of every team",
    "generation.api.get_workers": "workers are of the whole server, and shown to its operator",
    "doors.web.pages.queue.get_workers": "as above",
    "ops.doctor.database.check_credentials": "asks whether a key is of this database, whatever its team",
    "ops.doctor.database.check_database": "looks at the database as a whole, for its operator",
    "ops.doctor.diagnose.read_answers": "how the models do for every team, for the server's operator",
    "ops.doctor.database._is_notified": "a bare NOTIFY, which reads no table",
    "ops.provider_choice.choice.read_model": "workers and answers of the whole server, shown to its operator",
    "ops.provider_pauses.list_providers": "pauses have no team",
    "ops.provider_pauses.resume_paused_provider": "a pause has no team, and its end makes lanes of every team due",
    "generation.job_notifier.JobNotifier._notify": "a bare NOTIFY, which reads no table",
    "generation.jobs.keep_ready_list": "maintenance: idle and sleeping lanes of every team",
    "generation.manager.OutboxManager._claim": "a worker claims lanes of every team",
    "generation.manager.OutboxManager._requeue_lost_claims": "a worker holds batches of several teams",
    "generation.manager.OutboxManager.list_jobs_to_abort_async": "a worker holds batches of several teams",
    "generation.manager.OutboxManager.register_worker": "procrastinate's tables are the owner's",
    "generation.manager.OutboxManager.unregister_worker": "a worker puts back batches of several teams",
    "generation.manager.OutboxManager.update_heartbeat": "procrastinate's tables are the owner's",
    "generation.lease.retry_until_lease_ends": "effects: what a claim holds is read and written behind its fence",
    "generation.run_batch.BatchRunner._work_and_apply": "effects: asks what the claim still holds",
    "cli.transfer._operator_of": "an operator's command: names any team",
    "ops.backup.journal.begin_journal": "the installation has no team",
    "ops.backup.scheduled.back_up_when_due": "maintenance: the installation has no team",
    "ops.transfer.pipeline.Importer.run": "an operator's command: looks whether ids are another team's, and links rows as they are",
    "ops.transfer.pipeline.Importer._store_linked": "as the next one",
    "ops.transfer.pipeline.Importer._store": "an operator's command: writes rows as they are, which requests may not",
    "ops.joining.join.join_projects": "moves rows of which a request may change nothing else, such as the log of jobs",
    "ops.joining.join.move_strays": "maintenance: what was written into joined projects of every team",
    "ops.joining.join.separate_projects": "as join_projects",
    "ops.joining.move_session.move_session": "as join_projects",
    "ops.erasure.session.delete_session": "deletes rows of every room by a function of the owner, such as the runs of its lane",
    "access.private.PrivatePlaces.enter": "makes a place of a person, which is a team of its own",
    "ops.privacy.mark.PrivateSessions.make_private": "as join_projects, from one team to another",
    "ops.privacy.mark.PrivateSessions.give_back": "as the one above",
    "personal.api.get_personal_memory": "reads what the caller has in two places at once",
    "ops.joining.normalise.normalise_all": "maintenance: the projects of every team",
    "ingest.jobs.sweep": "maintenance: idle sessions of every team are found; each is ended behind its team's policy",
    "observations.accesses.jobs.count_accesses": "maintenance: goes through the audit log of every team",
    "embeddings.model_choice.apply_choice": "models are of all teams, and only the owner changes them",
    "embeddings.model_choice.switch": "as above",
    "embeddings.embedding_worker.embed_pending": "one call embeds texts of several teams, each behind its claim",
    "embeddings.indexes.ensure_index": "makes indexes, each of one team's vectors",
    "embeddings.embedding_worker.EmbeddingWorker.round": "models are of all teams",
    "embeddings.embedding_worker.EmbeddingWorker._advance": "observations of all teams get their rows of a new model",
    "embeddings.embedding_worker.EmbeddingWorker._clear": "embeddings of all teams with a retired model go",
    "embeddings.embedding_worker.EmbeddingWorker._recovered": "what waits of all teams is due",
    "embeddings.calibration.jobs.calibrate_teams": "finds the teams that are not calibrated; each is then calibrated as itself",
    "embeddings.model_pull.ModelPull._store": "models are of all teams",
    "base.notifications.check_notifications": "a bare NOTIFY, which reads no table",
    "ops.deployment.read_deployment": "sizes and growth of all teams together, for the operator",
    "ops.api.get_info": "workers, pauses and the schema have no team",
    "ops.api.get_readyz": "readiness: the schema and the workers have no team",
    "ops.metrics.collect.read_database_numbers": "numbers of the whole installation, for who has the operator's token",
    "ops.stream.feed.Feed._end_streams_of_lost_rows": "the end of the logs of all teams",
    "ops.stream.feed.Feed._is_out_of_reach": "as the one above",
    "ops.stream.feed.Feed._end_invalid_streams": "the streams' keys are of every team",
    "ops.stream.feed.Feed._send_new_rows": "reads new rows of all teams; each reader gets its own team's",
    "ops.stream.feed.Feed._find_start": "the end of the logs of all teams",
    "observations.answering.answer.expire_rules": "maintenance: what nobody answered in time, of every team",
    "retention.sweep.count_due": "an operator's command: what would go of every team",
    "retention.sweep.sweep": "maintenance: what every team keeps no longer",
    "retention.sweep._report_pins": "as above: whose pins it broke; each is asked behind its team's policy",
    "retention.sweep._Run.take_log": "as above",
    "retention.sweep._Run._in_batch": "as above",
    "steward.plan.plan_all": "finds the teams whose steward is on; each is then looked through as itself",
    "steward.plan.plan_team": "how many jobs of the steward are open is counted over all teams",
    "replays.run_replay.run_replays": "a worker runs the replays of every team",
    "replays.run_replay._run": "as above: the team of one",
    "replays.run_replay._set_state": "as above",
    "replays.run_replay._Run.run": "as above; each statement names the team",
    "replays.run_replay._Run._keep": "as above",
    **dict.fromkeys(
        [f"replays.shadow.session.ShadowDb.{name}" for name in ("in_system", "load", "hold", "claim", "left", "end", "compare")],
        "no real connection: the shadow has the owner's so that temporary tables can be made, and may write nothing else",
    ),
    "worker.run_worker": "lanes of every team that waited for a provider",
    "worker._reap.reap": "the reaper gives back what dead workers hold, of every team",
    "generation.queue_monitor.QueueMonitor.look": "looks at the queues of every team",
    "worker._supervise": "procrastinate's tables are the owner's",
}
"""Where the owner's connection is taken, and why the tenant's would not do."""


def owners_door(one: Source) -> Iterator[str]:
    """`module.function` of each place that takes a connection of the owner's."""
    yield from _walk(one.tree, one.module.removeprefix("cmserver."))


def _walk(node: ast.AST, name: str) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        name = f"{name}.{node.name}"
    if isinstance(node, ast.Attribute) and node.attr in {
        "system",
        "system_statement",
        "in_system",
        "owner_session",
        "session_pool",
    }:
        yield name
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, name)


def test_the_owners_connection_is_taken_only_where_a_reason_stands():
    # Providers know no database (import-linter), and the `system` part of a request is none.
    known = [
        one for one in sources() if one.module != "cmserver.base.db" and not one.module.startswith("cmserver.models.providers.")
    ]
    found = {place for one in known for place in owners_door(one)}

    assert found - OWNERS_DOOR.keys() == set(), "use db.tenant, or add the place to OWNERS_DOOR with its reason"
    assert OWNERS_DOOR.keys() - found == set(), "take these out of OWNERS_DOOR"


def test_the_test_above_sees_each_way_to_the_owner():
    text = """
class Room:
    async def sees(self):
        async with self._db.system() as conn, db.system_statement():
            pass
def lends(db):
    return db.session_pool
act = db.in_system(f)
"""

    assert list(owners_door(source(text))) == ["example.verb.Room.sees"] * 2 + ["example.verb.lends", "example.verb"]
