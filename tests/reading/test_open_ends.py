"""What an agent's last message leaves open, and what only sounds like it."""

from __future__ import annotations

import pytest

from cmserver.reading.names import find_names
from cmserver.reading.open_ends import read_open_ends, read_reports_by_number
from tests.growth import grows_too_fast
from tests.table import try_rows


def titles(message: str) -> list[str]:
    return [end.title for end in read_open_ends(message)]


@try_rows(
    ("message", "title"),
    [
        ("The refund path does not yet increase `order.attempt`.", "The refund path does not yet increase `order.attempt`"),
        ("`test_late_webhook` still fails on the old schema.", "`test_late_webhook` still fails on the old schema"),
        ("The parser is fixed, but the CLI is not tested yet.", "The CLI is not tested yet"),
        ("All 9 pass. Customers from Switzerland are not validated yet.", "Customers from Switzerland are not validated yet"),
        ("`0051.sql` has not been tested on production.", "`0051.sql` has not been tested on production"),
        ("Done. Next: wire the cache in `app.py`.", "Wire the cache in `app.py`"),
        ("I moved the export. I have not verified this yet.", "I moved the export. I have not verified this yet."),
        (
            "`parse_since()` rät das Jahr noch immer auf die alte Weise.",
            "`parse_since()` rät das Jahr noch immer auf die alte Weise",
        ),
        ("In Ordnung. Offen: Anzeige auf der Service-Maske.", "Anzeige auf der Service-Maske"),
        ("Il reste à migrer `EstimationController`.", "Il reste à migrer `EstimationController`"),
        ("El importador todavía no lee las fechas.", "El importador todavía no lee las fechas"),
    ],
)
def test_an_open_end_is_told_by_the_clause_that_says_it_with_what_it_is_about(message: str, title: str):
    assert titles(message) == [title]


@try_rows(
    "message",
    [
        "",
        "All done!",
        "Should I also change the other module?",
        "Great, everything is green now. Let me know if you need anything else!",
        "I fixed the bug that was not handled before in `x.py`.",
        "All tests which were still failing now pass.",
        "There are no follow-ups. Nothing is left to do.",
        "The first run failed because the pods were not ready yet.",
        "I'd suggest Kafka with Debezium.",
        "If `V27` succeeds, a migration V28 must follow.",
        "I have not verified this yet.",
        "```python\nraise ValueError('not implemented yet: orders')\n```",
        "Three files still use the old client: src/a.ts, src/b.ts and src/c.ts.",
        "`handle_refund` takes the charge first and then the account.",
    ],
)
def test_what_is_done_offered_asked_or_not_understood_by_itself_is_no_open_end(message: str):
    assert titles(message) == []


@try_rows(
    ("message", "found"),
    [
        ("Not done yet:\n1. the importer\n2. rate limits", ["The importer", "Rate limits"]),
        ("## To do\n- the importer\n- [x] rate limits\n- [ ] retry on 429", ["The importer", "Retry on 429"]),
        ("Next steps:\n* the importer", ["The importer"]),
        ("**Still open**\n- ✅ docs\n- the importer\n\n## Notes\n- all fine", ["The importer"]),
        ("Two tests still fail:\n- test_a\n- ok?", ["test_a"]),
        ("Still failing:\n- it", ["It"]),
        ("What I did:\n- added the importer\n- rate limits", []),
        ("## Next steps\n\n- Drop `ledger_backup`\n\n## Cause\nTwo paths write entries.", ["Drop `ledger_backup`"]),
    ],
)
def test_each_item_below_a_heading_of_what_is_open_is_an_open_end(message: str, found: list[str]):
    assert titles(message) == found


@try_rows(
    ("prompt", "numbers"),
    [
        ("#12 is done", [12]),
        ("the rest stays, but drop #7 and #9", [7, 9]),
        ("#5 ist erledigt. Und jetzt der Export.", [5]),
        ("is #12 done?", []),
        ("look at #12 please", []),
        ("the importer is done", []),
        ("> #12 is done\nwho says that", []),
    ],
)
def test_a_user_says_by_its_number_that_an_open_end_is_over(prompt: str, numbers: list[int]):
    assert [number for _, named in read_reports_by_number(prompt) for number in named] == numbers


def test_files_and_identifiers_are_found_in_a_sentence():
    names = find_names("`handle_refund` in src/billing/webhooks.py commits before `webhook_events` is written, see v2.3.")

    assert names[:3] == ["src/billing/webhooks.py", "handle_refund", "webhook_events"]


@pytest.mark.speed
@try_rows("part", ["a", "a_", "a.", "`", "**", "a b ", "- ", "# x\n", "x: ", "Is it? ", "(", "not yet ", "#1 done ", "; "])
def test_a_hostile_message_is_read_in_time_that_grows_with_its_length(part: str):
    assert not grows_too_fast(read_open_ends, part)
    assert not grows_too_fast(read_reports_by_number, part)
