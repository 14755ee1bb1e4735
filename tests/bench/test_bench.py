"""The benchmarks themselves: that they run, compare what was measured together, and judge it rightly."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from cmserver.models.providers.model import Answer, Prompt
from cmserver.reading.read import read_event
from tests.bench import against, events, instant, page
from tests.bench.__main__ import BENCHMARKS
from tests.bench.agents import LEGACY, MODERN, ROUND, Known, Mcp, Reply, Rest, load, sessions
from tests.bench.load import loader
from tests.bench.measure import Aim, Figure, line, percentile
from tests.bench.scale import FULL, QUICK
from tests.bench.unfinished import resume
from tests.bench.world import World, value, world
from tests.table import try_rows


def _figure(pairs: list[tuple[float, float]], aim: Aim) -> Figure:
    return Figure(name="POST /v1/events", unit="events/s", yardstick="direct SQL", pairs=pairs, aim=aim)


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians():
    figure = _figure([(10, 100), (300, 200), (20, 10)], Aim(of="ratio", at_least=True, bound=1))

    assert figure.ratio == 1.5
    assert figure.median / figure.yardstick_median == 0.2


@pytest.mark.parametrize(
    ("aim", "is_met"),
    [
        (Aim(of="ratio", at_least=True, bound=0.6), True),
        (Aim(of="ratio", at_least=True, bound=0.61), False),
        (Aim(of="median", at_least=False, bound=61), True),
        (Aim(of="median", at_least=False, bound=60), False),
    ],
)
def test_an_aim_judges_the_ratio_or_the_median(aim: Aim, is_met: bool):
    figure = _figure([(60, 100)], aim)

    assert figure.is_met is is_met
    assert line(figure).startswith("ok" if is_met else "NOT")


def test_a_percentile_is_one_of_the_values():
    values = [float(value) for value in range(100, 0, -1)]

    assert [percentile(values, 50), percentile(values, 99), percentile([7.0], 99)] == [50, 99, 7]


def test_an_interrupted_run_goes_on_only_at_its_commit_and_in_its_sizes(tmp_path: Path):
    file = tmp_path / "build" / "bench.json"
    run = resume(file, QUICK, is_clean=True, commit="a")
    run.figures["ingest"] = [_figure([(60, 100)], Aim(of="median", at_least=False, bound=61))]
    run.keep(file)

    assert resume(file, QUICK, is_clean=True, commit="a").figures == run.figures
    assert resume(file, QUICK, is_clean=False, commit="a").figures == {}
    assert resume(file, QUICK, is_clean=True, commit="b").figures == {}
    assert resume(file, FULL, is_clean=True, commit="a").figures == {}
    file.write_text("{")
    assert resume(file, QUICK, is_clean=True, commit="a").figures == {}


def test_every_event_is_another_one_and_has_two_kilobytes():
    body = events.body("github.com/acme/orders", events.session_name(3))

    assert len(body(1)) == len(body(999_999_999_999)) == events.BODY_BYTES
    assert body(1) != body(2)
    assert msgspec.json.decode(body(1))["payload"] == msgspec.json.decode(
        events.payload("github.com/acme/orders", events.session_name(3))(1)
    )


async def test_the_instant_provider_observes_every_third_event_whatever_the_batches_are():
    provider = instant.make()
    batches = [1, 1, 5, 2]

    answers = [msgspec.json.decode((await provider.complete(_prompt(size))).text, type=Answer) for size in batches]

    assert [len(answer.observations) + len(answer.skipped) for answer in answers] == batches
    assert sum(len(answer.observations) for answer in answers) == 3


def _prompt(size: int) -> Prompt:
    told = [read_event("PostToolUse", {}, None) for _ in range(size)]
    return Prompt(kind="observations", project="orders", events=told)


KNOWN = Known(project="orders", queries=["the pause between two attempts"], numbers=[1, 2, 3, 4])


@try_rows(
    ("answer", "is_refused"),
    [
        (Reply(200, b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"found"}],"isError":false}}'), False),
        (Reply(200, b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'), False),
        (Reply(202, b""), False),
        (Reply(200, b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}'), True),
        (Reply(200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error."}}'), True),
        (Reply(400, b'{"jsonrpc":"2.0","id":1,"result":{}}'), True),
        (Reply(200, b""), True),
    ],
    ids=["a result", "a list", "taken", "a tool's refusal", "an error", "another status", "nothing"],
)
def test_a_refusal_of_the_protocol_is_known_whatever_its_status(answer: Reply, is_refused: bool):
    assert (Mcp("key").refusal(answer) is not None) is is_refused


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_each_call_that_goes_wrong_is_told_and_no_other(version: str):
    results = [
        b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"result":{}}',
        b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno",
        b"",
    ]
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            said = results[asked % len(results)]
            asked += 1
            writer.write(said)
            if not said:
                break
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with sessions([Mcp("key", version)], port, KNOWN) as agents:
            taken = await load(agents, ROUND, 0)

    openings = 2 if version == LEGACY else 1
    assert asked == len(taken.all_ms) == openings + len(ROUND)
    assert len(taken.errors) == asked - len(range(0, asked, len(results)))
    assert {len(taken.milliseconds[verb]) for verb in set(ROUND)} == {ROUND.count(verb) for verb in set(ROUND)}


def test_rest_is_asked_the_same_as_the_tools():
    question = Rest("key").question("observation_get", {"ids": [1, 2, 3]})

    assert question.startswith(b"POST /v1/observations/batch HTTP/1.1\r\n")
    assert question.endswith(b'\r\n\r\n{"ids":[1,2,3]}')


@pytest.fixture(scope="module")
def here() -> Generator[World]:
    with world(durable=False) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_measures_each_figure_in_every_round(here: World, name: str):
    found = BENCHMARKS[name].run(here, QUICK)

    rounds = {"drain": QUICK.drains, "start": QUICK.starts, "cost": 1}.get(name, QUICK.rounds)
    counts = {len(figure.pairs) for figure in found}
    assert counts == {rounds} or (
        name in {"callers", "import", "pages", "stalls", "writes"} and counts <= {1, rounds}
    )  # some are measured once
    assert all(number > 0 for figure in found for pair in figure.pairs for number in pair)


def test_the_page_has_its_thirty_figures_and_what_is_measured_takes_the_place_of_one_alone():
    before = page.PAGE.read_text(encoding="utf-8")
    names = [name for names in page.CORE.values() for name in names]
    figure = msgspec.structs.replace(_figure([(60, 100)], Aim(of="ratio", at_least=True, bound=0.6)), name=names[-1])

    written = page.text([figure], {"writes": "By counting."}, page.machine("18.4"), before)

    rows, rows_before = ([line for line in text.splitlines() if line.count(" | ") == 5] for text in (written, before))
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]] == names
    assert len(names) == 30
    assert rows[-1].startswith(f"| {names[-1]} | 60.0 events/s | 0.60 of direct SQL (100) | ratio at least 0.6 | yes | ")
    assert rows[:-1] == rows_before[:-1]
    assert [line.split("`")[1] for line in written.splitlines() if line.startswith("**")] == [
        f"bin/bench {name}" for name in page.CORE
    ]
    assert written.endswith("**`bin/bench writes`.** By counting.\n")


@pytest.mark.slow
def test_cpu_time_and_memory_are_measured_beside_another_commit(here: World):
    figures = against.run(here, QUICK, "HEAD")

    assert [len(figure.pairs) for figure in figures] == [QUICK.rounds] * 5 + [QUICK.starts, QUICK.rounds]
    assert all(number > 0 for figure in figures for pair in figure.pairs for number in pair)


@pytest.mark.slow
def test_the_direct_statement_stores_what_the_server_would_store(here: World):
    place = here.place()
    order = place.sql(connections=2, seconds=20, batch=3, requests=4)

    with loader() as sender:
        done = sender.send(order)

    assert len(done.milliseconds) == 4
    counted = [value(place.url, f"SELECT count(*) FROM {table}") for table in ("agent_events", "observation_generation_jobs")]
    assert counted == [12, 12]
    lanes = value(place.url, "SELECT count(*) FROM generation_lanes WHERE lane IN (SELECT id FROM server_sessions)")
    assert lanes == 4
