"""`bin/bench recall`: asks a corpus's questions in many ways, and says how often what answers them is found."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import click
import msgspec

from cmserver.base import logs
from tests.bench.page import machine
from tests.bench.recall import page
from tests.bench.recall.arms import ARMS, Arm
from tests.bench.recall.asking import Embeds, answers, embedder, embeds
from tests.bench.recall.corpora import beam, history, locomo
from tests.bench.recall.corpus import HALVES, Corpus, Half, broken, limited
from tests.bench.recall.report import OfHalf, Report, describe, of_half, save, saved, terminal
from tests.bench.recall.report import failures as listed
from tests.bench.recall.serve import Served, analyse, ingest, mark_summaries, served, stored, wait_until_embedded
from tests.bench.world import value

_LOADERS: dict[str, Callable[[Path], Corpus]] = {"history": history.load, "locomo": locomo.load, "beam": beam.load}
_NOT_OURS = "The data of {} are not in this repository: get them from their authors, and say where they are with --data."


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    corpus: str = "history"
    data: Path | None = None
    half: str = "development"
    arms: dict[str, Arm] = msgspec.field(default_factory=lambda: ARMS)
    limit: int | None = None
    settings: dict[str, str] = {}
    server: str | None = None
    key: str | None = None
    database: str | None = None

    @property
    def halves(self) -> list[Half]:
        return [half for half in HALVES if self.half in {half, "all"}]


@click.command(name="recall")
@click.option("--corpus", type=click.Choice(list(_LOADERS)), default="history", show_default=True)
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Where the corpus is, if not in this repository.")
@click.option("--half", type=click.Choice([*HALVES, "all"]), default="development", show_default=True)
@click.option("--arms", help=f"Some of {', '.join(ARMS)}, between commas; all without it.")
@click.option("--try", "tries", multiple=True, help="One more arm: fields of POST /v1/search, as JSON. May be said again.")
@click.option(
    "--setting", "settings", multiple=True, help="name=value, a setting of the server that is started. May be said again."
)
@click.option("--limit", type=click.IntRange(min=1), help="Only so many questions of each half.")
@click.option("--failures", is_flag=True, help="Also list what search as it is did not find; of development only.")
@click.option("--keep", is_flag=True, help="Leave the server with the corpus running, and print how to ask it again.")
@click.option("--server", help="Ask the server there, which --keep has left, instead of starting one.")
@click.option("--key", help="Its key.")
@click.option("--database", help="Its database; without it only what goes over HTTP is asked.")
@click.option(
    "--write", is_flag=True, help="Keep the figures, and write docs/reference/recall.md anew: all of them, of both halves."
)
def main(
    corpus: str,
    data: Path | None,
    half: str,
    arms: str | None,
    tries: tuple[str, ...],
    settings: tuple[str, ...],
    limit: int | None,
    failures: bool,
    keep: bool,
    server: str | None,
    key: str | None,
    database: str | None,
    write: bool,
) -> None:
    """How often search finds what answers a question, beside other ways to rank the same documents."""
    if write and (arms or tries or limit or half != "all"):
        raise click.UsageError("--write goes with everything: bin/bench recall --half all --write")
    if failures and half != "development":
        raise click.UsageError("--failures is for the half by which weights are chosen: nobody should learn from the other")
    if (server is None) != (key is None):
        raise click.UsageError("--server and --key go together")
    if keep and server:
        raise click.UsageError("--keep starts a server, --server asks one that runs")
    if data is None and corpus != "history":
        raise click.UsageError(_NOT_OURS.format(corpus))
    asked = Asked(
        corpus=corpus,
        data=data,
        half=half,
        arms=_arms(arms, tries),
        limit=limit,
        settings=dict(_pair(one) for one in settings),
        server=server,
        key=key,
        database=database,
    )
    logs.configure("console", "error")
    loaded = load(asked)
    with _place(asked, loaded) as there:
        report = measured(there, asked, loaded)
        if failures:
            click.echo(listed(report.halves[0]))
        if keep:
            _wait(there, asked)
    if write:
        save(report)
        page.write(saved(list(_LOADERS)))
        click.echo(f"written: {page.PAGE.relative_to(page.ROOT)}")


def load(asked: Asked) -> Corpus:
    """ClickException when it cannot be asked."""
    corpus = limited(_LOADERS[asked.corpus](asked.data or history.HERE), asked.limit)
    wrong = broken(corpus)
    if wrong:
        raise click.ClickException("The corpus is not sound: " + "; ".join(wrong[:10]))
    if not any(corpus.of_half(half) for half in asked.halves):
        raise click.ClickException(f"The corpus has no questions of {asked.half}.")
    return corpus


def measured(there: Served, asked: Asked, corpus: Corpus) -> Report:
    """Prints each half when it is done."""
    halves: list[OfHalf] = []
    with there.client() as client:
        found = stored(client, corpus)
    with embeds(asked.settings) as embed:
        has_vectors = embed is not None and (there.database is None or _has_vectors(there.database))
        arms = {name: arm for name, arm in asked.arms.items() if has_vectors or not arm.needs_meaning}
        for half in asked.halves:
            questions = corpus.of_half(half)
            halves.append(of_half(half, corpus, questions, answers(there, found, arms, questions, embed)))
            click.echo(terminal(halves[-1]))
        facts = _facts(there, embed if has_vectors else None)
    return Report(corpus=corpus.name, described=describe(corpus), command=_command(asked), measured_with=facts, halves=halves)


@contextmanager
def _place(asked: Asked, corpus: Corpus) -> Generator[Served]:
    if asked.server and asked.key:
        yield Served(url=asked.server, key=asked.key, database=asked.database)
        return
    with served(asked.settings) as there:
        with there.client() as client:
            ingest(client, corpus)
        assert there.database is not None
        if embedder(asked.settings):
            wait_until_embedded(there.database)
        mark_summaries(there.database, corpus)
        analyse(there.database)
        yield there


def _has_vectors(database: str) -> bool:
    return bool(value(database, "SELECT EXISTS (SELECT FROM observation_embeddings WHERE embedding IS NOT NULL)"))


def _facts(there: Served, embed: Embeds | None) -> dict[str, str]:
    postgres = "unknown" if there.database is None else cast("str", value(there.database, "SHOW server_version"))
    return {"embedder": embed.name if embed else "none", **machine(postgres)}


def _arms(named: str | None, tries: tuple[str, ...]) -> dict[str, Arm]:
    names = list(ARMS) if named is None else named.split(",")
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise click.UsageError(f"There is no arm {', '.join(unknown)}. There are {', '.join(ARMS)}.")
    return {name: ARMS[name] for name in names} | {one: Arm(what="tried", asks=_fields(one), counts_tokens=True) for one in tries}


def _fields(said: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(said, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--try {said} is not JSON: {error}") from error


def _pair(said: str) -> tuple[str, str]:
    name, given, text = said.partition("=")
    if not given:
        raise click.UsageError(f"--setting {said} has no value: name=value")
    return name.lower().removeprefix("cmserver_"), text


def _command(asked: Asked) -> str:
    words: Mapping[str, str | None] = {
        "--corpus": None if asked.corpus == "history" else asked.corpus,
        "--data": None if asked.corpus == "history" else "PATH",
        "--half": asked.half,
    }
    given = " ".join(f"{name} {text}" for name, text in words.items() if text)
    return " ".join(["bin/bench recall", given, *(f"--setting {name}={text}" for name, text in asked.settings.items()), "--write"])


def _wait(there: Served, asked: Asked) -> None:
    again = ["bin/bench", "recall", "--corpus", asked.corpus, *(["--data", str(asked.data)] if asked.data else [])]
    again += ["--server", there.url, "--key", there.key, "--database", there.database or ""]
    click.echo(f"The server stays until Ctrl-C. Ask it again:\n\n    {shlex.join(again)}\n")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped")
