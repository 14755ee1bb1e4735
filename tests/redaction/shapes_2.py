"""More shapes in which secrets turn up, from a table that was made without a look at the rules.

Nothing here is a secret. Each is made when the tests run.
"""

from __future__ import annotations

import base64
import json
import random

from tests.redaction.shapes import BODY, KEY, TOKENS, Shape, made

_random = random.Random(207)

_HUMPS = "qRvTzXkWbNcPdMfLgKhJ"


def letters(size: int) -> str:
    """As a machine chooses them where no digit happened to be among them: both cases, no words."""
    return "".join(_random.choices(_HUMPS, k=size - 4)) + "zQxV"


def _quoted() -> list[Shape]:
    """Words between quotes under a telling name. The last is no word."""
    last = {name: made(3) + "4" + made(3) for name in ("shell", "json", "yaml", "text-in-text")}
    spoken = "my hedge sings again"
    return [
        Shape("quoted/shell", f"PGPASSWORD='my secret pass {last['shell']}' psql", (last["shell"],)),
        Shape("quoted/shell-words", f"PGPASSWORD='{spoken}' psql", (spoken,)),
        Shape("quoted/json", json.dumps({"password": f"let me in {last['json']}"}), (last["json"],)),
        Shape("quoted/yaml", f"password: 'this is it {last['yaml']}'", (last["yaml"],)),
        Shape("quoted/text-in-text", json.dumps(json.dumps({"password": f"let me in {last['text-in-text']}"})),
              (last["text-in-text"],)),
    ]  # fmt: skip


def _cookies() -> list[Shape]:
    """Cookies as members of a payload."""
    one = made(32)
    value = f"theme=dark; connect.sid={one}"
    payloads: dict[str, object] = {
        "header": {"headers": {"Cookie": value}},
        "header-set": {"headers": {"Set-Cookie": f"sid={one}; Path=/; HttpOnly"}},
        "header-set-list": {"headers": {"set-cookie": [f"sid={one}; Path=/", "theme=dark"]}},
        "header-by-name": {"headers": [{"name": "Cookie", "value": value}]},
        "by-name": {"cookies": {"sid": one, "theme": "dark"}},
        "browser": {"cookies": [{"name": "sid", "value": one, "domain": "app.internal", "path": "/"}]},
    }
    return [Shape(f"cookie/{name}", payload, (one,)) for name, payload in payloads.items()]


def _texts() -> list[Shape]:
    texts = {
        # Letters only.
        "letters/my.cnf": ("[client]\nuser=root\npassword={}", letters(24)),
        "letters/xml": ("<password>{}</password>", letters(16)),
        "letters/connection-string": ("Server=h;Database=d;User Id=sa;Password={};", letters(16)),
        "letters/properties": ("spring.datasource.password={}", letters(16)),
        "letters/header": ("curl -H 'X-Api-Key: {}' https://api.internal", letters(32)),
        "letters/helm": ("helm upgrade orders --set auth.password={}", letters(24)),
        "letters/padded": ("//npm.internal/:_password={}=", letters(19)),
        "letters/cookie": ("curl -b 'session={}' https://app.internal", letters(32)),
        "letters/attribute": ('<add key="ApiKey" value="{}"/>', letters(24)),
        # Statements of databases.
        "sql/alter-role": ("psql -c \"ALTER ROLE alice PASSWORD '{}'\"", made(12)),
        "sql/create-user": ("create user alice with login encrypted password '{}';", made(12)),
        "sql/shell-quotes": ("psql -c 'ALTER USER alice PASSWORD '\\''{}'\\'''", made(12)),
        "sql/identified": ("mysql -e \"CREATE USER b IDENTIFIED BY '{}'\"", made(12)),
        "sql/identified-with": ("ALTER USER b IDENTIFIED WITH caching_sha2_password BY '{}';", made(12)),
        "sql/set-password": ("SET PASSWORD FOR 'b'@'%' = PASSWORD('{}');", made(12)),
        # A name and a value, with a space between them.
        "setting/dockerfile": ("FROM base\nENV SECRET_TOKEN {}\nUSER app", made(24)),
        "setting/dockerfile-short-name": ("ENV TOKEN {}", made(24)),
        "setting/setx": ("setx API_TOKEN {}", made(24)),
        "setting/setx-machine": ('setx /M DB_PASSWORD "{}"', made(12)),
        "setting/setenv": ("setenv DB_PASSWORD {}", made(12)),
        "setting/fish": ("set -gx API_TOKEN {}", made(24)),
        "setting/github": ("gh secret set DEPLOY_KEY --body {}", made(24)),
        "setting/aws": ("aws secretsmanager create-secret --name orders --secret-string {}", made(24)),
        "setting/terraform": ('variable "db_password" {\n  type = string\n  default = "{}"\n}', made(24)),
        # Prose that announces it.
        "prose/use": ("use the password {} for staging", made(30)),
        "prose/is": ("my api key is {}, please use it", made(30)),
        "prose/is-hexadecimal": ("The API key is {}.", made(31, "0123456789abcdef") + "a"),
        "prose/was": ("the token for staging was `{}`", made(24)),
        "prose/colon": ("API key: {}", made(30)),
        # And tokens.
        "token/1password": ("{}", "ops_" + "eyJ" + made(120)),
    }  # fmt: skip
    return [Shape(name, {"stdout": text.replace("{}", secret)}, (secret,)) for name, (text, secret) in texts.items()]


def _jwk() -> list[Shape]:
    """JSON Web Keys: only some members are secret, and most names have one letter."""
    one = made(43)
    rsa = {"kty": "RSA", "n": made(342), "e": "AQAB", **dict.fromkeys(("d", "p", "q", "dp", "dq", "qi"), one)}
    okp = {"kty": "OKP", "crv": "Ed25519", "x": made(43), "d": one}
    texts: dict[str, object] = {
        "object": rsa,
        "set": json.dumps({"keys": [{"d": one, "kty": "EC", "crv": "P-256", "x": made(43), "y": made(43)}]}, indent=2),
        "symmetric": {"stdout": json.dumps({"kty": "oct", "k": one, "alg": "HS256"})},
        "text-in-text": json.dumps(json.dumps(okp)),
        "code": f"const key = {{kty: 'RSA',\n  qi: '{one}'}}",
    }
    return [Shape(f"jwk/{name}", payload, (one,)) for name, payload in texts.items()]


def _split() -> list[Shape]:
    """Secrets that lie in two lines, or two texts that a program puts together."""
    token, word, key = TOKENS["github-classic"], made(14), made(48)
    halves = {"T": (token[:20], token[20:]), "W": (word[:7], word[7:]), "K": (key[:24], key[24:])}
    texts = {
        "shell": 'export T="{}\\\n{}"',
        "python": 't = "{}" \\\n    "{}"',
        "brackets": 't = (\n    "{}"\n    f"{}"\n)',
        "plus": 'const t = "{}" +\n  "{}";',
        "plus-in-one-line": 'const t = "{}" + "{}";',
        "plus-first": "const t = '{}'\n  + '{}';",
        "point": "$t = '{}' .\n  '{}';",
        "ampersand": 't = "{}" & _\n  "{}"',
        "windows": 't = "{}" +\r\n    "{}"',
        "escaped": json.dumps('t = "{}" \\\n    "{}"'),
        "escaped-twice": json.dumps(json.dumps('t = (\n    "{}"\n    "{}")')),
        "added-lines": '+t = "{}" \\\n+    "{}"',
        "read-with-numbers": '  12→t = "{}" +\n  13→    "{}"',
        "W-python": 'password = "{}" \\\n    "{}"',
        "W-plus": 'password: "{}" +\n    "{}",',
        "W-brackets": 'PASSWORD = (\n    "{}"\n    "{}"\n)',
        "W-next-line": 'password =\n    "{}{}"',
        "W-continued": 'password = \\\n    "{}{}"',
        "W-yaml-folded": "password: >-\n    {}{}\nnext: a",
        "W-yaml-literal": "  db_password: |\n    {}{}\n",
        "W-url": 'url = "https://alice:" \\\n  "{}{}@host/x"',
        "W-mysql": "mysql -h db \\\n  -u root \\\n  -p{}{} orders",
        "W-docker": "docker login \\\n  -u alice \\\n  -p {}{} reg",
        "W-flag": "helm login --username a --password \\\n   {}{} reg",
        "K-yaml-continued": '  token: "{}\\\n    {}"\n',
        "K-bearer": 'curl -H "Authorization: Bearer \\\n{}{}"',
        "K-go": 'token := "{}" +\n\t"{}"',
        "K-aws": 'aws_secret_access_key = "{}" \\\n "{}"',
    }
    shapes: list[Shape] = []
    for name, text in texts.items():
        first, second = halves[name[0] if name[0] in halves else "T"]
        shapes.append(Shape(f"split/{name}", {"stdout": text.replace("{}", first, 1).replace("{}", second)}, (first, second)))
    return shapes


def _wrapped() -> list[Shape]:
    """Tokens in lines of 76 characters, and keys in texts of one line each."""
    jwt, pem = _lines(TOKENS["jwt"]), _lines(base64.b64encode("\n".join(KEY).encode()).decode())
    shapes: list[tuple[str, object, list[str]]] = [
        ("jwt", "\n".join(jwt), jwt[:-1]),
        ("jwt-escaped", json.dumps({"out": "\n".join(jwt)}), jwt[:-1]),
        ("pem-in-base64", "\r\n".join(pem), pem[:-1]),
        ("pem-in-base64-escaped", json.dumps({"out": "\n".join(pem)}), pem[:-1]),
        ("pem-in-texts", "k = '" + "\\n' .\n  '".join(KEY) + "';", BODY),
        ("pem-continued", 'k = "' + "\\n\\\n".join(KEY) + '"', BODY),
    ]
    return [Shape(f"wrapped/{name}", payload, tuple(secrets)) for name, payload, secrets in shapes]


def _lines(text: str) -> list[str]:
    return [text[start : start + 76] for start in range(0, len(text), 76)]


SHAPES_2 = [*_quoted(), *_cookies(), *_texts(), *_jwk(), *_split(), *_wrapped()]
