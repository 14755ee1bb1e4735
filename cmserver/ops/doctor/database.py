"""Checks of the database: that it keeps teams apart, delivers notifications, is cleaned up, and that its queue moves."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
from msgspec import structs
from psycopg import AsyncConnection

from cmserver.access import repository as access
from cmserver.access.keys import manage as manage_keys
from cmserver.base import credentials
from cmserver.base.db import DatabaseUrls, Db, check_pooling
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.migrate import IS_BEFORE_SQUASH, knows_letters, newest
from cmserver.base.settings import Settings
from cmserver.base.tenant_role import UnsafeConnection
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.model import EmbeddingModel
from cmserver.embeddings.model_choice import is_same
from cmserver.generation.queue_monitor import WARNING_SECONDS
from cmserver.models.calls import repository as calls
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.model import UNUSABLE_KINDS
from cmserver.observations.approval import repository as approvals
from cmserver.ops.doctor import repository
from cmserver.ops.doctor.backups import check_backups
from cmserver.ops.doctor.model import (
    DatabaseFacts,
    DeadRows,
    DoctorFinding,
    KeyEnd,
    OpenTransaction,
    OrphanedKey,
    SpentBudget,
    find,
)
from cmserver.ops.wire import describe_failure

_CLOCK_SECONDS = 60
_TRANSACTION_SECONDS = 600
_DEAD_ROWS = 50_000
_NOTIFY_SECONDS = 3.0
_NEARLY_ALL = 0.9
_RULE_DAYS = 3


async def check_database(db: Db, settings: Settings, urls: DatabaseUrls | None = None) -> list[DoctorFinding]:
    """All checks of the database. With `urls` also that of poolers and of NOTIFY, by connections of their own."""
    try:
        async with db.system_statement() as conn:
            if conn.info.parameter_status("server_encoding") not in ("UTF8", None):
                return [find("database.encoding")]
            number = await repository.SCHEMA_NUMBER.one(conn)
            is_before_squash = await IS_BEFORE_SQUASH.one(conn)
    except psycopg.errors.UndefinedTable:
        number, is_before_squash = 0, False
    except (Unavailable, psycopg.OperationalError) as error:
        return [find("database.unreachable", f"The database does not answer: {error}")]
    if is_before_squash:
        return [find("schema.older", f"The database has schema {number} of the time before the first release.")]
    if number != newest():
        return [_schema_finding(number)]
    findings = [*await _check_connections(db, urls)]
    async with db.system() as conn:
        if not await knows_letters(conn):
            findings.append(
                find(
                    "database.locale",
                    "The database has the locale C: a search for überweisung does not find ÜBERWEISUNG. Make a backup (`cmserver "
                    "backup`), and restore it into a database of locale C.UTF-8.",
                )
            )
        facts, now = await repository.FACTS.one(conn), time.time()
        transactions = await repository.open_transactions(conn, _TRANSACTION_SECONDS)
        tables = await repository.dead_rows(conn, _DEAD_ROWS)
        keys = await repository.KEY_ENDS.all(conn)
        orphaned_keys = await repository.ORPHANED_KEYS.all(conn)
        rules = await approvals.waiting(conn, None)
        budgets = await repository.SPENT_BUDGETS.all(conn)
        models = await embeddings.MODELS.all(conn)
        answers = await calls.model_health(conn, None, None)
        pauses = [pause for pause in await calls.PAUSES.all(conn) if pause.seconds_left > 0]
    findings += _check_facts(facts, now, settings)
    findings += _check_queue(facts)
    findings += _check_embedder(facts, models, settings)
    findings += _check_upkeep(facts, transactions, tables)
    findings += [
        find("provider.paused", f"{pause.provider} is paused: it {describe_failure(pause.reason)}.", name=pause.provider)
        for pause in pauses
    ]
    if answers.is_poor:
        total = answers.usable + answers.unusable
        findings.append(find("provider.answers", f"{answers.unusable} of {total} answers of models in 24 hours could not be used."))
    if answers.is_silent:
        error = answers.last_error
        is_one = error is not None and error.reason not in {kind.value for kind in UNUSABLE_KINDS}
        last = f" The last: {error.message}" if error and is_one else ""
        silent = f"{answers.unanswered} of {answers.calls} calls of models in 24 hours brought no answer."
        findings.append(find("provider.silent", sanitize_line(silent + last)))
    if rules.oldest_days > _RULE_DAYS or rules.expired:
        waiting = f"Rules that wait for a person's yes: {rules.waiting}, the oldest for {rules.oldest_days:.0f} days"
        findings.append(find("rules.waiting", f"{waiting}; that got no answer in time: {rules.expired}."))
    findings += [*_check_budgets(budgets), *_check_keys(keys), *_check_makers(orphaned_keys)]
    findings += await asyncio.to_thread(lambda: [*check_backups(settings, facts.first_start, has_archive=facts.archives_log)])
    return findings


async def check_credentials(db: Db, data_dir: Path) -> list[DoctorFinding]:
    """Whether the database takes the key in the data folder's credentials file, if there is one."""
    try:
        stored = credentials.read(data_dir)
    except credentials.BadCredentials as error:
        return [find("credentials.key", f"This machine's commands have no key: {error}")]
    if stored is None:
        return []
    key_id, key_hash = manage_keys.parse(stored.key)
    try:
        async with db.system() as conn:
            found = await access.find_keys(conn, [key_id] if key_id else [], [key_hash])
    except (Unavailable, psycopg.Error):
        return []  # which is a finding of its own
    keys = [key for key in found if key.key_hash == key_hash]
    if any(key.revoked_at is None and not key.expired for key in keys):
        return []
    reason = "revoked or expired" if keys else "altered" if found else "not of this database, as after a restore"
    message = (
        f"The key in {data_dir / credentials.FILE_NAME} is {reason}: the server refuses this machine's commands. Make a new one, "
        "and write it into that file; agents are connected again with `cmserver connect`."
    )
    return [find("credentials.key", message, team=shlex.quote(stored.team))]


def _schema_finding(number: int) -> DoctorFinding:
    code = "schema.older" if number < newest() else "schema.newer"
    return find(code, f"The database has schema {number}; this program has {newest()}.")


async def _check_connections(db: Db, urls: DatabaseUrls | None) -> list[DoctorFinding]:
    findings: list[DoctorFinding] = []
    try:
        await db.check_tenant()
    except Unavailable as error:
        findings.append(find("tenant.role", str(error)))
    if urls is None:
        return findings
    try:
        await check_pooling(urls)
    except UnsafeConnection as error:
        findings.append(find("database.pooling", str(error)))
    if not await _is_notified(db, urls):
        findings.append(
            find(
                "database.notify",
                "NOTIFY does not arrive: workers look for jobs only at each heartbeat. Check the pooler settings.",
            )
        )
    return findings


async def _is_notified(db: Db, urls: DatabaseUrls) -> bool:
    """Whether a notification reaches a listener on the connection for sessions."""
    payload = new_id().hex
    async with await AsyncConnection.connect(urls.session, autocommit=True, prepare_threshold=None) as listener:
        await repository.LISTEN.run(listener)
        async with db.system_statement() as conn:
            await repository.notify(conn, payload)
        try:
            async with asyncio.timeout(_NOTIFY_SECONDS):
                async for notification in listener.notifies():
                    if notification.payload == payload:
                        return True
        except TimeoutError:
            pass
    return False


def _check_facts(facts: DatabaseFacts, now: float, settings: Settings) -> Iterator[DoctorFinding]:
    """The database as a whole."""
    apart = abs(facts.epoch - now)
    if apart > _CLOCK_SECONDS:
        yield find("database.clock", f"The clocks of the database and of this machine are {apart / 60:.0f} minutes apart.")
    if facts.unprotected_tables:
        yield find("tenant.policies", f"Without row-level security or a policy: {', '.join(facts.unprotected_tables)}.")
    if facts.collation_changed:
        yield find("database.collation", name=facts.database)
    needed = 2 * settings.database_pool_size + facts.reserved_connections
    if facts.max_connections < needed:
        yield find(
            "database.connections",
            f"The database allows {facts.max_connections} connections; one process may need {needed} "
            "(CMSERVER_DATABASE_POOL_SIZE twice, and those reserved for superusers).",
            number=needed + 20,
        )
    elif facts.used_connections > _NEARLY_ALL * (facts.max_connections - facts.reserved_connections):
        yield find(
            "database.connections",
            f"{facts.used_connections} of {facts.max_connections} connections of the database are taken.",
            number=facts.max_connections * 2,
        )


def _check_queue(facts: DatabaseFacts) -> Iterator[DoctorFinding]:
    if not facts.live_workers:
        yield find("worker.none")
    if facts.dead_workers:
        yield find("worker.dead", f"{_count(facts.dead_workers, 'worker')} fell silent; a live worker takes over what they held.")
    if facts.expired_leases:
        yield find("lease.expired", f"{_count(facts.expired_leases, 'lane')} held by workers whose lease has expired.")
    if facts.stuck_lanes:
        yield find("lane.stuck", f"{_count(facts.stuck_lanes, 'lane')} due for more than five minutes, and no worker takes them.")
    if (facts.oldest_waiting_seconds or 0) > WARNING_SECONDS:
        yield find("queue.behind", f"The oldest waiting job has been due for {facts.oldest_waiting_seconds:.0f} s.")
    if facts.failed_jobs:
        yield find(
            "jobs.failed", f"{_count(facts.failed_jobs, 'job')} failed for good in the last seven days, on the whole server."
        )
    if facts.failing_embeddings:
        yield find("embeddings.failing", f"{_count(facts.failing_embeddings, 'text')} could not be embedded.")


def _check_embedder(facts: DatabaseFacts, models: Sequence[EmbeddingModel], settings: Settings) -> Iterator[DoctorFinding]:
    chosen = embedders.embedder_settings(settings)
    current = next((model for model in models if model.state == "current"), None)
    if chosen is None:
        if current is not None:
            yield find("embedder.absent", f"There are vectors of {current.provider} ({current.model}), and no embedder is set.")
        return
    if not facts.has_vector:
        yield find("database.extension")
        return
    is_changing = any(model.state == "building" for model in models)
    if current is not None and not is_changing and chosen.model is not None and not is_same(chosen, chosen.model, current):
        yield find(
            "embedder.stale",
            f"The settings name {chosen.provider} ({chosen.model}); in use is {current.provider} ({current.model}).",
        )


def _check_upkeep(facts: DatabaseFacts, transactions: list[OpenTransaction], tables: list[DeadRows]) -> Iterator[DoctorFinding]:
    if facts.revived_observations:
        revived = _count(facts.revived_observations, "observation")
        yield find("words.revived", f"Later words alone had hidden {revived}: shown again, and marked beside the later ones.")
    for transaction in transactions:
        yield find(
            "database.transaction",
            f"{transaction.program} has had a transaction open for {transaction.seconds / 60:.0f} minutes in {facts.database}.",
            pid=transaction.pid,
        )
    for table in tables:
        yield find(
            "database.vacuum", f"{table.name} has {table.dead:,} dead rows beside {table.live:,} live ones.", table=table.name
        )


def _check_budgets(budgets: list[SpentBudget]) -> Iterator[DoctorFinding]:
    for budget in budgets:
        whose = f"{budget.project} of the team {budget.team}" if budget.project else f"the team {budget.team}"
        found = find("budget.exhausted", f"The {budget.period}'s budget of {whose} is spent; its events wait.")
        yield structs.replace(found, command=raise_command(budget))


def raise_command(budget: SpentBudget) -> str:
    """What raises the budget: how far is left to be filled in; a maximum that is not reached stays, as the whole is replaced."""
    words = ["cmserver budgets set", f"--period {budget.period}"]
    words += [f"--project {shlex.quote(budget.project)}"] if budget.project else []
    for name, most, is_reached, blank in (
        ("tokens", budget.max_tokens, budget.by_tokens, "NUMBER"),
        ("usd", budget.max_usd, budget.by_usd, "AMOUNT"),
    ):
        if most is not None:
            words.append(f"--{name} {blank if is_reached else most}")
    return " ".join(words)


def _check_keys(keys: list[KeyEnd]) -> Iterator[DoctorFinding]:
    for key in keys:
        if key.days_left > 0:
            yield find(
                "key.expiring", f"A key of {key.actor} in the team {key.team} expires in {key.days_left:.1f} days.", id=key.id
            )
        else:
            yield find("key.expired", f"A key of {key.actor} in the team {key.team} has expired, and was used in the last week.")


def _check_makers(keys: list[OrphanedKey]) -> Iterator[DoctorFinding]:
    for key in keys:
        yield find(
            "key.maker",
            f"{key.maker} made a key of {key.actor} in the team {key.team}, and is no longer in it: whoever makes a key knows it.",
            id=key.id,
        )


def _count(number: int, noun: str) -> str:
    shown = "1,000 or more" if number >= 1000 else str(number)
    return f"{shown} {noun}{'' if number == 1 else 's'}"
