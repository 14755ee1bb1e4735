"""A hand-off: one page of what is open, was decided and changed on a branch, and to whom it is addressed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

MAX_BRANCH_CHARS = 200
"""As much of a branch's name as events keep."""


class HandoffPage(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a page, each with its line break, below no heading; none where nothing is known.

    `numbers` are those of the observations and turns with a line, oldest first; `covered` are those and the turns that share one.
    """

    lines: Sequence[str] = ()
    numbers: Sequence[int] = ()
    covered: Sequence[int] = ()


class AddressedHandoff(msgspec.Struct, frozen=True, kw_only=True):
    """That somebody handed a branch over to a member, who was not told of it yet. `branch` is empty for the whole project."""

    from_user: str
    branch: str
    created_at: datetime
