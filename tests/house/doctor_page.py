"""The reference page on what the doctor looks for."""

from __future__ import annotations

from cmserver.ops.doctor.model import CHECKS

_PLACES = {"database": "In the database", "server": "In the settings and files of the server", "machine": "On this machine"}


def doctor_page() -> str:
    """docs/reference/doctor.md."""
    sections = [
        f"## {title}\n\n| code | severity | fault | what mends it |\n|---|---|---|---|\n"
        + "\n".join(
            f"| `{check.code}` | {check.severity} | {check.fault} | `{check.command}` |" for check in CHECKS if check.place == place
        )
        for place, title in _PLACES.items()
    ]
    return _HEAD + "\n\n".join(sections) + "\n"


_HEAD = """\
# What the doctor looks for

<!-- Generated from cmserver/ops/doctor/model.py. -->

`cmserver doctor` looks for each of these faults and prints those that it finds, each with the command that mends it. It needs
access to the database, and neither a server nor a key. It exits 0 without a finding, 6 when all findings are warnings, and 1 with
an error; `--json` prints them for a program. Operators see the same at `/ui/doctor` and `GET /v1/doctor`, without what is only
known on the machine where agents run.

It calls no provider and no embedder: `cmserver doctor provider` and `cmserver doctor embedder` do.

"""
