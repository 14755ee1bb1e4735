from __future__ import annotations

import base64
import random
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cmserver.redaction.redact import redact
from cmserver.redaction.spans import Span, merge
from tests.table import try_rows

_random = random.Random(7)
LOWER_HEX = "0123456789abcdef"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def made(size: int, alphabet: str = LETTERS) -> str:
    """As a machine makes it. No secret stands in this file as one piece, so that no scanner takes it for a leaked one."""
    return "".join(_random.choices(alphabet, k=size - 2)) + "7" + alphabet[-1]


PEM_BODY = "\n".join(made(64, LETTERS + "+/") for _ in range(12)) + "\n" + made(20) + "=="
EDGE = "-----"


def pem(kind: str, body: str = PEM_BODY, newline: str = "\n") -> str:
    return f"{EDGE}BEGIN {kind}{EDGE}{newline}{body.replace(chr(10), newline)}{newline}{EDGE}END {kind}{EDGE}"


# Kind, and a secret that is known wherever it stands, whatever stands beside it.
BY_FORM = [
    ("aws_access_key", "AKIA" + made(16, UPPER)),
    ("aws_access_key", "ASIA" + made(16, UPPER)),
    *(("github_token", f"gh{letter}_" + made(36)) for letter in "pousr"),
    ("github_token", "github_pat_" + made(22) + "_" + made(59)),
    ("gitlab_token", "glpat-" + made(20)),
    ("slack_token", f"xoxb-{made(12, '0123456789')}-{made(12, '0123456789')}-{made(24)}"),
    ("slack_token", f"xoxp-{made(12, '0123456789')}-{made(32, LOWER_HEX)}"),
    ("anthropic_key", "sk-ant-" + "api03-" + made(40) + "-_" + made(40) + "AA"),
    ("openai_key", "sk-proj-" + made(60) + "_" + made(40)),
    ("openrouter_key", "sk-or-" + "v1-" + made(64, LOWER_HEX)),
    ("google_api_key", "AIza" + made(35)),
    ("google_oauth", "ya29." + made(60)),
    ("google_oauth", "GOCSPX-" + made(28)),
    ("npm_token", "npm_" + made(36)),
    ("pypi_token", "pypi-" + "AgEIcHlwaS5vcmc" + made(80)),
    ("huggingface_token", "hf_" + made(34)),
    ("sendgrid_key", "SG." + made(22) + "." + made(43)),
    ("twilio_key", "SK" + made(32, LOWER_HEX)),
    ("digitalocean_token", "dop_v1_" + made(64, LOWER_HEX)),
    ("cmserver_key", "cms_" + made(32, LOWER_HEX) + "_" + made(48, LOWER_HEX)),
    ("claude_mem_key", "cmem_" + made(48, LOWER_HEX)),
    ("claude_mem_key", "cmem_" + made(20) + "-_" + made(21)),
    ("claude_mem_key", "cm_" + made(48, LOWER_HEX)),
    ("jwt", "eyJ" + made(33) + "." + "eyJ" + made(70) + "." + made(43)),
    ("private_key", pem("RSA PRIVATE KEY")),
    ("private_key", pem("PRIVATE KEY", newline="\\n")),
    ("private_key", pem("OPENSSH PRIVATE KEY", newline="\r\n")),
    ("private_key", pem("PGP PRIVATE KEY BLOCK", "Version: 1\n\n" + PEM_BODY)),
]

PASSWORD = "hunter" + "2Xy!"
TOKEN = made(32)

# Kind, text, and the part of it that must go.
IN_PLACE = [
    ("stripe_key", "key: {}", "sk_" + "live_" + made(24)),
    ("stripe_key", "{}\n", "rk_" + "test_" + made(99)),
    ("openai_key", "OPENAI={}", made(48)),
    ("slack_webhook", "https://hooks.slack.com/services/{}", f"T{made(8)}/B{made(8)}/{made(24)}"),
    ("aws_secret_key", "AKIA" + made(16, UPPER) + ",{}\n", made(40, LETTERS + "/+")),
    ("aws_secret_key", "aws_secret_access_key = {}", made(40, LETTERS + "/+")),
    ("aws_secret_key", '"SecretAccessKey": "{}",', made(40, LETTERS + "/+")),
    ("bearer_token", "curl -H 'Authorization: Bearer {}' https://x.test", TOKEN),
    ("bearer_token", "bearer {}", made(40, LETTERS + "._~+/")),
    ("basic_auth", "Authorization: Basic {}", base64.b64encode(b"alice:" + PASSWORD.encode()).decode()),
    ("authorization", "Authorization: token {}", TOKEN),
    ("authorization", '"authorization": "{}"', TOKEN),
    ("url_password", "postgres://alice:{}@db.internal:5432/orders", PASSWORD),
    ("url_password", "redis://:{}@cache/0", "simple"),
    ("url_password", "git clone https://bob:{}@git.test/x.git", "p@ss:w?rd#1"),
    ("password", "curl -fsS -u alice:{} https://x.test", PASSWORD),
    ("password", 'password = "{}"', PASSWORD),
    ("password", "password: str = '{}'", "letmein"),
    ("password", '  "password": "{}",', "letmein"),
    ("password", 'echo "{{\\"password\\": \\"{}\\"}}"', PASSWORD),
    ("password", "POSTGRES_PASSWORD={}\nX=1", "letmein"),
    ("password", "export PGPASSWORD={}; psql", PASSWORD),
    ("password", "DB_PASS={}", PASSWORD),
    ("password", "      POSTGRES_PASSWORD: {}", "letmein"),
    ("password", "password: {}", "hunter" + "2"),
    ("password", "mysql --password {} orders", PASSWORD),
    ("password", "mysql --password={} orders", PASSWORD),
    ("password", "<password>{}</password>", PASSWORD),
    ("password", "Server=db;Uid=sa;Pwd={};", PASSWORD),
    ("password", "if password == '{}':", PASSWORD),
    ("password", "'password' => '{}',", PASSWORD),
    ("password", 'config["password"] = "{}"', PASSWORD),
    ("password", 'password = "{}"', 'with\\"quote9'),
    ("secret", 'SECRET_KEY = "{}"', "django-insecure-" + made(40)),
    ("secret", "client_secret={}&grant_type=x", TOKEN),
    ("secret", "JWT_SECRET=  {}", "supersecretvalue"),
    ("token", "const accessToken = `{}`;", TOKEN),
    ("token", "https://x.test/hook?token={}&x=1", TOKEN),
    ("token", "VAULT_TOKEN={}", made(26)),
    ("token", "gh auth --token {}", TOKEN),
    ("token", "AUTH_TOKEN_2={}", TOKEN),
    ("api_key", "api_key='{}'", TOKEN),
    ("api_key", "X-Api-Key: {}", TOKEN),
    ("api_key", "apiKey: '{}',", "fb927459-ad56-45c4-" + "b02a-57879f789c4e"),
    ("api_key", "AccountKey={};", made(60) + "=="),
    ("private_key", f"$ head -5 key.pem\n{EDGE}BEGIN PRIVATE KEY{EDGE}\n{{}}", PEM_BODY),
    ("private_key", f"$ tail -5 key.pem\n{{}}\n{EDGE}END PRIVATE KEY{EDGE}", PEM_BODY),
]

ORDINARY = [
    "commit 3f786850e387550fdab836ed7e6dc881de23001b fixes the parser",
    "session fb927459-ad56-45c4-b02a-57879f789c4e, tool toolu_e53f63ceb6234eae85709e8e",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "/home/alice/.claude/projects/-home-alice-src-orders/fb927459-ad56-45c4-b02a-57879f789c4e.jsonl",
    "password = os.environ['DB_PASSWORD']",
    "password = os.environ.get('DB_PASSWORD')",
    "password = get_password(user)",
    "password: str",
    "password: string;",
    "def login(user: str, password: str | None = None) -> Token:",
    "login(user, password=password, token=token)",
    "token = self.settings.token",
    "const token = process.env.API_TOKEN;",
    'apiKey: "<your key>"',
    'API_KEY="your-api-key-here"',
    "API_KEY=${API_KEY}",
    "api_key: {{ vault_api_key }}",
    "PASSWORD=changeme",
    "PASSWORD=$DB_PASSWORD",
    "SECRET_KEY = config('SECRET_KEY')",
    "TOKEN = None",
    'password = "xxxxxxxx"',
    "password: ********",
    "credentials = '%s:%s' % (user, password)",
    "fetch(url, {credentials: 'include'})",
    'url = "socks5h://<username>:<password>@proxy-host"',
    '<input type="password" name="password">',
    '<label for="password">Password</label>',
    "input_tokens: 8740, output_tokens=12, max_tokens = 4096",
    "for token in tokens: print(token.value)",
    'token_type: "bearer"',
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
    "the secret: keep functions short",
    "secretName: orders-tls",
    "PWD=/home/alice/src/orders",
    "DB_PASSWORD_FILE=/run/secrets/db_password",
    "password = open('/run/secrets/db').read()",
    "secret=/run/secrets/db",
    "sort(key=lambda row: row.id, reverse=True)",
    "PRIMARY KEY (id), FOREIGN KEY (team_id) REFERENCES teams(id)",
    "public_key = load('id_ed25519.pub')",
    "task-abcdefghij0123456789abcd disk-0123456789abcdefghij",
    "Bearer authentication is the usual scheme; Basic understanding helps",
    "GET http://localhost:3000/users/alice@example.org",
    "http://127.0.0.1:37877/v1/events",
    "git@github.com:alice/orders.git and alice@example.org",
    "npm_config_registry=https://registry.npmjs.org/",
    "hf_hub_download(repo_id=model)",
    "def test_live_reload_restarts(self): task_test_integration_suite_runs()",
    "if '-----BEGIN PRIVATE KEY' in text: raise ValueError",
    "PrivateRoute<PrivateUser> items; if (a <private_count) return;",
    "Asia/Tokyo MAKIAFOO xoxo",
    "eyJ is how a JWT begins",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
]

SURROUNDINGS = st.text(max_size=60) | st.sampled_from(["a", "_", "\\n", "-", "=", '"', "sk-", "eyJ", "token=", "://x:", "<", "SG."])


@try_rows(("kind", "secret"), BY_FORM)
def test_a_secret_is_known_by_its_form(kind: str, secret: str) -> None:
    text, counts = redact(f"before {secret} after")

    assert text == f"before [redacted:{kind}] after"
    assert counts == {kind: 1}


@given(st.sampled_from(BY_FORM), SURROUNDINGS, SURROUNDINGS)
def test_a_secret_is_known_whatever_stands_beside_it(case: tuple[str, str], before: str, after: str) -> None:
    text, _ = redact(before + case[1] + after)

    for piece in re.findall(r"[A-Za-z0-9]{12,}", case[1].replace("\\n", "\n")):
        assert piece not in text


@try_rows(("kind", "place", "secret"), IN_PLACE)
def test_a_secret_is_known_by_its_place(kind: str, place: str, secret: str) -> None:
    if kind == "openai_key":
        place = place.replace("{}", "sk-{}")

    text, counts = redact(place.format(secret))

    assert secret not in text
    assert counts.get(kind) == 1
    assert f"[redacted:{kind}]" in text


def test_user_and_host_of_a_url_stay() -> None:
    text, _ = redact(f"postgres://alice:{PASSWORD}@db.internal:5432/orders")

    assert text == "postgres://alice:[redacted:url_password]@db.internal:5432/orders"


@try_rows("text", ORDINARY)
def test_ordinary_code_and_prose_stay_as_they_are(text: str) -> None:
    assert redact(text) == (text, {})


def test_our_own_source_stays_as_it_is() -> None:
    source = Path(redact.__code__.co_filename).read_text()

    assert redact(source) == (source, {})


def test_of_two_rules_for_one_secret_the_more_telling_one_names_it() -> None:
    text, counts = redact("GITHUB_TOKEN=ghp_" + "a1B2" * 9)

    assert text == "GITHUB_TOKEN=[redacted:github_token]"
    assert counts == {"github_token": 1}


def test_letters_that_grow_in_lower_case_do_not_move_the_span() -> None:
    text, _ = redact("\u0130" * 20 + f' password = "{PASSWORD}" \u0130')

    assert text == "\u0130" * 20 + ' password = "[redacted:password]" \u0130'


def test_overlapping_spans_go_as_one_and_the_first_rule_names_it() -> None:
    spans = [Span(5, 9, "first"), Span(0, 20, "second"), Span(18, 25, "third"), Span(25, 30, "fourth")]

    assert merge(spans) == [Span(0, 25, "first"), Span(25, 30, "fourth")]


TAGS = ["claude-mem-context", "cmserver-context", "system_instruction", "system-instruction", "persisted-output", "system-reminder"]


@try_rows(
    ("before", "after"),
    [
        ("a <private>hidden</private> b", "a [redacted:private] b"),
        ("a <PRIVATE>hidden</Private > b", "a [redacted:private] b"),
        ('a <private reason="x > y">hidden</private> b', "a [redacted:private] b"),
        ("a <private\nreason='x'>hidden</private> b", "a [redacted:private] b"),
        ("<private>a<private>hidden</private>hidden</private>b", "[redacted:private]b"),
        ("a <private>hidden", "a [redacted:private]"),
        ("a <private>hidden</private", "a [redacted:private]"),
        ("a <private>hidden <private>hidden</private> hidden", "a [redacted:private]"),
        ("<private>hidden</private><private>hidden</private>", "[redacted:private][redacted:private]"),
        ("<private>hidden<system-reminder></private>b", "[redacted:private]b"),
        ("<priv<system-reminder>x</system-reminder>ate>hidden</private>b", "[redacted:private]b"),
        ("a </private> b", "a </private> b"),
        ("a <privateer>shown</privateer>", "a <privateer>shown</privateer>"),
        *((f"a <{tag} x='1'>hidden</{tag.upper()}>b", "a b") for tag in TAGS),
        *((f"a <{tag}>hidden", "a ") for tag in TAGS),
    ],
)
def test_private_spans_leave_a_mark_and_tool_contexts_leave_nothing(before: str, after: str) -> None:
    text, _ = redact(before)

    assert text == after


@given(SURROUNDINGS, SURROUNDINGS)
def test_private_text_is_taken_out_whatever_stands_beside_it(before: str, after: str) -> None:
    text, _ = redact(f"{before}<private>hidden-text</private>{after}")

    assert "hidden" not in text


@given(st.lists(SURROUNDINGS | st.sampled_from([secret for _, secret in BY_FORM] + ["<private>", "</private>", "\n"]), max_size=9))
def test_what_is_redacted_stays_as_it_is(pieces: list[str]) -> None:
    once, _ = redact("".join(pieces))

    assert redact(once) == (once, {})


def test_a_text_that_hides_tags_in_tags_too_often_is_dropped() -> None:
    hidden_tag = ""
    for _ in range(12):
        hidden_tag = f"<system-{hidden_tag}reminder></system-reminder>"

    text, _ = redact(f"<priv{hidden_tag}ate>hidden")

    assert text == "[redacted:private]"
