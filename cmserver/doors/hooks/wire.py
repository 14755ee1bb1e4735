"""What hook clients send beside the payloads of agents."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.text import matching

Commit = Annotated[str, matching(r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$", "A hash of git has 40 or 64 digits of 0-9a-f")]
Output = Annotated[str, Meta(max_length=1_000_000), matching(r"^[A-Za-z0-9+/]*={0,2}$", "It is no base64")]


class BranchesIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The newest commits of a clone that are on branches only. The texts are in base64.

    `unmerged` is what git says of at most 200 that neither what is checked out nor a trunk has:
    `git log --max-count=200 --name-only --decorate=full '--format=/%H %ct %P//%D' --glob=refs/heads --glob=refs/remotes --not HEAD
    TRUNK...`. `others` is the same of at most 200 that these have, since a day before the oldest of `unmerged`.
    """

    unmerged: Output = ""
    others: Output = ""


class CodeChangesIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The way of a clone from one commit to another. `cloneId` is the client's own for the clone or the work tree.

    `head` is the commit that is checked out; `before` is the one that was told last. `log` is what git says of the way, in base64:
    `git log --left-right --topo-order --reverse --no-merges --raw -z -M --no-rename-empty --format=%m%x00%H%x00%an%x00%at%x00
    BEFORE...HEAD`. `diff` is what differs between the two, in base64: `git diff-tree -r -z --no-renames --name-status BEFORE HEAD`.
    Both are null where the way is not known, or too long. `branches` is null where git did not tell of them in time.
    """

    clone_id: UUID
    before: Commit
    head: Commit
    log: Output | None = None
    diff: Output | None = None
    branches: BranchesIn | None = None


class CodeChangesOut(msgspec.Struct, frozen=True, kw_only=True):
    """`known` is whether what became of the clone's files is known from now on; where not, no line is marked.

    `head` is the commit up to which the server knows the clone, and at which the next way begins. Where this way began elsewhere it
    is another one than was sent, and nothing was changed.
    """

    known: bool
    head: str
