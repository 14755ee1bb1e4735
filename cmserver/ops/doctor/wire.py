"""What the doctor found, on the wire."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cmserver.base.structs import reshape
from cmserver.ops.doctor.model import CHECKS, DoctorFinding
from cmserver.ops.wire import AnswersOut


class FindingOut(DoctorFinding, frozen=True, kw_only=True):
    """A fault that was found, and the command that mends it."""


class DiagnosisOut(msgspec.Struct, frozen=True, kw_only=True):
    """Errors first. `checks` is the number of faults that were looked for; `answers` are those of models for the whole server, or
    null while rules alone word the memory, or when the database does not tell.
    """

    findings: list[FindingOut]
    checks: int
    answers: AnswersOut | None = None


def diagnosis_out(findings: Iterable[DoctorFinding], places: set[str], answers: AnswersOut | None) -> DiagnosisOut:
    """The findings of the checks in these places, the errors first."""
    ordered = sorted(findings, key=lambda finding: finding.severity)  # "error" < "warning"
    return DiagnosisOut(
        findings=[reshape(finding, FindingOut) for finding in ordered],
        checks=sum(check.place in places for check in CHECKS),
        answers=answers,
    )
