"""`bin/bench recall`: asks the questions of several corpora in several ways, and says how often what answers them is found."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import click
import msgspec

from cmserver.base import logs
from tests.bench.against import checkout
from tests.bench.load import ROOT
from tests.bench.page import machine
from tests.bench.recall import page, prompts, table
from tests.bench.recall.arms import ARMS, SEARCH, Arm
from tests.bench.recall.asking import LIMIT, QueryEmbedder, ask_arm, ask_confidences, embedder_settings, query_embedder
from tests.bench.recall.corpora import beam, history, locomo
from tests.bench.recall.corpus import HALVES, Corpus, Half, broken, limited
from tests.bench.recall.results import ArmResult, CorpusResult, Results, describe, find_saved, save, score_arm
from tests.bench.recall.scores import Answers, first_rank
from tests.bench.recall.serve import Host, Served, analyse, find_stored, ingest, mark_summaries, wait_until_embedded
from tests.bench.recall.silence import find_strangers, judge
from tests.bench.recall.with_constants import is_constant
from tests.bench.world import value, world

_LOADERS: dict[str, Callable[[Path], Corpus]] = {
    "own": history.load,
    "hard": history.load_hard,
    "scripts": history.load_scripts,
    "locomo": locomo.load,
    "beam": beam.load,
}
_OURS = ("own", "hard", "scripts")
_NOT_OURS = "The data of {name} are not in this repository: get them from their authors, and name their place: {name}=PATH."


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    corpora: dict[str, Path]
    half: str = "development"
    arms: dict[str, Arm] = msgspec.field(default_factory=lambda: ARMS)
    against: str = SEARCH
    limit: int | None = None
    settings: dict[str, str] = {}

    @property
    def halves(self) -> list[Half]:
        return [half for half in HALVES if self.half in {half, "all"}]


@click.command(name="recall")
@click.argument("corpora", nargs=-1, metavar="[CORPUS[=PATH]]...")
@click.option("--half", type=click.Choice([*HALVES, "all"]), default="development", show_default=True)
@click.option("--arms", help=f"Some of {', '.join(ARMS)}, between commas; all without it.")
@click.option("--against", default=SEARCH, show_default=True, help="An arm, or a commit: what the figures are compared with.")
@click.option("--try", "tries", multiple=True, help="Another arm: fields of POST /v1/search, as JSON. Needs two corpora.")
@click.option(
    "--sweep",
    help="NAME=V1,V2,…: values of a setting search_…, or of a constant in cmserver/recall/search. Needs two corpora.",
)
@click.option("--setting", "settings", multiple=True, help="name=value, a setting of the server that is started. Repeatable.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many questions of each half of a corpus.")
@click.option("--failures", is_flag=True, help="Also list what search did not find; of development only.")
@click.option("--kinds", is_flag=True, help="Also print R@10 of search by the kind of the question.")
@click.option("--keep", is_flag=True, help="Leave the server with the corpora running, and print how to ask it again.")
@click.option("--server", help="Ask the server there, which --keep has left, instead of starting one.")
@click.option("--key", help="Its key.")
@click.option("--database", help="Its database; without it only what goes over HTTP is asked.")
@click.option("--save", "saves", is_flag=True, help="Keep the figures as a file for this commit.")
@click.option("--write", is_flag=True, help="The same, and write docs/reference/recall.md anew: all arms and both halves.")
def main(
    corpora: tuple[str, ...],
    half: str,
    arms: str | None,
    against: str,
    tries: tuple[str, ...],
    sweep: str | None,
    settings: tuple[str, ...],
    limit: int | None,
    failures: bool,
    kinds: bool,
    keep: bool,
    server: str | None,
    key: str | None,
    database: str | None,
    saves: bool,
    write: bool,
) -> None:
    """How often search finds what answers a question, beside other ways to rank the same documents.

    A corpus is `own`, `hard` (other questions about its documents), `scripts` (without spaces between words), `locomo=PATH` or
    `beam=PATH`; without one it is `own hard`. All are put into one server.
    """
    if write and (arms or tries or sweep or limit or half != "all"):
        raise click.UsageError("--write goes with everything: bin/bench recall … --half all --write")
    if saves and (tries or sweep or limit):
        raise click.UsageError("--save keeps whole results, without --try, --sweep and --limit")
    if failures and half != "development":
        raise click.UsageError("--failures is for the half by which constants are chosen: nobody should learn from the other")
    if (server is None) != (key is None):
        raise click.UsageError("--server and --key go together")
    if server and (keep or sweep):
        raise click.UsageError("--keep and --sweep start a server, --server asks one that runs")
    options = Options(
        corpora=_read_corpora(corpora),
        half=half,
        arms=_read_arms(arms, tries, sweep),
        against=against,
        limit=limit,
        settings=dict(_read_setting(setting) for setting in settings),
    )
    logs.configure("console", "error")
    loaded = load_corpora(options)
    if tries or sweep:
        _check_choice(loaded, half)
    other = _find_other(options, loaded)
    with ExitStack() as stack:
        runner = _Runner(options, loaded, stack)
        results = runner.measure(Served(url=server, key=key, database=database) if server and key else None)
        _print(results, options, other, kinds=kinds)
        if failures:
            click.echo(runner.render_failures())
        if keep:
            _wait(runner.served, corpora)
    if saves or write:
        click.echo(f"written: {save(results).relative_to(ROOT)}")
    if write:
        page.write(results)
        click.echo(f"written: {page.PAGE.relative_to(ROOT)}")


def load_corpora(options: Options) -> list[Corpus]:
    """ClickException when a corpus cannot be asked."""
    loaded: list[Corpus] = []
    for name, path in options.corpora.items():
        corpus = limited(msgspec.structs.replace(_LOADERS[name](path), name=name), options.limit)
        if wrong := broken(corpus):
            raise click.ClickException(f"The corpus {name} is not sound: {'; '.join(wrong[:10])}")
        if not any(corpus.of_half(half) for half in options.halves):
            raise click.ClickException(f"The corpus {name} has no questions of {options.half}.")
        loaded.append(corpus)
    return loaded


class _Runner:
    """One run of all corpora and arms on one database; `stack` ends its servers."""

    def __init__(self, options: Options, corpora: Sequence[Corpus], stack: ExitStack, tree: Path = ROOT) -> None:
        self._options = options
        self._corpora = corpora
        self._stack = stack
        self._tree = tree
        self._halves: list[tuple[Corpus, Half]] = [
            (corpus, half) for corpus in corpora for half in options.halves if corpus.of_half(half)
        ]
        self._arm_results: dict[tuple[str, Half], list[ArmResult]] = {(corpus.name, half): [] for corpus, half in self._halves}
        self._answers: Answers = {}
        self.served: Served

    def measure(self, running: Served | None) -> Results:
        """Ask every arm; those with other constants of a server of their own on the same database."""
        changed = {name: arm for name, arm in self._options.arms.items() if arm.needs_own_server}
        usual = {name: arm for name, arm in self._options.arms.items() if not arm.needs_own_server}
        host = None if running else Host(self._stack.enter_context(world()), self._tree)
        unasked: list[prompts.Unasked] = []
        with query_embedder(self._options.settings) as embedder:
            if running:
                self.served = running
                self._ask(usual, embedder)
                facts = self._read_facts(embedder)
            else:
                assert host is not None
                self.served = self._stack.enter_context(host.serve(self._options.settings, {}))
                self._fill()
                self._ask(usual, embedder)
                facts = self._read_facts(embedder)
                if SEARCH in usual:
                    unasked = self._type_prompts()
                for name, arm in changed.items():
                    with host.serve(self._options.settings, arm.constants) as served:
                        self._ask({name: arm}, embedder, served)
        return Results(
            commit=facts.pop("commit"),
            measured_at=f"{datetime.now(UTC):%Y-%m-%dT%H%MZ}",
            command=_render_command(self._options),
            measured_with=facts,
            corpora=[self._build(corpus, half) for corpus, half in self._halves],
            unasked=unasked,
        )

    def _build(self, corpus: Corpus, half: Half) -> CorpusResult:
        questions = [question for question in corpus.of_half(half) if question.is_answerable]
        return CorpusResult(
            corpus=corpus.name,
            half=half,
            described=describe(corpus),
            questions=[question.id for question in questions],
            kinds=[question.kind for question in questions],
            arms=self._arm_results[corpus.name, half],
        )

    def _fill(self) -> None:
        corpora = [*self._corpora, prompts.load()]
        with self.served.client() as client:
            ingest(client, *corpora)
        assert self.served.database is not None
        if embedder_settings(self._options.settings):
            wait_until_embedded(self.served.database)
        mark_summaries(self.served.database, corpora)
        analyse(self.served.database)
        with self.served.client() as client:
            client.post("/v1/embeddings/calibrate")  # of the default embedder, and by an older server, it is refused

    def _ask(self, arms: dict[str, Arm], embedder: QueryEmbedder | None, served: Served | None = None) -> None:
        served = served or self.served
        has_vectors = embedder is not None and (served.database is None or _has_vectors(served.database))
        with served.client() as client:
            stored = {corpus.name: find_stored(client, corpus) for corpus in self._corpora}
        for name, arm in arms.items():
            if arm.needs_vectors and not has_vectors:
                continue
            for corpus, half in self._halves:
                questions = [question for question in corpus.of_half(half) if question.is_answerable]
                answers = ask_arm(served, stored[corpus.name], arm, questions, embedder)
                if answers is None:
                    continue
                silence = None
                if arm.is_search:
                    confidences = ask_confidences(served, find_strangers(corpus, self._corpora, half))
                    silence = judge(questions, answers, confidences)
                self._arm_results[corpus.name, half].append(score_arm(name, questions, answers, silence))
                if name == SEARCH:
                    self._answers |= answers

    def _type_prompts(self) -> list[prompts.Unasked]:
        with self.served.client() as client:
            stored = find_stored(client, prompts.load())
            return prompts.type_prompts(client, stored.by_number, self._options.halves)

    def _read_facts(self, embedder: QueryEmbedder | None) -> dict[str, str]:
        database = self.served.database
        postgres = "unknown" if database is None else cast("str", value(database, "SHOW server_version"))
        return {"embedder": embedder.name if embedder else "none", **machine(postgres)}

    def render_failures(self) -> str:
        """Line by line: the question, the rank of the first expected document, and what came first instead."""
        lines = {document.key: document.line for corpus in self._corpora for document in corpus.documents}
        failed: list[list[str]] = []
        for corpus in self._corpora:
            for question in corpus.of_half("development"):
                answer = self._answers.get(question.id)
                if answer is None or not question.is_answerable:
                    continue
                rank = first_rank(question, answer.ranked)
                if not 1 <= rank <= LIMIT // 2:
                    first = " | ".join(lines.get(key, "a prompt") for key in answer.ranked[:3])
                    failed.append([question.id, question.kind, str(rank or "none"), first])
        return table.render_text(["not among the first ten", "kind", "first rank", "what was first"], failed)


def _find_other(options: Options, corpora: Sequence[Corpus]) -> Results | None:
    """What `--against` names, where it is a commit: as it was saved, or else measured now with the program of that commit."""
    if options.against in options.arms:
        return None
    known = subprocess.run(
        ["git", "rev-parse", "--verify", "--short", f"{options.against}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if known.returncode:
        raise click.UsageError(f"--against {options.against} is neither an arm that is asked nor a commit")
    commit = known.stdout.strip()
    if saved := find_saved(commit):
        return saved
    over_http = {name: arm for name, arm in options.arms.items() if arm.request is not None and not arm.needs_own_server}
    with ExitStack() as stack, _checkout(commit) as tree:
        runner = _Runner(msgspec.structs.replace(options, arms=over_http), corpora, stack, tree)
        return msgspec.structs.replace(runner.measure(None), commit=commit)


@contextmanager
def _checkout(commit: str) -> Generator[Path]:
    with world() as here, checkout(here.folder / "older", commit) as tree:
        yield tree


def _print(results: Results, options: Options, other: Results | None, *, kinds: bool) -> None:
    rows = table.build_rows(results, options.against, other)
    click.echo(table.render_text(table.build_head(options.against), [row.cells for row in rows]))
    if kinds:
        click.echo(table.render_text(["corpus", "R@10 by kind"], table.build_kind_rows(results, SEARCH)))
    if silence := table.build_silence_rows(results):
        click.echo(table.render_text(table.SILENCE_HEAD, silence))
    if unasked := table.build_unasked_rows(results):
        click.echo(table.render_text(table.UNASKED_HEAD, unasked))
    for aim in table.judge_aims(results):
        click.echo(f"{'ok ' if aim.is_met else 'NOT'}  {aim.name}: {aim.measured}")


def _check_choice(corpora: Sequence[Corpus], half: str) -> None:
    """A constant that is best for one corpus is worse for the next."""
    if len({tuple(corpus.projects) for corpus in corpora if corpus.name != "scripts"}) < 2:  # it has 32 questions
        raise click.UsageError(
            "--try and --sweep need documents of at least two corpora: what is best for one is not for the next. "
            "For example: bin/bench recall own locomo=PATH --sweep NAME=V1,V2"
        )
    if half != "development":
        raise click.UsageError("--try and --sweep are for the half `development`: the other one must stay unseen")


def _has_vectors(database: str) -> bool:
    return bool(value(database, "SELECT EXISTS (SELECT FROM observation_embeddings WHERE embedding IS NOT NULL)"))


def _read_corpora(words: Sequence[str]) -> dict[str, Path]:
    """The place of each corpus by its name."""
    places: dict[str, Path] = {}
    for word in words or ("own", "hard"):
        name, _, path = word.partition("=")
        if name not in _LOADERS:
            raise click.UsageError(f"There is no corpus {name}. There are {', '.join(_LOADERS)}.")
        if not path and name not in _OURS:
            raise click.UsageError(_NOT_OURS.format(name=name))
        if path and not Path(path).exists():
            raise click.UsageError(f"{path} does not exist.")
        places[name] = Path(path) if path else history.HERE
    return places


def _read_arms(names: str | None, tries: Sequence[str], sweep: str | None) -> dict[str, Arm]:
    default = [SEARCH] if sweep else list(ARMS)
    chosen = default if names is None else names.split(",")
    if unknown := [name for name in chosen if name not in ARMS]:
        raise click.UsageError(f"There is no arm {', '.join(unknown)}. There are {', '.join(ARMS)}.")
    tried = {text: Arm(what="tried", request=_read_fields(text)) for text in tries}
    return {name: ARMS[name] for name in chosen} | tried | _read_sweep(sweep)


def _read_sweep(sweep: str | None) -> dict[str, Arm]:
    """An arm for each value of the constant."""
    if sweep is None:
        return {}
    name, _, texts = sweep.partition("=")
    if not is_constant(name):
        raise click.UsageError(f"{name} is no constant of cmserver/recall/search.")
    try:
        values = {text: float(text) for text in texts.split(",")}
    except ValueError as error:
        raise click.UsageError(f"--sweep {sweep} has no numbers: NAME=V1,V2,…") from error
    return {f"{name}={text}": Arm(what="tried", request={}, constants={name: value}) for text, value in values.items()}


def _read_fields(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--try {text} is not JSON: {error}") from error


def _read_setting(text: str) -> tuple[str, str]:
    name, equals, setting = text.partition("=")
    if not equals:
        raise click.UsageError(f"--setting {text} has no value: name=value")
    return name.lower().removeprefix("cmserver_"), setting


def _render_command(options: Options) -> str:
    """With PATH for places of this machine."""
    corpora = [name if name in _OURS else f"{name}=PATH" for name in options.corpora]
    settings = [f"--setting {name}={setting}" for name, setting in options.settings.items()]
    return " ".join(["bin/bench recall", *corpora, f"--half {options.half}", *settings, "--write"])


def _wait(served: Served, corpora: Sequence[str]) -> None:
    again = ["bin/bench", "recall", *corpora, "--server", served.url, "--key", served.key, "--database", served.database or ""]
    click.echo(f"The server stays until Ctrl-C. Ask it again:\n\n    {shlex.join(again)}\n")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped")
