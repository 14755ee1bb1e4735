"""What is taken from an agent's last message, and what is not."""

from __future__ import annotations

import pytest

from cmserver.reading.conclusions import MAX_QUOTE, choose_quotes, conclude, read_conclusions
from cmserver.reading.model import Kind
from cmserver.reading.read import read_event
from cmserver.reading.text import capitalize
from cmserver.rules.turns import Turn, gather_turn
from tests.growth import grows_too_fast
from tests.reading.events import read_call
from tests.table import try_rows


def kinds(message: str) -> list[tuple[Kind, str]]:
    return [(conclusion.kind, conclusion.text) for conclusion in read_conclusions(message)]


@try_rows(
    ("sentence", "kind"),
    [
        ("The webhook fails because it never checks `order.status`.", "cause"),
        ("I went with integer cents instead of floats for every price.", "decision"),
        ("This only works with PostgreSQL 15 or newer on the server.", "limitation"),
        ("The refund path does not yet increase `order.attempt`.", "open"),
        ("`test_late_webhook` still fails on the old schema.", "open"),
        ("Run `make deploy-eu` to put it on the European servers.", "command"),
        ("The query went from 432 ms to 8 ms per customer.", "finding"),
        ("Der Import bricht ab, weil `flush()` zweimal gerufen wird.", "cause"),
        ("`parse_since()` rät das Jahr noch immer auf die alte Weise.", "open"),
        ("Le test échoue parce que `Clock` n'est pas injectée.", "cause"),
        ("Il reste à migrer `EstimationController` vers le client partagé.", "open"),
        ("`handle_refund` takes the charge first and then the account.", "change"),
    ],
)
def test_a_sentence_is_kept_word_by_word_with_its_kind(sentence: str, kind: Kind):
    assert kinds(sentence) == [(kind, sentence)]


@try_rows(
    "message",
    [
        "",
        "All done!",
        "Great, everything is green now. Let me know if you need anything else!",
        "Should I also change the other module?",
        "Fertig. Sag Bescheid, wenn noch etwas fehlt.",
        "Voilà, c'est fait. N'hésite pas si tu veux autre chose.",
        "I haven't touched anything yet.",
        "```python\nraise ValueError('because it never checks order.status')\n```",
    ],
)
def test_small_talk_offers_questions_and_code_are_not_kept(message: str):
    assert read_conclusions(message) == []


@try_rows(
    "sentence",
    [
        "I fixed the bug that was not handled before in `x.py`.",
        "All tests which were still failing now pass.",
        "The remaining 3 tests pass now.",
        "I removed the remaining TODO comments in `a.py`.",
        "There are no follow-ups.",
        "Nothing is left out.",
        "Later requests are cached in `cache.py`.",
    ],
)
def test_what_is_done_is_not_open(sentence: str):
    assert not any(conclusion.is_open for conclusion in read_conclusions(sentence))


def test_a_heading_and_a_label_say_what_kind_the_lines_below_them_are():
    message = (
        "## Next steps\n\n- Drop the table `ledger_backup` in January\n- Tell the platform team\n\n"
        "**Root cause:** two paths write entries."
    )
    assert kinds(message) == [
        ("next", "Drop the table `ledger_backup` in January"),
        ("next", "Tell the platform team"),
        ("cause", "Root cause: two paths write entries."),
    ]


def test_what_is_open_keeps_the_sentences_that_say_what_it_is_about():
    message = (
        "The one red test is `test_refund_concurrent`. It fails 3 of 20 runs on `main` too. I did not look into why. All done!"
    )
    assert kinds(message) == [
        ("open", "The one red test is `test_refund_concurrent`. It fails 3 of 20 runs on `main` too. I did not look into why.")
    ]


def test_a_command_in_a_block_of_its_own_belongs_to_the_sentence_before_it():
    message = "All good.\n\nTo rehearse it again, since it locks the table:\n\n```sh\n$ make migrate-dry REV=0043\n```\n\nBye!"
    assert [conclusion.text for conclusion in read_conclusions(message)] == [
        "To rehearse it again, since it locks the table: `make migrate-dry REV=0043`"
    ]


def test_files_and_identifiers_are_the_anchors():
    conclusion = conclude(
        "cause", "`handle_refund` in src/billing/webhooks.py commits before `webhook_events` is written, see v2.3."
    )
    assert conclusion.files == ["src/billing/webhooks.py"]
    assert conclusion.identifiers[:2] == ["handle_refund", "webhook_events"]


def test_a_quote_is_never_longer_than_its_limit_and_the_choice_prefers_what_is_open_and_causes():
    message = "\n\n".join([f"Changed `name_{number}` in file_{number}.py to read it once only." for number in range(30)])
    message += "\n\nIt failed because `lock_account` was taken twice. " + "Very long " * 100 + "`tail`."
    found = read_conclusions(message)
    assert all(len(conclusion.text) <= MAX_QUOTE for conclusion in found)
    chosen = choose_quotes(found, 300)
    assert sum(len(conclusion.text) for conclusion in chosen) <= 300


@pytest.mark.speed
@try_rows("part", ["a", "a_", "a.", "`", "**", "a b ", "- ", "# x\n", "x: ", "Is it? ", "(", "not yet "])
def test_a_hostile_message_is_read_in_time_that_grows_with_its_length(part: str):
    assert not grows_too_fast(read_conclusions, part)


@try_rows(
    "message",
    [
        "It's probably the cache. `ThreadIndex` only keeps message ids for 14 days, so a late answer would get a new ticket.",
        "Most likely the retention is too long for the volume. I have not confirmed that yet.",
        "Vermutlich sind es die Retries: `EscalationJob` hat `retry: 5`.",
        "Sans doute le bfcache de Safari : la page est restaurée telle quelle.",
        "Autre hypothèse : 40 requêtes, une par sonde (`TableauController.php:31`).",
    ],
)
def test_a_guess_is_not_kept(message: str):
    assert read_conclusions(message) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "It was not the cache: `MessageIds.from` looked at the first id only.",
        "I first suspected the barrier, but that made no difference in `test_refund`.",
        "The 3 tests may be flaky, but they are not fixed yet.",
    ],
)
def test_what_is_refuted_or_open_is_kept_though_it_names_a_guess(sentence: str):
    assert [text for _, text in kinds(sentence)] == [sentence]


@try_rows(
    "sentence",
    [
        "I tried Shrine for streaming uploads and dropped it: it needs `down` 4.8.",
        "We could also match by subject, but I left that out.",
        "Zwischendurch hatte ich kurz `winnow` probiert und gleich wieder verworfen.",
        "La parallélisation, je l'ai essayée puis annulée : `TourneeMutable` n'est pas partageable.",
        "J'avais envisagé `localStorage`, mais les prix changent trop souvent, j'y ai renoncé.",
    ],
)
def test_a_way_not_taken_is_a_kind_of_its_own(sentence: str):
    assert kinds(sentence) == [("rejected", sentence)]


def test_several_open_ends_of_a_paragraph_are_told_apart_and_what_refers_back_stays():
    message = (
        "`0051_tax_ids.sql` has not been applied to production. It needs the DBAs. "
        "Customers from Switzerland are not validated yet, the checksum is different there."
    )

    assert [(kind, text.split()[0]) for kind, text in kinds(message)] == [("open", "`0051_tax_ids.sql`"), ("open", "Customers")]


def test_the_line_before_a_list_says_what_its_items_are():
    message = "Two things I left for you to decide:\n- `DraftStore` keeps the photos in memory.\n- The build ships clear text."

    assert [kind for kind, _ in kinds(message)] == ["open", "open"]


def test_what_would_be_in_a_case_that_has_not_come_is_not_open():
    assert [kind for kind, _ in kinds("If `V27` succeeds with a wrong result, a migration V28 must follow.")] == ["change"]


def test_each_item_of_a_list_of_what_is_open_is_an_open_end():
    lists = {
        "Not done yet:\n1. the importer\n2. rate limits\n3. retry on 429": ["the importer", "rate limits", "retry on 429"],
        "Still open: 1. the importer 2. rate limits 3. retry on 429": ["the importer", "rate limits", "retry on 429"],
        "## To do\n- the importer\n- [x] rate limits\n- retry on 429": ["the importer", "retry on 429"],
        "Next steps:\n* the importer": ["the importer"],
    }

    def drafts(message: str) -> list[str | None]:
        turn = Turn(tag="e1", conclusions=read_conclusions(message), commits=[], work=[], unfixed=[])
        return [draft.title for draft in gather_turn(turn) if draft.state == "open"]

    wrong = {message: titles for message, items in lists.items() if (titles := drafts(message)) != [*map(capitalize, items)]}

    assert wrong == {}


def test_what_an_agent_says_from_memory_is_no_finding():
    answers = [
        "According to the memory you chose option 1, because the pooler caps the pool at 60 connections.",
        "Our memory says that `refund_key` was a hash of a float.",
        "Laut Gedächtnis lag es daran, dass `refund_key` ein Hash war.",
    ]

    assert [kinds(answer) for answer in answers] == [[], [], []]
    assert kinds("The cache is kept in memory, because the disk is slow.") != []


def test_what_only_rules_conclude_from_is_not_read_for_a_model():
    words = "The cause is the cache, which nobody warms before the first request."
    report = read_call("Agent", {"prompt": "Look"}, words)
    last = read_event("Stop", {"last_assistant_message": words}, None)

    assert (report.act, last.act) == (None, None)
