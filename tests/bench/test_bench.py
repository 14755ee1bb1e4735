"""The benchmarks themselves: that they run, compare what was measured together, and judge it rightly."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import pytest

from cmserver.providers.model import Answer, Prompt, PromptEvent
from tests.bench import against, events, instant, page
from tests.bench.__main__ import BENCHMARKS
from tests.bench.load import loader
from tests.bench.measure import Aim, Figure, line, percentile
from tests.bench.scale import QUICK
from tests.bench.world import World, value, world


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
    told = [PromptEvent(tag=f"e{place + 1}", event_type="PostToolUse", occurred_at_epoch=0) for place in range(size)]
    return Prompt(kind="observations", project="orders", events=told)


@pytest.fixture(scope="module")
def here() -> Generator[World]:
    with world(durable=False) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_measures_each_figure_in_every_round(here: World, name: str):
    found = BENCHMARKS[name].run(here, QUICK)

    rounds = {"drain": QUICK.drains, "start": QUICK.starts, "cost": 1}.get(name, QUICK.rounds)
    assert {len(figure.pairs) for figure in found} == {rounds}
    assert all(number > 0 for figure in found for pair in figure.pairs for number in pair)
    written = page.text({name: found}, {name: BENCHMARKS[name].how}, "18.4")
    assert all(f"| {figure.name} |" in written for figure in found)


@pytest.mark.slow
def test_ingest_is_measured_beside_another_commit(here: World):
    found = against.run(here, QUICK, "HEAD")

    assert [len(figure.pairs) for figure in found] == [QUICK.rounds] * 2
    assert all(number > 0 for figure in found for pair in figure.pairs for number in pair)


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
