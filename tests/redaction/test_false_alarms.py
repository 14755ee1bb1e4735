"""Sessions that are known to have no secret in them come through redaction as they are."""

from __future__ import annotations

import json
from pathlib import Path

from cmserver.redaction.clean import clean
from tests.rules import session_orders
from tests.table import try_rows

TESTS = Path(__file__).parents[1]
PAYLOADS = sorted(TESTS.glob("doors/hooks/samples/*/*.json"))
HISTORIES = sorted([*TESTS.glob("bench/recall/history/**/*.json"), *TESTS.glob("recall/history/*.json")])
ORDERS = [name for name in dir(session_orders) if name.isupper()]

SCHEMAS: list[object] = [
    {"password": {"type": "string", "format": "password", "minLength": 8, "pattern": "^(?=.*[A-Z])(?=.*[0-9]).{8,}$"}},
    {"token": {"type": "string", "description": "The token that Login2 gave", "example": "see /v1/login"}},
    {"secrets": {"db": {"file": "./secrets/db.txt"}, "orders-tls": {"external": True, "name": "orders_tls_v2"}}},
    {"secrets": ["DB_PASSWORD", "AWS_ACCESS_KEY_ID", "orders-tls-v2"]},
    {"credentials": {"user": "alice2", "host": "db2.internal:5432", "email": "alice2@example.org"}},
    {"name": "password", "value": "required"},
    {"inputs": [{"name": "token", "value": "${{ secrets.TOKEN }}"}, {"name": "password", "value": ""}]},
    {"kind": "ConfigMap", "data": {"dsn": "postgres://db.internal/orders?sslmode=require", "level": "debug2"}},
    {"auth": "oauth2"},
    {"auth": {"type": "basic", "realm": "Orders2"}},
    {"command": ["git", "commit", "-p", "orders2.py"]},
    {"command": ["docker", "run", "-p", "8080:80", "-u", "1000:1000", "nginx:1.27"]},
    {"cookies": {"theme": "dark", "consent": "yes"}, "headers": {"Cookie": "theme=dark; language=en-GB"}},
    {"cookies": [{"name": "theme", "value": "dark", "domain": "app2.internal"}], "cookie": True},
    {"columns": ["id", "username", "password", "email2fa", "createdAt2"]},
    {"lines": ["fields = ['username', 'password', 'scram-sha-256']"]},
]
TEXTS = [
    "mkdir -p src/orders2/api && docker run -p 8080:80 -u 1000:1000 nginx",
    "docker login registry.internal && docker push -q registry.internal/orders:2",
    "mysql -u root -p orders < dump.sql",
    "ssh -p 2222 deploy@host2; rsync -azP a b; ps -p 4242; tar -xzpf a.tgz",
    "git config --global user.email alice2@example.org; git config set core.editor vim9",
    "aws configure set region eu-central-1; npm config set registry https://registry.npmjs.org/",
    "raise ValueError('password: must have 8 characters, 1 digit and 1 sign!')",
    "label = 'Password of the new user'; password = 'Enter your new password'",
    'password: "Forgot your password?", secret: "The secret that you were given"',
    "private final String name; private <T> void map(List<T> all) { if (a < private_count) }",
    "class A { private: int x; }  // < privately held >",
    "use &lt;privately&gt; or Map<Private, Public>",
    "Set-Cookie: theme=dark; Path=/; HttpOnly\nCookie: consent=yes; language=en-GB",
    "document.cookie = name + '=' + value; cookies = {'theme': 'dark'}",
    "src/orders/client.py:5432:def test: pass\n2026-11-22 09:14:03,511:INFO:root:started:ok",
    "https://github.com/acme/orders/compare/v1.2.3...v1.2.4?expand=1&key=name&code=200&signature=none",
    "ssh://git@github.com/acme/orders.git and https://alice@bitbucket.org/acme/orders.git",
    "kind: ConfigMap\ndata:\n  level: debug\n---\nkind: Deployment\nmetadata:\n  name: orders-2",
    "\n".join(f"{number:064x}" for number in (7, 2**200 + 11, 2**255 - 19)),
    "machine learning login flow: password reset2 is described in docs/login.md",
    "arn:aws:iam::123456789012:role/orders, sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=, h1:RGKDQAAAAAAABBBB=",
    "self.assert_that_a_long_method_name_of_Forty_characters_is_kept(sk_test_integration_suite)",
    "dckr_pattern_matching_is_fine shpat_ xai-model-names-are-words-too glptt-is-a-prefix",
    "password = passwordField; password=getUserPassword; <password>MyPasswordEncoder</password>; token: AccessTokenProviderFactory",
    "private AccessToken accessTokenV2Provider; Password PasswordEncoder2Factory; secret secretManagerV1Client = open()",
    "the password is required, the token is expired, my api key is missing; use the password manager for staging",
    "the secret is stored, the token is base64-encoded, the api key is read from ORDERS_API_KEY, use token authentication",
    "password: 'must match the pattern', token: 'the token for GitHub', PASSWORD='enter your new password'",
    'password: "is too short", "password": "the password of GitHub", secret: "signed with SHA256"',
    "ALTER ROLE orders PASSWORD NULL; ALTER ROLE a PASSWORD :'pw'; CREATE USER a PASSWORD '$1'; IDENTIFIED BY '${PASSWORD}'",
    'ENV TOKEN_FILE /run/secrets/token; ARG API_TOKEN; ENV API_TOKEN ${API_TOKEN}; gh secret set A --body "$TOKEN"',
    "a dynamic library identified by 'name', a user identified by \"login\"",
    'variable "db_password" {\n  type = string\n  sensitive = true\n}\nvariable "token" {\n  default = ""\n}',
    'raise Invalid("The password " \\\n    "must have 1 digit")\nhelp = ("the token "\n  "is read from ORDERS_API_KEY2")',
    "password:\n  'minLength': 8\ntoken: |\n  the token that Login2 gave\nsecret: >-\n  see docs/login2.md\n",
    "docker run \\\n  -p 8080:80 \\\n  -u 1000:1000 nginx; mkdir \\\n  -p src/orders2/api",
    '{"kty": "EC", "crv": "P-256", "x": "aB3dE5fG7hJ9kL2mN4pQ", "y": "aB3dE5fG7hJ9kL2mN4pQ", "kid": "q-2026-11-22-orders"}',
    "task-4f1f19a2-0d2c-4f0e-8a36-1c2e9f4d7b60 call_Zk4AbCdEfGhIjKlMnOpQr msg_01ABCdefGHIjkl",
]


@try_rows("path", [*PAYLOADS, *HISTORIES], ids=lambda path: "/".join(path.parts[-2:]))
def test_a_recorded_payload_or_history_loses_nothing(path: Path) -> None:
    value = json.loads(path.read_text())

    assert clean(value, field_max_chars=1_000_000).redactions == {}


@try_rows("name", ORDERS)
def test_a_labelled_session_loses_nothing(name: str) -> None:
    value = json.loads(json.dumps(getattr(session_orders, name), default=str))

    assert clean(value, field_max_chars=1_000_000).redactions == {}


@try_rows("value", [*SCHEMAS, *TEXTS], ids=lambda value: str(value)[:40])
def test_what_only_looks_like_a_secret_stays(value: object) -> None:
    assert clean(value, field_max_chars=1_000_000).value == value


def test_the_sessions_that_are_counted_are_there() -> None:
    assert len(PAYLOADS) >= 72
    assert len(HISTORIES) >= 39
    assert len(ORDERS) >= 10
