"""Checks and configures the database role of requests, which row-level security must bind."""

from __future__ import annotations

import contextlib

import msgspec
from psycopg import errors, sql

from cmserver.base.errors import CmserverError
from cmserver.base.sql import Conn, Query

TENANT_ROLE = "cmserver_tenant"
"""Has the rights that requests need, owns nothing, and cannot log in."""
REQUEST_ROLE = "cmserver_request"
"""Logs in for requests, as a member of TENANT_ROLE. An operator may choose another name."""

TENANT_SETTINGS = {
    "idle_in_transaction_session_timeout": "10000",
    # Somebody waits for a request: starting parallel workers and compiling takes longer than most of its statements, and longer
    # than it saves in the others.
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}

_MAKE_REQUEST_ROLE = f"""Ask whoever runs the database to execute:
  CREATE ROLE {REQUEST_ROLE} LOGIN PASSWORD '...';
  GRANT {TENANT_ROLE} TO {REQUEST_ROLE};
Then set CMSERVER_DATABASE_TENANT_URL to CMSERVER_DATABASE_URL with that user and password."""


class UnsafeConnection(CmserverError):
    """The connections do not match the settings: teams would not be kept apart, or work would be lost."""


class _Role(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    is_unbound: bool
    is_owner: bool
    is_tenant: bool
    is_row_security_active: bool


_ROLE = Query(
    _Role,
    """
    SELECT r.rolname::text AS name,
           r.rolsuper OR r.rolbypassrls AS is_unbound,
           EXISTS (SELECT FROM pg_class c
                    WHERE c.relnamespace = current_schema()::regnamespace AND pg_has_role(r.oid, c.relowner, 'MEMBER')) AS is_owner,
           EXISTS (SELECT FROM pg_roles t WHERE t.rolname = %(tenant_role)s AND pg_has_role(r.oid, t.oid, 'USAGE')) AS is_tenant,
           coalesce(row_security_active(to_regclass('observations')), false)
               AND NOT EXISTS (SELECT FROM pg_class c
                                WHERE c.relnamespace = current_schema()::regnamespace AND c.relrowsecurity
                                  AND NOT row_security_active(c.oid)) AS is_row_security_active
      FROM pg_roles r WHERE r.rolname = current_user
    """,
)

_OWN_SETTINGS = Query(str, "SELECT unnest(rolconfig) FROM pg_roles WHERE rolname = current_user")


async def check_tenant_role(conn: Conn) -> None:
    """Raise UnsafeConnection unless row-level security binds the connection's role on every table and it owns none."""
    role = await _ROLE.one(conn, tenant_role=TENANT_ROLE)
    reasons = {
        "no policy binds it (SUPERUSER or BYPASSRLS)": role.is_unbound,
        "it owns tables of cmserver, or may become their owner": role.is_owner,
        f"it is not a member of {TENANT_ROLE}": not role.is_tenant,
        "row-level security is not active for it": not role.is_row_security_active,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    if reason is not None:
        raise UnsafeConnection(
            f"Requests would reach the database as the role {role.name}, and teams would not be kept apart: {reason}. "
            "Requests need a login role of their own; a role taken after login is lost behind a pooler that drops startup "
            f"options or shares connections. {_MAKE_REQUEST_ROLE}"
        )


def missing_request_role() -> UnsafeConnection:
    """The error for transaction pooling without a login role."""
    return UnsafeConnection(
        "CMSERVER_DATABASE_POOLING is 'transaction' and CMSERVER_DATABASE_TENANT_URL is not set: behind a transaction pooler "
        f"requests need a login role of their own. {_MAKE_REQUEST_ROLE}"
    )


async def keep_role_settings(conn: Conn) -> None:
    """Give the login role the time-outs and planner settings that it lacks: as the role's, they hold behind every pooler."""
    present = {setting.partition("=")[0] for setting in await _OWN_SETTINGS.all(conn)}
    for name, value in TENANT_SETTINGS.items():
        if name not in present:
            statement = sql.SQL("ALTER ROLE CURRENT_USER SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            with contextlib.suppress(errors.InternalError_):  # "tuple concurrently updated": another process does the same
                await conn.execute(statement)
