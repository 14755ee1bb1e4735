"""What `cmserver doctor` looks for: each fault with its mending command, and what was found."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

from cmserver.base.migrate import CREATE_DATABASE

Severity = Literal["error", "warning"]
Place = Literal["database", "server", "machine"]


class Check(msgspec.Struct, frozen=True):
    """A fault that is looked for.

    `place` says where: in the database; in the settings and files of the server; or on the machine of the command, where agents are
    connected, which the page does not see.
    """

    code: str
    severity: Severity
    place: Place
    fault: str
    command: str
    """What mends it; what is in capitals is filled in by the finding where it is known."""


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was found, in a sentence, and the command that mends it."""

    code: str
    severity: Severity
    message: str
    command: str


CHECKS = [
    Check("database.unreachable", "error", "database", "The database does not answer.", "cmserver status"),
    Check("database.encoding", "error", "database", "The database is not in UTF8: no server starts on it.", CREATE_DATABASE),
    Check(
        "database.locale",
        "warning",
        "database",
        "The database has the locale C: words in capitals beyond A to Z are not found in small letters.",
        CREATE_DATABASE,
    ),
    Check("schema.older", "error", "database", "The database's schema is older than the program.", "cmserver restart"),
    Check(
        "schema.newer", "error", "database", "The database's schema is newer than the program.", "pip install --upgrade cmserver"
    ),
    Check("tenant.role", "error", "database", "Row-level security does not bind the connections of requests.", "cmserver restart"),
    Check(
        "tenant.policies",
        "error",
        "database",
        "A table with a team has no row-level security or no policy.",
        "cmserver restore FILE",
    ),
    Check(
        "database.pooling",
        "error",
        "database",
        "The URLs lead to a pooler that the settings do not name.",
        "cmserver config",
    ),
    Check(
        "database.notify",
        "error",
        "database",
        "NOTIFY does not reach a listener: workers only poll.",
        "cmserver config",
    ),
    Check(
        "database.clock",
        "error",
        "database",
        "The database's clock and this machine's are more than a minute apart.",
        "timedatectl set-ntp true",
    ),
    Check(
        "database.collation",
        "warning",
        "database",
        "The operating system sorts otherwise than when the database was made.",
        "psql -c 'REINDEX DATABASE NAME' -c 'ALTER DATABASE NAME REFRESH COLLATION VERSION'",
    ),
    Check(
        "database.extension",
        "warning",
        "database",
        "The database has no pgvector: search goes by words, and finds nothing by its meaning.",
        "psql -c 'CREATE EXTENSION vector'",
    ),
    Check(
        "database.connections",
        "error",
        "database",
        "Nearly all connections of the database are taken, or it allows fewer than one process needs.",
        "psql -c 'ALTER SYSTEM SET max_connections = NUMBER'",
    ),
    Check(
        "database.transaction",
        "warning",
        "database",
        "A transaction has been open for more than ten minutes: nothing that it can see is cleaned up.",
        "psql -c 'SELECT pg_terminate_backend(PID)'",
    ),
    Check(
        "database.vacuum",
        "warning",
        "database",
        "Autovacuum is behind: a table has more dead rows than half of its live ones.",
        "psql -c 'VACUUM (ANALYZE) TABLE'",
    ),
    Check(
        "rules.waiting",
        "warning",
        "database",
        "A rule waits for a person's yes for more than three days, or got no answer in time.",
        "cmserver rules pending",
    ),
    Check("worker.none", "error", "database", "No worker runs: events are stored and wait.", "cmserver run --role worker"),
    Check("worker.dead", "warning", "database", "A worker fell silent without saying good-bye.", "cmserver restart"),
    Check("lease.expired", "warning", "database", "A lane is held by a worker whose lease has expired.", "cmserver restart"),
    Check("lane.stuck", "warning", "database", "A lane has been due for more than five minutes.", "cmserver restart"),
    Check(
        "queue.behind",
        "warning",
        "database",
        "The oldest waiting job has waited for five minutes.",
        "cmserver jobs status",
    ),
    Check("jobs.failed", "warning", "database", "Jobs have failed for good in the last seven days.", "cmserver jobs retry --all"),
    Check(
        "provider.answers",
        "warning",
        "database",
        "At least a fifth of the models' answers in the last 24 hours could not be used: rules read those events in their place.",
        "cmserver doctor provider",
    ),
    Check(
        "provider.silent",
        "warning",
        "database",
        "At least a fifth of the calls of models in the last 24 hours brought no answer: jobs are tried again, then left to rules.",
        "cmserver doctor provider",
    ),
    Check("provider.paused", "warning", "database", "A provider is paused.", "cmserver providers resume NAME"),
    Check("budget.exhausted", "warning", "database", "A budget is spent: generation waits.", "cmserver budgets set --usd AMOUNT"),
    Check(
        "words.revived",
        "warning",
        "database",
        "What later words alone had hidden is shown again since the last week.",
        "cmserver list --type decision",
    ),
    Check("embeddings.failing", "warning", "database", "Texts could not be embedded.", "cmserver embeddings retry"),
    Check(
        "embedder.stale", "warning", "database", "The embedder in the settings is not the one in use.", "cmserver embeddings status"
    ),
    Check(
        "embedder.absent",
        "warning",
        "database",
        "There are vectors, and no embedder is set: what is new is not found by meaning.",
        "cmserver doctor embedder",
    ),
    Check("key.expiring", "warning", "database", "A key expires within a week.", "cmserver keys rotate ID"),
    Check("key.expired", "warning", "database", "A key that was used in the last week has expired.", "cmserver keys create"),
    Check("key.maker", "warning", "database", "A person made a key, and is no longer in its team.", "cmserver keys revoke ID"),
    Check("backup.old", "warning", "database", "The newest backup is too old, or there is none.", "cmserver backup"),
    Check("backup.damaged", "error", "database", "A backup cannot be read.", "cmserver backups verify"),
    Check("backup.failed", "error", "database", "The last drill failed: that backup cannot be restored.", "cmserver backup"),
    Check("backup.unverified", "warning", "database", "No backup was tried for 30 days.", "cmserver backup drill"),
    Check("backup.room", "error", "database", "The next backup does not fit on the disk of backups.", "df -h FOLDER"),
    Check("provider.key", "error", "server", "A provider in the settings cannot be used.", "cmserver doctor provider"),
    Check("embedder.settings", "error", "server", "The embedder in the settings cannot be used.", "cmserver doctor embedder"),
    Check("settings.unknown", "warning", "server", "A variable or a line of the config file is no setting.", "cmserver config"),
    Check(
        "credentials.key",
        "error",
        "database",
        "The key in the credentials file is revoked, altered, or not of this database, as after a restore: commands are refused.",
        "cmserver keys create --operator --team TEAM",
    ),
    Check("disk.full", "error", "server", "The disk of the data folder is nearly full.", "df -h FOLDER"),
    Check("files.owner", "error", "server", "A file in the data folder belongs to somebody else.", "chown -R USER FOLDER"),
    Check("files.unreadable", "error", "server", "A file in the data folder cannot be read.", "chmod -R u+rwX FOLDER"),
    Check("credentials.readable", "error", "server", "Others can read the credentials file.", "chmod 600 FILE"),
    Check("port.taken", "error", "machine", "Another program has the server's port.", "cmserver start --port PORT"),
    Check("service.left", "warning", "machine", "A service's program or data folder is gone.", "cmserver service remove"),
    Check("hooks.entry", "error", "machine", "An agent's settings file with the hooks is gone.", "cmserver connect AGENT"),
    Check("hooks.client", "warning", "machine", "An agent's hook client is from another version.", "cmserver connect AGENT"),
    Check("hooks.key", "error", "machine", "The server refuses an agent's key, or it is missing.", "cmserver connect AGENT"),
    Check(
        "hooks.certificate",
        "error",
        "machine",
        "The certificate of an agent's server is not trusted here.",
        "export SSL_CERT_FILE=FILE",
    ),
    Check("hooks.tools", "error", "machine", "The hooks found neither curl nor python3.", "apt-get install curl"),
    Check("hooks.spool", "warning", "machine", "Calls of an agent wait for more than 15 minutes.", "cmserver connections"),
    Check("hooks.lost", "warning", "machine", "Calls of an agent were lost or refused.", "cmserver connections"),
]
BY_CODE = {check.code: check for check in CHECKS}


def find(code: str, message: str = "", **names: object) -> DoctorFinding:
    """The finding of a check. `names` replace the words in capitals of its command: `name="anthropic"` replaces NAME."""
    check = BY_CODE[code]
    command = check.command
    for name, value in names.items():
        command = command.replace(name.upper(), str(value))
    return DoctorFinding(code=code, severity=check.severity, message=message or check.fault, command=command)


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the database that has had a transaction open for long."""

    pid: int
    program: str
    seconds: float


class DeadRows(msgspec.Struct, frozen=True, kw_only=True):
    """A table with many dead rows."""

    name: str
    dead: int
    live: int


class KeyEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A key that ends soon or has ended."""

    id: str
    actor: str
    team: str
    days_left: float


class OrphanedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that works, whose maker is no longer in its team and may know its secret."""

    id: str
    actor: str
    team: str
    maker: str


class SpentBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that is spent in the present period: by its tokens, its dollars, or both."""

    team: str
    project: str | None
    period: str
    max_tokens: int | None
    max_usd: Decimal | None
    by_tokens: bool
    by_usd: bool


class DatabaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the database tells."""

    schema_number: int
    first_start: datetime
    epoch: float
    database: str
    collation_changed: bool
    has_vector: bool
    archives_log: bool
    """Whether PostgreSQL archives its log: then there is a backup by other means."""
    max_connections: int
    reserved_connections: int
    used_connections: int
    live_workers: int
    dead_workers: int
    expired_leases: int
    stuck_lanes: int
    failed_jobs: int
    oldest_waiting_seconds: float | None
    failing_embeddings: int
    revived_observations: int
    unprotected_tables: list[str]
