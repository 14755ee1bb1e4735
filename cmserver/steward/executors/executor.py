"""What an executor is, and the texts that it compares."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.steward.ask import ModelAsker
from cmserver.steward.model import JobContext, Mode, Plan, PlanResult

P_contra = TypeVar("P_contra", bound=msgspec.Struct, contravariant=True)


class JobPayload(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every job says: the mode in which it was planned."""

    mode: Mode


class Executor(Protocol[P_contra]):
    """One kind of job. It may run twice, and writes nothing the second time."""

    async def prepare(self, db: Db, asker: ModelAsker, context: JobContext, payload: P_contra) -> Plan:
        """Read and decide, also with a model; write nothing."""
        ...

    async def apply(self, conn: Conn, context: JobContext, plan: Plan) -> PlanResult:
        """Write the plan as far as what it was made of is still so, in the transaction that ends the job."""
        ...

    async def decline(self, conn: Conn, context: JobContext, plan: Plan) -> None:
        """Write down what is not to be written, in tables of the steward alone; usually the job's decision says it all."""
