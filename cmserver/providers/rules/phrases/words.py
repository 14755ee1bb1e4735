"""Which words the rules need. A language is one file that says them all."""

from __future__ import annotations

import msgspec

Forms = tuple[str, str]
"""For one, and for any other number: `{count} file`, `{count} files`."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one language. In braces stands what is filled in, in any order, but for `fails`, `failed` and `tests_fail`: they
    are read again from a session's record, and begin with `{name}`, with `{command}` in backticks, and with `{count}`.
    """

    added: str
    changed: str
    removed: str
    renamed: str
    moved: str
    rewrote: str
    wrote: str
    """What was done, before what it was done to."""

    and_: str
    more: str
    """Of a list, behind `and_`: `{count} more`."""
    to: str
    """Between an old name or line and the new one."""
    moved_to: str
    in_file: str
    """`{what} in {file}`."""
    and_more_in_file: str
    imports: str
    cell: str
    files: Forms
    more_files: Forms
    more_lines: Forms
    edits: Forms
    tool_uses: Forms
    requests: Forms
    events: Forms
    size: str
    """`{files}, +{plus}/-{minus} lines`."""

    installed: str
    dependency: Forms
    dev_dependency: Forms
    """With `{names}` and `{tool}`."""

    asked_for: str
    passing: str
    """Of a command: `{name} passes`."""
    fixed: str
    passes_again: str
    failing_tests: str
    """Behind a number of more than one."""
    how_fixed: str
    failed_with: str
    fails: str
    tests_fail: str
    failed: str
    flaky: str
    it_had_failed: str
    changed_since: str
    first_attempt: str

    exit_code: str
    interrupted: str
    no_output: str

    command: str
    passes: str
    failed_before: str
    failing: str
    error: str
    at: str
    before_that: str
    asked: str
    source: str
    answer: str
    """The labels of facts."""

    committed: str
    commit: str
    """The label of the fact that tells a commit: what it was made of stands behind it."""
    on_branch: str
    pushed: str
    the_branch: str
    its_remote: str
    ran: str
    merged: str
    reverted: str
    tagged: str
    rebased_onto: str
    cherry_picked: str
    migrated_to: str
    took_back_to: str
    opened_pull_request: str
    opened_issue: str
    released: str

    sub_agent: str
    found_by: str
    done_by: str

    last_request: str
    read: str
    earlier: str
    still_open: str
    files_changed: Forms
    last_words: str
    nothing_recorded: str
    """Behind a number of events."""

    looked_at: str
    checks: str
    routine: str
