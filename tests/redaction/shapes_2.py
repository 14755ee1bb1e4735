"""More shapes in which secrets turn up, from a table that was made without a look at the rules.

Nothing here is a secret. Each is made when the tests run.
"""

from __future__ import annotations

import json
import random

from tests.redaction.shapes import Shape, made

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


SHAPES_2 = [*_quoted(), *_cookies(), *_texts()]
