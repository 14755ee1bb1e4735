"""How near two texts are, and what becomes of them."""

from __future__ import annotations

from cmserver.consolidation.difference import Difference, find_difference
from cmserver.consolidation.marks import read_marks
from cmserver.consolidation.similarity import (
    THRESHOLDS,
    USUAL,
    WORDS_SUGGEST,
    Decision,
    SuggestionReason,
    judge_pair,
    lexical_similarity,
    readable_cosine,
)
from cmserver.providers.embedding.registry import DEFAULT_MODELS
from tests.table import try_rows

DIFFERENCE = Difference("number", "3", "5")


@try_rows(
    ("left", "right", "least", "most"),
    [
        ("The pool has twenty connections for each of the workers", "the POOL has 20 connections, for each of the workers!", 1, 1),
        ("Pool full", "pool: full", 1, 1),
        ("Pool full", "Cache empty", 0, 0),
        ("", "Cache empty", 0, 0),
        ("The pool has 20 connections for the workers of it", "The pool has 20 connections for the jobs of it", 0.4, 0.8),
    ],
)
def test_lexical_similarity_is_the_share_of_common_words(left: str, right: str, least: float, most: float):
    similarity = lexical_similarity(read_marks(left), read_marks(right))

    assert least <= similarity <= most
    assert similarity == lexical_similarity(read_marks(right), read_marks(left))


@try_rows(
    ("cosine", "lexical", "difference", "decision", "reason"),
    [
        (1.0, 1.0, None, "suggest", "same"),
        (0.5, 0.9, None, "suggest", "same"),
        (None, 0.9, None, "suggest", "same"),
        (1.0, 1.0, DIFFERENCE, "suggest", "contradicts"),
        (None, 0.9, DIFFERENCE, "suggest", "contradicts"),
        (0.8, 0.1, None, "suggest", "same"),
        (0.9, 0.1, DIFFERENCE, "suggest", "same"),
        (0.78, 0.1, DIFFERENCE, "suggest", "related"),
        (0.7, 0.1, None, "none", None),
        (None, 0.1, None, "none", None),
    ],
)
def test_a_pair_that_is_not_equal_is_suggested_or_left(
    cosine: float | None, lexical: float, difference: Difference | None, decision: Decision, reason: SuggestionReason | None
):
    verdict = judge_pair(cosine, lexical, difference, USUAL, is_equal=False)

    assert (verdict.decision, verdict.reason, verdict.difference) == (decision, reason, difference)


def test_equal_texts_are_merged_whatever_else_is_said_of_them():
    assert judge_pair(0.1, 0.1, DIFFERENCE, USUAL, is_equal=True).decision == "merge"


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

    verdict = judge_pair(None, lexical_similarity(marks, others), find_difference(marks, others), USUAL, is_equal=False)

    assert verdict.decision == decision


def test_the_cosine_of_an_embedder_counts_only_for_scripts_that_it_knows():
    """A model for English takes any two Thai texts for the same."""
    thai, english = read_marks("ระบบค้นหาข้อมูลช้า"), read_marks("The search is slow in the shop")
    mixed = read_marks("The search is slow in the shop of 京都")
    local = THRESHOLDS["local", "l2-supercat-256"]

    assert readable_cosine(0.9, thai, thai, local) is None
    assert readable_cosine(0.9, english, thai, local) is None
    assert readable_cosine(0.9, english, mixed, local) == 0.9
    assert readable_cosine(0.9, thai, thai, THRESHOLDS["voyage", "voyage-4"]) == 0.9


def test_every_embedder_has_thresholds():
    assert set(THRESHOLDS) == set(DEFAULT_MODELS.items())
    assert all(0 < thresholds.suggest < thresholds.near <= 1 for thresholds in [USUAL, *THRESHOLDS.values()])
    assert 0 < WORDS_SUGGEST < 1
