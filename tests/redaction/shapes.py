"""151 shapes in which secrets turn up in the payloads of coding agents: where each was planted, and what of it must be gone.

Nothing here is a secret. Each is made when the tests run, from parts, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import NamedTuple

LOWER_HEX = "0123456789abcdef"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
DIGITS = "0123456789"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
BASE64 = LETTERS + "+/"
BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"

_random = random.Random(151)


class Shape(NamedTuple):
    """A payload with planted secrets."""

    name: str
    payload: object
    secrets: tuple[str, ...]


def made(size: int, alphabet: str = LETTERS) -> str:
    """Characters as a machine chooses them, digits among them."""
    return "".join(_random.choices(alphabet, k=size - 2)) + "7" + alphabet[-1]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def password() -> str:
    """As a person makes it up."""
    return "Hunter" + made(4, DIGITS) + "!xY"


EDGE = "-" * 5
BODY = [made(64, BASE64) for _ in range(12)] + [made(22, BASE64) + "=="]
OPENSSH_BODY = ["b3BlbnNzaC1rZXktdjEAAAAA" + made(46, BASE64), *(made(70, BASE64) for _ in range(5)), made(30, BASE64) + "="]


def armoured(kind: str, body: list[str]) -> list[str]:
    return [f"{EDGE}BEGIN {kind}{EDGE}", *body, f"{EDGE}END {kind}{EDGE}"]


KEY = armoured("RSA PRIVATE KEY", BODY)
OPENSSH = armoured("OPENSSH PRIVATE KEY", OPENSSH_BODY)


def read(lines: list[str], prefix: str, first: int = 1) -> str:
    """With line numbers: `prefix` is formatted with the number."""
    return "\n".join(prefix.format(number) + line for number, line in enumerate(lines, first))


TOKENS = {
    "github-classic": "ghp_" + made(36),
    "github-fine-grained": "github_pat_" + made(22) + "_" + made(59),
    "github-app": "ghs_" + made(36),
    "gitlab-personal": "glpat-" + made(20),
    "gitlab-runner": "glrt-" + made(20),
    "gitlab-deploy": "gldt-" + made(20),
    "gitlab-pipeline-trigger": "glptt-" + made(40, LOWER_HEX),
    "gitlab-ci-job": "glcbt-" + "64_" + made(20),
    "gitlab-feed": "glft-" + made(20),
    "gitlab-scim": "glsoat-" + made(20),
    "gitlab-agent": "glagent-" + made(50),
    "gitlab-mail": "glimt-" + made(25),
    "slack-bot": f"xoxb-{made(12, DIGITS)}-{made(12, DIGITS)}-{made(24)}",
    "slack-app": f"xapp-1-A{made(10, UPPER)}-{made(13, DIGITS)}-{made(64, LOWER_HEX)}",
    "anthropic": "sk-ant-" + "api03-" + made(93) + "AA",
    "openai-project": "sk-proj-" + made(60) + "_" + made(40),
    "openrouter": "sk-or-" + "v1-" + made(64, LOWER_HEX),
    "google-api-key": "AIza" + made(35),
    "google-access": "ya29." + made(60),
    "google-client-secret": "GOCSPX-" + made(28),
    "npm": "npm_" + made(36),
    "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + made(80),
    "hugging-face": "hf_" + made(34),
    "sendgrid": "SG." + made(22) + "." + made(43),
    "twilio": "SK" + made(32, LOWER_HEX),
    "digitalocean": "dop_v1_" + made(64, LOWER_HEX),
    "cmserver": "cms_" + made(32, LOWER_HEX) + "_" + made(48, LOWER_HEX),
    "jwt": "eyJ" + made(33) + "." + "eyJ" + made(70) + "." + made(43),
    "stripe": "sk_" + "live_" + made(24),
    "stripe-webhook": "whsec_" + made(32),
    "telegram": made(10, DIGITS) + ":AA" + made(33),
    "discord-bot": "MTk4" + made(22) + "." + "G" + made(5) + "." + made(38),
    "vault-service": "hvs." + "CAESI" + made(90),
    "vault-batch": "hvb." + "AAAAAQ" + made(140),
    "shopify-access": "shpat_" + made(32, LOWER_HEX),
    "shopify-shared-secret": "shpss_" + made(32, LOWER_HEX),
    "databricks": "dapi" + made(32, LOWER_HEX),
    "docker-personal": "dckr_pat_" + made(27),
    "docker-organisation": "dckr_oat_" + made(32),
    "atlassian": "ATATT3" + "xFfGF0" + made(170) + "=" + made(8, LOWER_HEX).upper(),
    "bitbucket": "ATBB" + made(32),
    "groq": "gsk_" + made(52),
    "xai": "xai-" + made(80),
    "sentry-organisation": "sntrys_" + "eyJpYXQiOjE3" + made(90) + "_" + made(43),
    "sentry-user": "sntryu_" + made(64, LOWER_HEX),
    "age": "AGE-SECRET-KEY-1" + made(58, BECH32),
    "linear": "lin_api_" + made(40),
    "notion": "ntn_" + made(11, DIGITS) + made(35),
    "perplexity": "pplx-" + made(48),
    "replicate": "r8_" + made(37),
    "grafana": "glsa_" + made(32) + "_" + made(8, LOWER_HEX),
    "new-relic": "NRAK-" + made(27, UPPER),
    "postman": "PMAK-" + made(24, LOWER_HEX) + "-" + made(34, LOWER_HEX),
    "rubygems": "rubygems_" + made(48, LOWER_HEX),
    "planetscale": "pscale_tkn_" + made(43),
    "doppler": "dp.pt." + made(43),
    "figma": "figd_" + made(40),
    "supabase": "sbp_" + made(40, LOWER_HEX),
    "tailscale": "tskey-auth-" + made(12) + "-" + made(32),
    "terraform-cloud": made(14) + ".atlasv1." + made(67),
    "azure-client-secret": made(3) + "8Q~" + made(34),
    "pulumi": "pul-" + made(40, LOWER_HEX),
    "nvidia": "nvapi-" + made(64),
    "square": "sq0atp-" + made(22),
}


def _tokens() -> list[Shape]:
    """Tokens that are known by their own form: in the output of a command, nothing else near them."""
    return [Shape(f"token/{name}", {"stdout": f"added {token} to the vault"}, (token,)) for name, token in TOKENS.items()]


def _keys() -> list[Shape]:
    """Private keys: whole, in part, with what a tool writes before each line."""
    pgp = armoured("PGP PRIVATE KEY BLOCK", ["Version: GnuPG v2", "", *BODY[:6], "=aB3d"])
    whole = tuple(BODY)
    wireguard, jwk = made(43, BASE64) + "=", made(86)
    first, middle = "\n".join(KEY[:6]), read(BODY[3:7], "{:6}\t", 4)
    service = json.dumps({"type": "service_account", "private_key": "\n".join(KEY) + "\n"})
    patch = [" shown", *(f"+{line}" for line in KEY[:5])]
    putty = ["PuTTY-User-Key-File-3: ssh-ed25519", "Encryption: none", "Private-Lines: 2", BODY[0], BODY[1]]
    shapes = [
        ("whole", "\n".join(KEY), whole),
        ("openssh-whole", "\n".join(OPENSSH), tuple(OPENSSH_BODY)),
        ("head-only", f"$ head -6 server.key\n{first}", whole[:5]),
        ("tail-only", "\n".join(["$ tail -5 server.key", *KEY[-5:]]), whole[-4:]),
        ("numbered-by-cat", read(KEY, "{:6}\t"), whole),
        ("numbered-by-cat-head", read(KEY[:6], "{:6}\t"), whole[:5]),
        ("numbered-by-cat-tail", read(KEY[-5:], "{:6}\t", 10), whole[-4:]),
        ("numbered-by-read", read(OPENSSH[:5], "{:6}→"), tuple(OPENSSH_BODY[:4])),
        ("numbered-by-grep", read(KEY[:6], "{}:"), whole[:5]),
        ("numbered-by-grep-around", read(KEY[:6], "server.key-{}-"), whole[:5]),
        ("middle-of-a-named-file", {"tool_input": {"file_path": "/home/a/.ssh/id_rsa", "offset": 4}, "tool_response": middle},
         whole[3:7]),
        ("diff-added", "\n".join(["@@ -0,0 +1,14 @@", *(f"+{line}" for line in KEY)]), whole),
        ("diff-removed-head", "\n".join(["@@ -1,14 +0,0 @@", *(f"-{line}" for line in KEY[:6])]), whole[:5]),
        ("patch-lines-head", {"structuredPatch": [{"lines": patch}]}, whole[:4]),
        ("quoted-in-mail", "\n".join(f"> {line}" for line in KEY[:6]), whole[:5]),
        ("commented-out", "\n".join(f"# {line}" for line in KEY[:6]), whole[:5]),
        ("indented-yaml", "\n".join(["tls:", "  key: |", *(f"    {line}" for line in KEY[:7])]), whole[:6]),
        ("escaped-in-json", service, whole),
        ("escaped-twice", json.dumps(service), whole),
        ("escaped-head", json.dumps("\n".join(KEY[:6])), whole[:5]),
        ("pgp", "\n".join(pgp), whole[:6]),
        ("pgp-diff-head", "\n".join(f"+{line}" for line in pgp[:7]), whole[:4]),
        ("ssh2", "\n".join(["---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----", 'Comment: "a"', *BODY[:3]]), whole[:3]),
        ("putty", "\n".join(putty), whole[:2]),
        ("wireguard", f"[Interface]\nPrivateKey = {wireguard}\nAddress = 10.0.0.2/32", (wireguard,)),
        ("jwk", {"stdout": json.dumps({"kty": "RSA", "n": made(86), "e": "AQAB", "d": jwk})}, (jwk,)),
    ]  # fmt: skip
    return [Shape(f"key/{name}", payload, secrets) for name, payload, secrets in shapes]


def _commands() -> list[Shape]:
    """Passwords as arguments."""
    texts = {
        "sshpass": "sshpass -p {} ssh deploy@db.internal uptime",
        "sshpass-glued": "sshpass -p'{}' ssh deploy@db.internal",
        "docker-login": "docker login -u alice -p {} registry.internal",
        "docker-login-long": "docker login --username alice --password {} registry.internal",
        "helm-login": "helm registry login -u alice -p {} registry.internal",
        "mysql": "mysql -u root -p{} orders -e 'select 1'",
        "mysqldump": "mysqldump -h db -uroot -p'{}' orders > dump.sql",
        "redis": "redis-cli -h cache -a {} ping",
        "mongo": "mongosh -u admin -p {} --authenticationDatabase admin",
        "ldap": "ldapsearch -x -D cn=admin -w {} -b dc=example",
        "openssl": "openssl rsa -in key.pem -passin pass:{} -out plain.pem",
        "aws-configure": "aws configure set aws_secret_access_key {}",
        "curl-user": "curl -sS -u alice:{} https://api.internal/v1",
        "curl-header": "curl -H 'Authorization: Basic {}' https://api.internal/v1",
        "curl-bearer": 'curl -H "Authorization: Bearer {}" https://api.internal/v1',
        "kubectl-literal": "kubectl create secret generic db --from-literal=password={}",
        "pgpassword": "PGPASSWORD={} psql -h db -U app orders",
        "stdin": "echo {} | docker login --username alice --password-stdin",
        "npm-config": "npm config set //registry.npmjs.org/:_authToken {}",
        "smb": "smbclient //files/share -U alice%{}",
    }
    shapes: list[Shape] = []
    for name, text in texts.items():
        secret = (
            encoded("alice:" + password())
            if "Basic" in text
            else made(40)
            if name in {"aws-configure", "npm-config"}
            else password()
        )
        shapes.append(Shape(f"command/{name}", {"tool_input": {"command": text.format(secret)}}, (secret,)))
    one, two, three, four = password(), password(), password(), password()
    return [
        *shapes,
        Shape("command/argv-password", {"command": ["mysql", "--password", one, "orders"]}, (one,)),
        Shape("command/argv-short", {"command": ["docker", "login", "-u", "alice", "-p", two]}, (two,)),
        Shape("command/argv-curl", {"args": ["curl", "-u", f"alice:{three}", "https://api.internal"]}, (three,)),
        Shape("command/argv-in-text", f'subprocess.run(["mysql", "--password", "{four}", "orders"])', (four,)),
    ]


def _files() -> list[Shape]:
    """The files in which tools keep what they log in with."""
    auth, npm_auth, npm_password = encoded("alice:" + password()), encoded("ci:" + password()), encoded(password())
    key_data, tls_key = encoded("\n".join(KEY[:2])), encoded(password() + made(8))
    names = [
        "netrc",
        "netrc-lines",
        "pgpass",
        "pgpass-any",
        "my.cnf",
        "env",
        "git",
        "maven",
        "pip",
        "php",
        "jdbc",
        "ado",
        "composer",
    ]
    words = {name: password() for name in [*names, "toml", "nuget", "spaces", "yaml-spaces", "json-spaces"]}
    aws = made(40, BASE64)
    spaced = {name: f"correct horse {words[name]} staple" for name in ("spaces", "yaml-spaces", "json-spaces")}
    shapes = [
        ("docker-auth", json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": auth}}}), auth),
        ("docker-auth-object", {"auths": {"registry.internal": {"auth": auth}}}, auth),
        ("npmrc-auth", f"//npm.internal/:_auth={npm_auth}", npm_auth),
        ("npmrc-token", f"//npm.internal/:_authToken={made(8, LOWER_HEX)}-{npm_auth[:24]}", npm_auth[:24]),
        ("npmrc-password", f'//npm.internal/:_password="{npm_password}"', npm_password),
        ("netrc", f"machine api.internal login alice password {words['netrc']}", words["netrc"]),
        ("netrc-lines", f"machine api.internal\n  login alice\n  password {words['netrc-lines']}\n", words["netrc-lines"]),
        ("pgpass", f"db.internal:5432:orders:alice:{words['pgpass']}", words["pgpass"]),
        ("pgpass-any", f"*:*:*:alice:{words['pgpass-any']}", words["pgpass-any"]),
        ("my.cnf", f"[client]\nuser=root\npassword={words['my.cnf']}\n", words["my.cnf"]),
        ("env", f"DEBUG=1\nDB_PASSWORD={words['env']}\n", words["env"]),
        ("aws-credentials", f"[default]\naws_secret_access_key = {aws}\n", aws),
        ("git-credentials", f"https://alice:{words['git']}@git.internal", words["git"]),
        ("kubeconfig", f"users:\n- user:\n    client-key-data: {key_data}", key_data),
        ("maven-settings", f"<server><username>a</username><password>{words['maven']}</password></server>", words["maven"]),
        ("pip.conf", f"index-url = https://alice:{words['pip']}@pypi.internal/simple", words["pip"]),
        ("wp-config", f"define( 'DB_PASSWORD', '{words['php']}' );", words["php"]),
        ("jdbc", f"jdbc:postgresql://db/orders?user=app&password={words['jdbc']}", words["jdbc"]),
        ("ado", f"Server=db;Database=orders;User Id=sa;Password={words['ado']};", words["ado"]),
        ("quoted-with-spaces", f'password = "{spaced["spaces"]}"', spaced["spaces"]),
        ("yaml-with-spaces", f"db:\n  password: '{spaced['yaml-spaces']}'\n", spaced["yaml-spaces"]),
        ("json-with-spaces", json.dumps({"db": {"password": spaced["json-spaces"]}}, indent=2), spaced["json-spaces"]),
        ("composer", json.dumps({"http-basic": {"repo": {"username": "a", "password": words["composer"]}}}), words["composer"]),
        ("nuget", f'<add key="ClearTextPassword" value="{words["nuget"]}" />', words["nuget"]),
        ("secret-yaml", f"apiVersion: v1\nkind: Secret\ndata:\n  tls.key: {tls_key}\n", tls_key),
    ]  # fmt: skip
    return [Shape(f"file/{name}", payload, (secret,)) for name, payload, secret in shapes]


def _structures() -> list[Shape]:
    """Values under a telling key, which are no simple texts, and keys that are values themselves."""
    words = [password() for _ in range(14)]
    token, data = made(32), encoded(password() + "/" + made(6))
    return [
        Shape("structure/list", {"passwords": [words[0], words[1]]}, (words[0], words[1])),
        Shape("structure/object", {"password": {"value": words[2]}}, (words[2],)),
        Shape("structure/credentials", {"credentials": {"user": "alice", "secret_value": words[3]}}, (words[3],)),
        Shape("structure/secrets-by-name", {"secrets": {"orders": words[4], "billing": words[5]}}, (words[4], words[5])),
        Shape("structure/name-value", {"env": [{"name": "DB_PASSWORD", "value": words[6]}]}, (words[6],)),
        Shape("structure/name-value-ecs", {"Environment": [{"Name": "API_TOKEN", "Value": token}]}, (token,)),
        Shape("structure/key-value", {"vars": [{"key": "db_password", "value": words[7], "sensitive": True}]}, (words[7],)),
        Shape("structure/parameter", {"ParameterKey": "DbPassword", "ParameterValue": words[8]}, (words[8],)),
        Shape("structure/name-value-json", json.dumps([{"name": "DB_PASSWORD", "value": words[9]}]), (words[9],)),
        Shape("structure/name-value-yaml", f"env:\n  - name: DB_PASSWORD\n    value: {words[10]}\n", (words[10],)),
        Shape("structure/env-list", {"Env": ["PATH=/bin", f"DB_PASSWORD={words[11]}"]}, (words[11],)),
        Shape("structure/header-pair", {"headers": [["Authorization", f"Bearer {token}"]]}, (token,)),
        Shape("structure/secret-data", {"kind": "Secret", "data": {"dsn": data}, "metadata": {"name": "orders"}}, (data,)),
        Shape("structure/secret-string-data", {"kind": "Secret", "stringData": {"dsn": words[12]}}, (words[12],)),
    ]


def _urls() -> list[Shape]:
    """What opens a door by being in an address or a header."""
    token, signature, cookie = made(40), encoded(made(30)).replace("=", "%3D"), made(32)
    return [
        Shape("url/token-as-user", f"git clone https://{token}@git.internal/a/b.git", (token,)),
        Shape("url/token-with-oauth2", f"git clone https://oauth2:{token}@git.internal/a/b.git", (token,)),
        Shape("url/sas", f"https://a.blob.core.windows.net/c/x?sv=2023-01-03&se=2026-01-01&sig={signature}", (signature,)),
        Shape("url/aws-signature", f"https://b.s3.amazonaws.com/k?A=1&X-Amz-Signature={signature[:-6]}", (signature[:-6],)),
        Shape("url/access-token", f"GET https://api.internal/v1?access_token={token}&page=2", (token,)),
        Shape("url/slack-webhook", f"https://hooks.slack.com/services/T{made(8)}/B{made(8)}/{token[:24]}", (token[:24],)),
        Shape("url/discord-webhook", f"https://discord.com/api/webhooks/{made(18, DIGITS)}/{token}", (token,)),
        Shape("url/cookie", f"GET / HTTP/1.1\nCookie: theme=dark; session={cookie}\nAccept: */*", (cookie,)),
        Shape("url/set-cookie", f"Set-Cookie: sid={cookie}; Path=/; HttpOnly", (cookie,)),
        Shape("url/curl-cookie", f"curl -b 'session={cookie}' https://app.internal/", (cookie,)),
    ]  # fmt: skip


def _private() -> list[Shape]:
    """What somebody marked as private, also as other tools write the mark."""
    hidden = "the merger is on Friday"
    marks = {
        "plain": "<private>{}</private>",
        "upper-case": "<PRIVATE>{}</PRIVATE>",
        "never-closed": "<private>{}",
        "escaped-in-json": "\\u003cprivate\\u003e{}\\u003c/private\\u003e",
        "escaped-in-html": "&lt;private&gt;{}&lt;/private&gt;",
        "spaced": "< private >{}< / private >",
        "full-width": "\uff1cprivate\uff1e{}\uff1c/private\uff1e",
    }  # fmt: skip
    return [Shape(f"private/{name}", {"prompt": f"note: {text.format(hidden)}"}, (hidden,)) for name, text in marks.items()]


def _left() -> list[Shape]:
    """What no rule that is worth its false alarms can know."""
    one, two, three = password(), password(), password()
    legacy, words, pin = "s." + made(24), "correct horse battery staple", made(6, DIGITS)
    return [
        Shape("left/bare-words", f"passphrase is {words}", (words,)),
        Shape("left/prose", f"log in as alice with {one} and then", (one,)),
        Shape("left/base64-of-a-line", encoded(f"user=alice password={two}"), (encoded(f"user=alice password={two}"),)),
        Shape("left/reversed", f"rev: {TOKENS['github-classic'][::-1]}", (TOKENS["github-classic"][::-1],)),
        Shape("left/split-over-two-lines", f'a = "{three[:6]}" \\\n    "{three[6:]}"', (three[:6],)),
        Shape("left/vault-legacy-alone", f"the answer was {legacy} as before", (legacy,)),
        Shape("left/pin", f"enter {pin} at the door", (pin,)),
        Shape("left/sudo", f"echo '{one}' | sudo -S apt-get update", (one,)),
    ]


_UNSEEN = {
    *(f"token/{name}" for name in (
        "github-app", "gitlab-feed", "gitlab-scim", "gitlab-agent", "gitlab-mail", "google-access", "perplexity", "replicate",
        "grafana", "new-relic", "postman", "rubygems", "planetscale", "doppler", "figma", "supabase", "tailscale",
        "terraform-cloud",
        "azure-client-secret", "pulumi", "nvidia", "square")),
    "key/ssh2", "key/putty", "key/wireguard", "key/jwk", "key/quoted-in-mail",
}  # fmt: skip
_ALL = [*_tokens(), *_keys(), *_commands(), *_files(), *_structures(), *_urls(), *_private(), *_left()]
SHAPES = [shape for shape in _ALL if shape.name not in _UNSEEN]
UNSEEN = [shape for shape in _ALL if shape.name in _UNSEEN]
"""Not looked at while the rules were written: how far these reach beyond their examples."""


def _text(payload: object) -> str:
    return payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)


def _prefixed(payload: object, prefix: str) -> list[str]:
    return [prefix.format(number) + line for number, line in enumerate(_text(payload).split("\n"), 12)]


SURROUNDINGS: dict[str, Callable[[object], object]] = {
    "text": _text,
    "text in JSON in a text": lambda payload: {"stdout": json.dumps({"out": _text(payload)})},
    "Windows lines": lambda payload: _text(payload).replace("\n", "\r\n"),
    "indented": lambda payload: "\n".join(_prefixed(payload, "      ")),
    "added lines": lambda payload: "\n".join(_prefixed(payload, "+")),
    "lines of a patch": lambda payload: {"structuredPatch": [{"lines": [" before", *_prefixed(payload, "-"), " after"]}]},
    "read with numbers": lambda payload: {"file": {"content": "\n".join(_prefixed(payload, "{:6}→"))}},
    "printed with numbers": lambda payload: "\n".join(_prefixed(payload, "{:6}\t")),
}
"""What else may be around a shape; each is as likely as the shape itself."""
