"""How near two texts are, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from cmserver.consolidation.marks import read_marks
from cmserver.consolidation.similarity import (
    THRESHOLDS,
    USUAL,
    Decision,
    SuggestionReason,
    change_other_files,
    compare_texts,
    lexical_similarity,
)
from cmserver.models.providers.embedding.registry import DEFAULT_MODELS
from tests.evaluation.labels.load import HALVES, Half, read_labels
from tests.table import try_rows


@try_rows(
    ("left", "right", "least", "most"),
    [
        (
            "The pool has twenty connections for each of the workers",
            "the POOL has twenty connections, for each of the workers!",
            1,
            1,
        ),
        ("Pool full", "pool: full", 1, 1),
        ("Pool full", "Cache empty", 0, 0),
        ("", "Cache empty", 0, 0),
        ("The pool has 20 connections for the workers of it", "The pool has 20 connections for the jobs of it", 0.8, 0.95),
    ],
)
def test_lexical_similarity_is_the_share_of_common_words(left: str, right: str, least: float, most: float):
    similarity = lexical_similarity(read_marks(left), read_marks(right))

    assert least <= similarity <= most
    assert similarity == lexical_similarity(read_marks(right), read_marks(left))


LONG = "The pool has 3 connections for each of the workers, because the database of the shop takes no more of them at once"
REWORDED = "More than a few sessions at a time are refused by PostgreSQL, so that whoever works gets a small share of what is there"


@try_rows(
    ("left", "right", "cosine", "decision", "reason"),
    [
        (LONG, f"{LONG} for now", 0.5, "suggest", "contradicts"),
        (LONG, f"{LONG} while it is busy", 0.5, "suggest", "same"),
        (LONG, f"{LONG} while it is busy", None, "suggest", "same"),
        (LONG, LONG.replace("3", "5"), 0.99, "suggest", "contradicts"),
        (LONG, LONG.replace("3", "5"), None, "suggest", "contradicts"),
        (LONG, f"{REWORDED} 5", 0.9, "suggest", "same"),
        (LONG, f"{REWORDED} 5", 0.78, "suggest", "related"),
        (LONG, REWORDED, 0.7, "none", None),
        (LONG, REWORDED, None, "none", None),
        # Rules of one line are about one thing only where most of their words are the same, or the cosine is high.
        ("Keine Umlaute in Dateinamen.", "Keine Dateinamen in Fehlermeldungen, die der Kunde sieht.", None, "none", None),
        ("Keine Umlaute in Dateinamen.", "Keine Dateinamen in Fehlermeldungen, die der Kunde sieht.", 0.8, "none", None),
        ("Use tabs in Makefiles", "Indent Makefiles by tabulators", 0.84, "suggest", "same"),
        ("Session tokens live for 30 days", "Session tokens live for 7 days", None, "suggest", "contradicts"),
        ("Retry calls to the carrier", "Do not retry charges of the bank", 0.84, "suggest", "same"),
    ],
)
def test_a_pair_that_is_not_equal_is_suggested_or_left(
    left: str, right: str, cosine: float | None, decision: Decision, reason: SuggestionReason | None
):
    verdict = compare_texts(read_marks(left), read_marks(right), cosine, USUAL, is_equal=False)

    assert (verdict.decision, verdict.reason) == (decision, reason)


def test_equal_texts_are_merged_whatever_else_is_said_of_them():
    assert compare_texts(read_marks("3"), read_marks("5"), 0.1, USUAL, is_equal=True).decision == "merge"


@pytest.mark.parametrize("half", HALVES)
def test_of_what_is_suggested_of_rules_most_is_about_one_thing(half: Half):
    """Else a person waves the suggestions away."""
    suggested: list[dict[str, Any]] = []
    for pair in read_labels("rule_pairs", half):
        older, newer = read_marks(pair["older"]), read_marks(pair["newer"])
        if compare_texts(older, newer, None, USUAL, is_equal=False).decision == "suggest":
            suggested.append(pair)

    about_one = [pair for pair in suggested if pair["about"] == "same"]
    assert len(about_one) >= 6
    assert 2 * len(about_one) >= len(suggested), suggested


@try_rows(
    ("left", "right", "are_others"),
    [
        (["src/mail/client.py"], ["src/pay/client.py"], True),
        (["src/mail/client.py"], ["src/pay/client.py", "src/mail/client.py"], False),
        (["/home/me/demo/src/mail/client.py"], ["mail/client.py"], False),
        (["src/email/client.py"], ["mail/client.py"], True),
        (["src/mail/client.py"], [], False),
        (None, ["src/mail/client.py"], False),
    ],
)
def test_two_lists_of_changed_files_are_others_where_both_are_known_and_share_none(
    left: list[str] | None, right: list[str] | None, are_others: bool
):
    assert change_other_files(left, right) is change_other_files(right, left) is are_others


def test_two_rules_about_two_things_are_never_said_to_contradict_each_other():
    pairs = [pair for pair in read_labels("two_rules", "dev") if pair["kind"] == "two_things"]
    judged = [compare_texts(read_marks(pair["first"]), read_marks(pair["second"]), None, USUAL, is_equal=False) for pair in pairs]

    assert len(pairs) == 35
    assert [verdict for verdict in judged if verdict.reason == "contradicts"] == []
    assert sum(verdict.decision == "suggest" for verdict in judged) <= 1


@try_rows(
    ("left", "right", "decision"),
    [
        ("支付服务使用Redis缓存令牌。", "支付服务使用 Redis 缓存令牌", "suggest"),
        ("ﾃﾞｰﾀﾍﾞｰｽのバックアップ", "データベースのバックアップ", "suggest"),
        ("เซิร์ฟเวอร์เปิดแคช", "เซิร์ฟเวอร์เปิดแคช!", "suggest"),
        ("服务器启用缓存", "服务器不启用缓存", "suggest"),
        ("支付失败后重试三次", "支付失败后重试五次", "suggest"),
        ("サーバーはデプロイ前にキューを空にする", "サーバーはデプロイ後にキューを空にする", "suggest"),
        ("キャッシュを有効にする", "キャッシュを有効にしない", "suggest"),
        ("데이터베이스를 백업한다", "데이터베이스를 백업하지 않는다", "suggest"),
        ("เซิร์ฟเวอร์เปิดแคช", "เซิร์ฟเวอร์ไม่เปิดแคช", "suggest"),
        ("支付失败后会自动重试、最多三次、每次间隔十秒。", "登录页面的按钮颜色改成了蓝色、字体也变大了。", "none"),
        ("ระบบค้นหาข้อมูลช้า", "ผู้ใช้เข้าสู่ระบบไม่ได้", "none"),
    ],
)
def test_texts_without_spaces_are_compared_by_their_characters(left: str, right: str, decision: Decision):
    marks, others = read_marks(left), read_marks(right)

    assert compare_texts(marks, others, None, USUAL, is_equal=False).decision == decision


def test_the_cosine_of_an_embedder_counts_only_for_scripts_that_it_knows():
    """A model for English takes any two Thai texts for the same."""
    thai, english = read_marks("ระบบค้นหาข้อมูลช้า"), read_marks("The search is slow in the shop")
    mixed = read_marks("The search is slow in the shop of 京都")
    local = THRESHOLDS["local", "l2-supercat-256"]

    other_thai = read_marks("ผู้ใช้เข้าสู่ระบบไม่ได้")
    voyage = THRESHOLDS["voyage", "voyage-4"]

    for left, right, thresholds, measure in [
        (thai, other_thai, local, "words"),
        (english, thai, local, "words"),
        (english, mixed, local, "vector"),
        (thai, other_thai, voyage, "vector"),
    ]:
        assert compare_texts(left, right, 0.95, thresholds, is_equal=False).measured_by == measure


def test_every_embedder_has_thresholds():
    assert set(THRESHOLDS) == set(DEFAULT_MODELS.items())
    assert all(0 < thresholds.suggest < thresholds.near <= 1 for thresholds in [USUAL, *THRESHOLDS.values()])
    assert 0 < USUAL.words < USUAL.short_words < 1
