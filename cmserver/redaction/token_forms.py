"""Secrets recognized by their form in any place: a prefix, then characters that a machine made.

Most prefixes end in `_`, `-` or `.`. One search for that sign, with a prefix before it and a token after it, replaces a search for
each prefix, so that a new prefix costs nothing where there is no token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from cmserver.redaction.plausible import is_jwt, is_token_like
from cmserver.redaction.rule import Gate, Rule, pattern_rule


class _Form(NamedTuple):
    kind: str
    prefixes: str
    """Separated by bars. All end in the same sign."""
    body: str
    check: Callable[[str], bool] | None = None


# Before a short prefix: no letter or digit, or an escaped line break.
_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"

_UNDERSCORE = (
    _Form("github_token", "ghp_|gho_|ghu_|ghs_|ghr_", r"[A-Za-z0-9]{30,}"),
    _Form("github_token", "github_pat_", r"[A-Za-z0-9_]{36,}"),
    _Form("stripe_key", "sk_live_|rk_live_|sk_test_|rk_test_|sk_prod_|rk_prod_", r"[A-Za-z0-9]{16,}"),
    _Form("stripe_key", "whsec_", r"[A-Za-z0-9+/]{24,}"),
    _Form("npm_token", "npm_", r"[A-Za-z0-9]{36,}"),
    _Form("huggingface_token", "hf_|api_org_", r"[A-Za-z0-9]{30,}"),
    _Form("digitalocean_token", "doo_v1_|dop_v1_|dor_v1_", r"[a-f0-9]{64,}"),
    _Form("cmserver_key", "cms_", r"[A-Za-z0-9]{8,}_[A-Za-z0-9]{16,}"),
    _Form("claude_mem_key", "cm_", r"[0-9a-f]{40,}"),
    _Form("claude_mem_key", "cmem_", r"[\w-]{24,}"),
    _Form("docker_token", "dckr_pat_|dckr_oat_", r"[\w-]{20,}"),
    _Form("shopify_token", "shpat_|shpca_|shppa_|shpss_|shprt_", r"[a-fA-F0-9]{32,}"),
    _Form("groq_key", "gsk_", r"[A-Za-z0-9]{40,}"),
    _Form("sentry_token", "sntrys_|sntryu_|sntrya_", r"[\w+/=-]{40,}"),
    _Form("linear_key", "lin_api_|lin_oauth_|lin_wh_", r"[A-Za-z0-9]{32,}"),
    _Form("notion_token", "ntn_", r"[A-Za-z0-9]{40,}"),
    _Form("notion_token", "secret_", r"[A-Za-z0-9]{43}(?![A-Za-z0-9])", is_token_like),
    _Form("replicate_token", "r8_", r"[A-Za-z0-9]{36,}"),
    _Form("grafana_token", "glsa_|glc_", r"[A-Za-z0-9]{32,}"),
    _Form("rubygems_key", "rubygems_", r"[a-f0-9]{40,}"),
    _Form("planetscale_token", "pscale_tkn_|pscale_pw_|pscale_oauth_", r"[\w=.-]{32,}"),
    _Form("figma_token", "figd_|figo_|figor_|figu_", r"[\w-]{36,}"),
    _Form("supabase_key", "sbp_|sbp_oauth_|sb_secret_", r"[\w-]{30,}", is_token_like),
    _Form("onepassword_token", "ops_", r"ey[A-Za-z0-9+/=]{60,}"),
    _Form("fly_token", "fo1_|fm1r_|fm1a_|fm2_", r"[\w+/=-]{40,}"),
    _Form("sourcegraph_token", "sgp_", r"(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40,}"),
    _Form("langsmith_key", "lsv2_pt_|lsv2_sk_", r"[a-f0-9]{32}_[a-f0-9]{8,}"),
    _Form("pinecone_key", "pcsk_", r"[A-Za-z0-9]{4,8}_[A-Za-z0-9]{40,}"),
    _Form("prefect_key", "pnu_|pnb_", r"[A-Za-z0-9]{36,}"),
    _Form("readme_key", "rdme_", r"[a-z0-9]{60,}"),
    _Form("shippo_key", "shippo_live_|shippo_test_", r"[a-fA-F0-9]{36,}"),
    _Form("posthog_key", "phx_", r"[A-Za-z0-9]{40,}"),
    _Form("buildkite_token", "bkua_", r"[a-z0-9]{36,}"),
    _Form("circleci_token", "CCIPAT_|CCIPRJ_", r"[A-Za-z0-9]{16,}_[a-f0-9]{36,}"),
    _Form("clojars_token", "CLOJARS_", r"[A-Za-z0-9]{56,}"),
    _Form("duffel_token", "duffel_live_|duffel_test_", r"[\w=-]{40,}"),
    _Form("typeform_token", "tfp_", r"[\w.=-]{50,}"),
    _Form("elevenlabs_key", "sk_", r"[a-f0-9]{48}(?![A-Za-z0-9])"),
    _Form("together_key", "tgp_v1_", r"[\w-]{40,}"),
    _Form("e2b_key", "e2b_", r"[a-f0-9]{36,}"),
)
_HYPHEN = (
    _Form("anthropic_key", "sk-ant-", r"[\w-]{16,}"),
    _Form("openrouter_key", "sk-or-", r"[\w-]{16,}"),
    _Form("openai_key", "sk-proj-|sk-svcacct-|sk-admin-", r"[\w-]{16,}"),
    _Form("slack_token", "xoxa-|xoxb-|xoxc-|xoxd-|xoxe-|xoxo-|xoxp-|xoxr-|xoxs-|xapp-", r"[A-Za-z0-9%-]{10,}"),
    _Form("gitlab_token", "glpat-|glrt-|gldt-|glft-|glsoat-|glagent-|glimt-|gloas-|glffct-|glptt-|glcbt-", r"[\w-]{16,}"),
    _Form("pypi_token", "pypi-", r"AgE[\w-]{40,}"),
    _Form("google_oauth", "GOCSPX-", r"[\w.-]{20,}"),
    _Form("xai_key", "xai-", r"[A-Za-z0-9]{40,}"),
    _Form("perplexity_key", "pplx-", r"[A-Za-z0-9]{40,}"),
    _Form("nvidia_key", "nvapi-", r"[\w-]{50,}"),
    _Form("new_relic_key", "NRAK-|NRII-|NRRA-", r"[A-Za-z0-9-]{27,}"),
    _Form("postman_key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{30,}"),
    _Form("tailscale_key", "tskey-", r"(?:[a-z]{3,8}-)?[A-Za-z0-9]{6,}-[A-Za-z0-9]{16,}"),
    _Form("pulumi_token", "pul-", r"[a-f0-9]{40,}"),
    _Form("square_token", "sq0atp-|sq0csp-", r"[\w-]{22,}"),
    _Form("mailgun_key", "key-", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    _Form("brevo_key", "xkeysib-|xsmtpsib-", r"[a-f0-9]{60,}"),
    _Form("frameio_token", "fio-u-", r"[\w=-]{60,}"),
    _Form("flutterwave_key", "FLWSECK_TEST-|FLWSECK-", r"[a-hA-H0-9]{12,}"),
    _Form("octopus_key", "API-", r"[A-Z0-9]{26,}", is_token_like),
    _Form("adobe_secret", "p8e-", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])", is_token_like),
    _Form("tavily_key", "tvly-", r"[\w-]{28,}"),
    _Form("firecrawl_key", "fc-", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    _Form("hubspot_token", "pat-na1-|pat-na2-|pat-eu1-", r"[a-f0-9]{8}-[a-f0-9-]{27,}"),
)
_POINT = (
    _Form("google_oauth", "ya29.", r"[\w.-]{20,}"),
    _Form("sendgrid_key", "SG.", r"[\w-]{16,64}\.[\w-]{16,}(?>(?:\.[\w-]++)*)"),
    _Form("vault_token", "hvs.|hvb.|hvr.", r"[\w-]{24,}"),
    _Form("doppler_token", "dp.pt.|dp.st.|dp.ct.|dp.sa.|dp.scim.|dp.audit.", r"(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,}"),
    _Form("terraform_token", ".atlasv1.", r"[\w=-]{50,}"),
    _Form("dynatrace_token", "dt0c01.|dt0s16.", r"[A-Z0-9]{24,}\.[A-Z0-9]{40,}"),
)


def _gate(sign: str, ahead: str, forms: tuple[_Form, ...], *others: str) -> Gate:
    """The sign with a prefix of `forms` before it and what `ahead` requires after it, or followed by one of `others`."""
    prefixes = [prefix for form in forms for prefix in form.prefixes.split("|")]
    after_hex = [prefix for prefix in prefixes if prefix[-2] in "0123456789abcdef"]
    # Most hyphens are in UUIDs, where only the prefixes that end like hexadecimal digits are tried.
    before = f"(?<=[0-9a-f]{re.escape(sign)})(?:{_behind(after_hex)})|(?<![0-9a-f]{re.escape(sign)})(?:{_behind(prefixes)})"
    return Gate(sign, re.compile(f"{re.escape(sign)}(?:{'|'.join((f'{ahead}(?:{before})', *others))})", re.ASCII))


def _behind(prefixes: list[str]) -> str:
    return "|".join(f"(?<={re.escape(prefix)})" for prefix in prefixes)


def _rules(forms: tuple[_Form, ...], gate: Gate) -> list[Rule]:
    return [
        pattern_rule(form.kind, form.prefixes, f"(?:{_any_of(form.prefixes)}){form.body}", form.check, gate=gate) for form in forms
    ]


def _any_of(prefixes: str) -> str:
    return "|".join(map(re.escape, prefixes.split("|")))


# What follows the sign. Fails at most names of variables, which go on with small letters.
_MADE = r"(?=[a-z]{0,12}(?:[A-Z0-9+/%]|[_-][a-z]{0,12}[A-Z0-9]))"
_AFTER_UNDERSCORE = _gate("_", _MADE + r"(?=[\w.+/=-]{16})(?![A-Z_]{16})", _UNDERSCORE)
_AFTER_HYPHEN = _gate("-", r"(?=[\w%-]{16})", _HYPHEN, r"(?<=sk-)[A-Za-z0-9]{20}")
_AFTER_POINT = _gate(
    ".",
    _MADE + r"(?=[\w-]{16})",
    _POINT,
    r"(?=[\w-]{6}\.[\w-]{27})",
    r"com/(?:(?<=slack\.com/)|(?<=discord\.com/)|(?<=discordapp\.com/)|(?<=webhook\.office\.com/))",
)
_A = Gate("A", re.compile(r"A(?:[KS]IA|Iza|T[AC]TT3|TBB|GE-SECRET-KEY-1)[\w-]{16}", re.ASCII))
_S = Gate("S", re.compile(r"SK[0-9a-f]{32}", re.ASCII))
_L = Gate("L", re.compile(r"L(?:S0tLS1CRUdJTi|TAI)[A-Za-z0-9]{12}", re.ASCII))
_TILDE = Gate("~", re.compile(r"~(?<=Q~)[\w~.-]{31}", re.ASCII))

TOKEN_RULES = (
    *_rules(_UNDERSCORE, _AFTER_UNDERSCORE),
    *_rules(_HYPHEN, _AFTER_HYPHEN),
    *_rules(_POINT, _AFTER_POINT),
    pattern_rule("openai_key", "sk-", _EDGE + r"sk-([A-Za-z0-9]{20,})", is_token_like, gate=_AFTER_HYPHEN),
    pattern_rule("aws_access_key", "AKIA|ASIA", r"A[KS]IA[A-Z0-9]{16,}", gate=_A),
    pattern_rule("aws_secret_key", "AKIA|ASIA", r"A[KS]IA[A-Z0-9]{16}[\s,:;|\"']{1,5}([A-Za-z0-9/+]{40,})", gate=_A),
    pattern_rule("google_api_key", "AIza", r"AIza[\w-]{35,}", gate=_A),
    pattern_rule("atlassian_token", "ATATT3|ATCTT3", r"AT[AC]TT3[\w=-]{60,}", gate=_A),
    pattern_rule("atlassian_token", "ATBB", r"(?<![A-Za-z0-9+/])ATBB[A-Za-z0-9]{28,}", is_token_like, gate=_A),
    pattern_rule("age_key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{40,}", gate=_A),
    pattern_rule("twilio_key", "SK", r"SK[0-9a-f]{32,}", gate=_S),
    pattern_rule("alibaba_key", "LTAI", r"LTAI[A-Za-z0-9]{16,}", is_token_like, gate=_L),
    # A PEM block encoded in base64 once more, as in Kubernetes Secrets; certificates and public keys are kept.
    pattern_rule("private_key", "LS0tLS1CRUdJTi", r"LS0tLS1CRUdJTi(?!BDRVJU|BQVUJM)[A-Za-z0-9+/=]{20,}", gate=_L),
    pattern_rule("databricks_token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    pattern_rule("discord_token", ".", r"(?<![\w-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", gate=_AFTER_POINT),
    pattern_rule("azure_secret", "Q~", r"[\w~.]{3}\dQ~[\w~.-]{31,}", gate=_TILDE),
    pattern_rule("jwt", "eyJ", r"eyJ[\w-]*+(?>(?:\.[\w-]++)*)", is_jwt),
    pattern_rule("slack_webhook", "hooks.slack.com", r"hooks\.slack\.com/[a-z]{1,20}/([A-Za-z0-9/_+-]{16,})", gate=_AFTER_POINT),
    pattern_rule(
        "discord_webhook", "/webhooks/", r"discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/\d{5,25}/([\w-]{30,})", gate=_AFTER_POINT
    ),
    pattern_rule("teams_webhook", "/webhookb2/", r"webhook\.office\.com/webhookb2/([\w@/-]{40,})", gate=_AFTER_POINT),
)
