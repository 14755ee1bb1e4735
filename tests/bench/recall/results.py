"""What was measured, question by question, so that two arms or two commits can be compared later; one JSON file a commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from tests.bench.measure import percentile
from tests.bench.recall.corpus import Corpus, Half, Question, span
from tests.bench.recall.prompts import Unasked
from tests.bench.recall.scores import Answers, Interval, first_rank, resample, share_found

MEASURED = Path(__file__).parent / "measured"


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """What the threshold of the confidence would keep silent: questions of another project, and those that have an answer here."""

    threshold: float
    strangers: int
    refused: float
    """The share of the strangers' questions below the threshold."""
    answerable: int
    lost: float
    """The share of the answerable questions below the threshold."""


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm found, in the order of the questions: recall among the first 5 and 10, and the first rank (0: not found)."""

    arm: str
    recall_5: list[float]
    recall_10: list[float]
    first_ranks: list[int]
    p50_ms: float
    silence: Silence | None = None

    @property
    def reciprocal_ranks(self) -> list[float]:
        return [1 / rank if rank else 0.0 for rank in self.first_ranks]


class CorpusResult(msgspec.Struct, frozen=True, kw_only=True):
    """One half of a corpus. `questions` are the ids of those that can be answered, `kinds` theirs."""

    corpus: str
    half: Half
    described: str
    questions: list[str]
    kinds: list[str]
    arms: list[ArmResult]

    def arm(self, name: str) -> ArmResult | None:
        return next((result for result in self.arms if result.arm == name), None)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `commit` is that of the server that was asked, `measured_with` what it ran on."""

    commit: str
    measured_at: str
    command: str
    measured_with: dict[str, str]
    corpora: list[CorpusResult]
    unasked: list[Unasked] = []

    def corpus(self, name: str, half: Half) -> CorpusResult | None:
        return next((result for result in self.corpora if (result.corpus, result.half) == (name, half)), None)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more an arm finds than what it is compared with, by the questions that both were asked."""

    recall_10: Interval
    reciprocal_rank: Interval


def score_arm(name: str, questions: Sequence[Question], answers: Answers, silence: Silence | None = None) -> ArmResult:
    ranked = [(question, answers[question.id].ranked) for question in questions]
    return ArmResult(
        arm=name,
        recall_5=[round(share_found(question, keys, 5), 4) for question, keys in ranked],
        recall_10=[round(share_found(question, keys, 10), 4) for question, keys in ranked],
        first_ranks=[first_rank(question, keys) for question, keys in ranked],
        p50_ms=round(percentile([answers[question.id].milliseconds for question in questions], 50), 2),
        silence=silence,
    )


def compare(corpus: CorpusResult, arm: ArmResult, other_corpus: CorpusResult, other: ArmResult) -> Difference:
    """The arm less the other one, which may be of another run: paired by the id of the question."""
    places = {question: place for place, question in enumerate(other_corpus.questions)}
    pairs = [(place, places[question]) for place, question in enumerate(corpus.questions) if question in places]
    ranks, other_ranks = arm.reciprocal_ranks, other.reciprocal_ranks
    return Difference(
        recall_10=resample([arm.recall_10[mine] - other.recall_10[theirs] for mine, theirs in pairs]),
        reciprocal_rank=resample([ranks[mine] - other_ranks[theirs] for mine, theirs in pairs]),
    )


def recall_by_kind(corpus: CorpusResult, arm: ArmResult) -> Mapping[str, float]:
    """Recall among the first ten, by the kind of the question."""
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for kind, value in zip(corpus.kinds, arm.recall_10, strict=True):
        by_kind[kind].append(value)
    return {kind: fmean(values) for kind, values in by_kind.items()}


def describe(corpus: Corpus) -> str:
    words = f"{len(corpus.documents):,} documents in {len(corpus.sessions):,} sessions over {span(corpus).days:,} days"
    projects = len(corpus.projects)
    return f"{words}{f', {projects} projects' if projects > 1 else ''}; {len(corpus.questions):,} questions"


def save(results: Results) -> Path:
    """A file that is named for the time and the commit; that of the same commit before is replaced."""
    MEASURED.mkdir(exist_ok=True)
    commit = results.commit.replace(" ", "-")
    for older in MEASURED.glob(f"*-{commit}.json"):
        older.unlink()
    path = MEASURED / f"{results.measured_at}-{commit}.json"
    path.write_bytes(_one_list_a_line(msgspec.json.format(msgspec.json.encode(results), indent=1)) + b"\n")
    return path


def read_saved() -> Results:
    """What was measured last."""
    return _read(max(MEASURED.glob("*.json")))


def find_saved(commit: str) -> Results | None:
    """What was measured last of that commit (its beginning is enough)."""
    found = [path for path in sorted(MEASURED.glob("*.json")) if _is_of(path, commit)]
    return _read(found[-1]) if found else None


def _read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def _is_of(path: Path, commit: str) -> bool:
    saved = path.stem.rpartition("Z-")[2]
    return saved.startswith(commit) or commit.startswith(saved)


def _one_list_a_line(text: bytes) -> bytes:
    """Numbers and ids of all questions in one line: thousands of lines say no more."""
    lines: list[bytes] = []
    depth = 0
    for line in text.splitlines():
        bare = line.strip()
        if depth:
            lines[-1] += bare if bare.startswith(b"]") else b" " + bare
            depth += bare.startswith(b"[") - bare.startswith(b"]")
        else:
            lines.append(line)
            depth = int(line.endswith(b": [") and not line.strip().startswith((b'"corpora"', b'"arms"', b'"unasked"')))
    return b"\n".join(lines)
