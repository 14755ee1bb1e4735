"""A model that quotes what it was shown: its answers to an attacked prompt, what they must come to, and what they do come to.

`python -m tests.generation.echo` says whether the table in docs/why/trust.md is what the suite finds; with `--fix` it is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from cmserver.models.providers.model import SUMMARY_FIELDS, ProviderError
from tests.answers.read import ReadAnswer, read_answer
from tests.house.house import ROOT
from tests.house.pages import present
from tests.models.providers.attacks import ATTACKS, FOR_SUMMARY, HARMLESS, Attack, place_of, planted, quoted, read, unescape_tags

PAGE: Final = ROOT / "docs" / "why" / "trust.md"
EVENTS: Final = 4
BEGIN, END = "<!-- The attacks: generated. -->\n", "<!-- The end of what is generated. -->\n"
_LEAD, _TAIL = "It said: ", " That was all."
_FACT: Final = 1_500


class Outcome(msgspec.Struct, frozen=True):
    """What an answer comes to; events by their place in the batch, from 1."""

    observations: list[tuple[str, str | None, list[int]]]
    reasons: dict[int, str]
    summary: list[str | None] | None = None
    quoted_whole: bool = True


HONEST: Final = Outcome([("feature", "First", [1]), ("discovery", "Second", [2]), ("bugfix", "Third", [3])], {4: "only looked"})
HONEST_SUMMARY: Final = Outcome([], {}, ["Retries", "auth.py", "quoted", "Retries end", "Ship it", "Ask Ana"])


def xml(quote: str) -> str:
    """Three events observed, the second of them by quoting it, and one skipped."""
    return f"""\
<observation events="e1"><type>feature</type><title>First</title><narrative>It builds.</narrative></observation>
<observation events="e2">
<type>discovery</type>
<title>Second</title>
<narrative>{_LEAD}{quote}{_TAIL}</narrative>
<facts><fact>It said {quote[:_FACT]}</fact><fact>It ran once</fact></facts>
</observation>
<observation events="e3"><type>bugfix</type><title>Third</title><facts><fact>tries = 3</fact></facts></observation>
<skip event="e4" reason="only looked"/>"""


def json_(quote: str) -> str:
    return json.dumps(
        {
            "observations": [
                {"events": ["e1"], "type": "feature", "title": "First", "narrative": "It builds."},
                {
                    "events": ["e2"],
                    "type": "discovery",
                    "title": "Second",
                    "narrative": f"{_LEAD}{quote}{_TAIL}",
                    "facts": [f"It said {quote[:_FACT]}", "It ran once"],
                },
                {"events": ["e3"], "type": "bugfix", "title": "Third", "facts": ["tries = 3"]},
            ],
            "skipped": [{"event": "e4", "reason": "only looked"}],
        }
    )


def xml_skip(quote: str) -> str:
    """The attacked event is not observed but skipped, and quoted as the reason."""
    lines = xml("").split("\n")
    return "\n".join([lines[0], f'<skip event="e2" reason="{quote}"/>', *lines[-2:]])


def xml_summary(quote: str) -> str:
    fields = dict(zip(SUMMARY_FIELDS, HONEST_SUMMARY.summary or (), strict=True)) | {"learned": f"{_LEAD}{quote}{_TAIL}"}
    return "\n".join(["<summary>", *(f"<{name}>{text}</{name}>" for name, text in fields.items()), "</summary>"])


def json_summary(quote: str) -> str:
    fields = dict(zip(SUMMARY_FIELDS, HONEST_SUMMARY.summary or (), strict=True)) | {"learned": f"{_LEAD}{quote}{_TAIL}"}
    return json.dumps({"summary": fields})


def outcome(answer: str, events: int) -> Outcome:
    parsed = read_answer(answer, events)
    return Outcome(
        [(draft.type, draft.title, [int(tag[1:]) for tag in draft.events]) for draft in parsed.observations],
        {int(tag[1:]): reason for tag, reason in parsed.reasons.items()},
        _summary(parsed),
        _is_quoted_whole(parsed),
    )


def _summary(parsed: ReadAnswer) -> list[str | None] | None:
    if parsed.summary is None:
        return None
    fields = [getattr(parsed.summary, name) for name in SUMMARY_FIELDS]
    return [_short(text) for text in fields]


def _short(text: str | None) -> str | None:
    return "quoted" if text and text.startswith(_LEAD.strip()) and text.endswith(_TAIL.strip()) else text


def _is_quoted_whole(parsed: ReadAnswer) -> bool:
    """Nothing that the model wrote behind the quotation is lost."""
    second = [draft for draft in parsed.observations if draft.title == "Second"]
    return all(
        _short(observation.narrative) == "quoted" and observation.facts[-1] == "It ran once" and len(observation.facts) == 2
        for observation in second
    )


# ---- the page


def held(attack: Attack, form: str, *, raw: bool = False) -> bool:
    """Whether an answer that quotes the attack comes to what it would come to without. `raw`: with `&lt;` turned back into `<`."""
    quote = quoted(planted(attack.where, attack.text), attack.where)
    if raw:
        quote = unescape_tags(quote)
    is_summary = attack.where in FOR_SUMMARY
    write = (xml_summary if form == "xml" else json_summary) if is_summary else xml if form == "xml" else json_
    try:
        return outcome(write(quote), 1 if is_summary else EVENTS) == (HONEST_SUMMARY if is_summary else HONEST)
    except ProviderError:
        return False


def in_its_fence(attack: Attack) -> bool:
    expected_tags, expected = read(planted(attack.where, HARMLESS))
    try:
        found_tags, found = read(planted(attack.where, attack.text))
    except AssertionError:
        return False
    place = place_of(attack.where)
    return found_tags == expected_tags and found[:place] + found[place + 1 :] == expected[:place] + expected[place + 1 :]


def table() -> str:
    """How many attacks of each kind were held, and the names of those that were not."""
    forms = [("xml", False), ("json", False), ("xml", True), ("json", True)]
    results = {attack: [in_its_fence(attack), *(held(attack, form, raw=raw) for form, raw in forms)] for attack in ATTACKS}
    fence, as_xml, as_json, raw_xml, raw_json = (sum(column) for column in zip(*results.values(), strict=True))
    rows: list[str] = []
    for tries in dict.fromkeys(attack.tries for attack in ATTACKS):
        kind = [attack for attack in ATTACKS if attack.tries == tries]
        counts = [sum(column) for column in zip(*(results[attack] for attack in kind), strict=True)][:4]
        shown = ["all" if count == len(kind) else f"**{count}**" for count in counts]
        lost = ", ".join(attack.name for attack in kind if not all(results[attack][:4]))
        rows.append(f"| {tries} | {len(kind)} | {' | '.join(shown)} | {lost} |")
    return "\n".join(
        [
            f"Of {len(ATTACKS)} attacks the fence holds {fence}. Quoted as shown, {as_xml} are held in XML and {as_json} in JSON.",
            f"Quoted by a model that turns `&lt;` back into `<`, {raw_xml} are held in XML and {raw_json} in JSON.",
            "",
            "| tries to | attacks | fence | quoted in XML | quoted in JSON | turned back in XML | not held |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def page(text: str) -> str:
    """The page with its table as the suite finds it now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main(file: Path = PAGE) -> int:
    text = present(file)
    if page(text) == text:
        return 0
    if "--fix" not in sys.argv:
        click.echo("docs/why/trust.md is stale: python -m tests.generation.echo --fix writes it.")
        return 1
    file.write_text(page(text), encoding="utf-8")
    click.echo("written: docs/why/trust.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
