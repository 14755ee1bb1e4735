"""Secrets recognized by their place: a URL, header, cookie, file of logins, SQL statement, or argument of a command."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from cmserver.redaction.plausible import is_assigned_secret, is_basic, is_login, is_token_like, is_url_password
from cmserver.redaction.rule import REACH, Gate, Rule, pattern_rule, scan
from cmserver.redaction.spans import Span

_COOKIE = re.compile(
    r"cookie2?(?:\\{0,3}[\"'])?[ \t]{0,4}(?:[:=,]|,\s{0,20}\\{0,3}\"value\\{0,3}\":)[ \t]{0,4}(?:\[\s{0,20})?(?:\\{0,3}[\"'])?"
    r"([^\r\n\"'\\]{8,4096})",
    re.ASCII,
)
_CURL_COOKIE = re.compile(r"(?<=[ \t])(?:-b|--cookie)[ =]{0,2}\\?[\"']?([^\r\n\"'\\]{8,4096})", re.ASCII)
_CURL_REACH = 300
_PAIR = re.compile(r"([\w.$-]{1,60}+)=([^;,\s\"'&=][^;,\s\"'&]{5,2048}+)", re.ASCII)
_LOGIN_COOKIE = re.compile(r"sess|auth|sid|token|jwt|login|remember|csrf|xsrf", re.IGNORECASE)

_NETRC = re.compile(r"password[ \t]{1,8}([^\s\"'\\]{3,512})")
_NETRC_BEFORE = re.compile(
    r"(?:machine|login|account)[ \t]{1,8}[^\s:]{1,256}"
    r"(?:[ \t]{1,8}|[ \t]{0,8}(?:[\r\n]|\\[nr])[\s\d:|→>+-]{0,30})\Z|default[ \t]{1,8}\Z"
)
# The fields of ~/.pgpass, recognized by the port: other lines have numbers in that place, too.
_COLON = Gate(":", re.compile(r":(?:(?:54\d\d|64\d\d|\*):|(?<=\d:)A[\w-]{34})", re.ASCII))
_PGPASS = re.compile(r"(?<=[\w\]*]):(?:54\d\d|64\d\d|\*):[^\s:\"']{1,128}:[^\s:\"']{1,128}:((?:\\[:\\]|[^\s:\"'\\]){3,512})")
_SQL_VALUE = r"(?:'\\{1,2}''|\\{0,3}[\"'])([^'\"\\\r\n]{3,256})(?=\\{0,3}['\"])"
_SQL_PASSWORD = re.compile(r"password(?:\s{1,8}for\s{1,8}\S{1,100}\s{0,8}=)?(?:\s|\\n)?[ \t]{0,4}\(?[ \t]{0,2}" + _SQL_VALUE)
_SQL_BEFORE = re.compile(
    r"(?:create|alter)(?:\s|\\n){1,8}(?:role|user|login|group)\b|grant(?:\s|\\n)[^;]{1,160}\bto\b|set(?:\s|\\n){1,8}\Z|set(?:\s|\\n){1,8}password\b"
)
_SQL_IDENTIFIED = re.compile(
    r"identified(?:\s|\\n){1,8}(?:(?:with|via)\s{1,8}[\w'\"`\\]{1,64}\s{1,8})?(?:by|using|as)(?:\s|\\n){1,8}(?:password\s{0,4}\(?\s{0,4})?"
    + _SQL_VALUE
)
_SQL_REACH = 200
_QUERY = Gate(
    "=",
    re.compile(
        r"=(?=[\w%+/.~-]{16})(?:(?<=[?&;]sig=)|(?<=[sS]ignature=)|(?<=[?&]key=)|(?<=[?&]code=)|(?<=[?&]auth=)|(?<=[?&]hmac=)"
        r"|(?<=[?&]st=))",
        re.ASCII,
    ),
)
_SECRET_KIND = re.compile(r"kind:[ \t]{1,4}[\"']?secret\b")
_SECRET_DATA = re.compile(r"(?:string)?data:[ \t]*(?=[\r\n]|\\n)")
_MANIFEST_REACH = REACH // 2
_YAML_MEMBER = re.compile(
    r"(?>(?:[\r\n]|\\[rn])+)(?:[ \t]{0,8}\d{0,6}[ \t→:|+-]{0,8})[ \t]{2,16}"
    r"[\"']?[\w./-]{1,256}[\"']?:[ \t]{1,8}[\"']?([^\s\"'\\|>]{3,}+)"
)

JWK_TYPE = "kty"
JWK_SECRETS = frozenset({"d", "p", "q", "dp", "dq", "qi", "k"})
_JWK = re.compile(r"\bkty\b", re.ASCII)
_JWK_SECRET = re.compile(
    rf"[\"'{{,\s](?:{'|'.join(sorted(JWK_SECRETS))})\\{{0,3}}[\"']?\s{{0,4}}:\s{{0,4}}\\{{0,3}}[\"']([\w+/=-]{{20,}})", re.ASCII
)
_JWK_REACH = REACH // 2

# Between two arguments, also in a list in code: `"-p", "..."`.
_ARGUMENT_GAP = r"(?:[ \t]|\\?[\"'],?[ \t]?)"
_ARGUMENT = r"(?:\\?[\"'])?([^\s\"',;|&<>()\\]{4,512})"
_PASSWORD_OPTIONS = (
    # Command, and its short option with everything before the password.
    ("sshpass", rf"-p{_ARGUMENT_GAP}{{0,4}}"),
    ("login", rf"-p{_ARGUMENT_GAP}{{0,4}}"),
    ("mysql", r"-p(?:\\?[\"'])?(?=\S)"),
    ("mariadb", r"-p(?:\\?[\"'])?(?=\S)"),
    ("redis-cli", rf"-a{_ARGUMENT_GAP}{{0,4}}"),
    ("mongo", rf"-p{_ARGUMENT_GAP}{{1,4}}"),
    ("ldap", rf"-w{_ARGUMENT_GAP}{{0,4}}"),
    ("sqlcmd", rf"-P{_ARGUMENT_GAP}{{0,4}}"),
    ("zip", rf"-P{_ARGUMENT_GAP}{{0,4}}"),
    ("7z", r"-p(?:\\?[\"'])?(?=\S)"),
    ("smbclient", rf"-U{_ARGUMENT_GAP}{{0,4}}[^\s%]{{1,128}}%"),
    ("http", rf"-a{_ARGUMENT_GAP}{{1,4}}[^\s:]{{1,128}}:"),
)
_COMMAND_REACH = 400
"""Distance of a command before its option. The search goes back from the option, so that many commands cost nothing."""
_COMMANDS = tuple(
    (command, re.compile(rf"\b{command}", re.ASCII), re.compile(rf"(?<=[ \t\"',]){option}{_ARGUMENT}", re.ASCII))
    for command, option in _PASSWORD_OPTIONS
)
_SHORT_OPTION = Gate("-", re.compile(r"-(?<=[ \t\"',\n]-)[pPawU](?=[\s\w\"'$!-/:-@=,\\])", re.ASCII))

_PASS_SOURCE = re.compile(rf"-pass(?:in|out|word)?{_ARGUMENT_GAP}{{1,4}}pass:([^\s\"']{{1,512}})")
_BASIC_FILE = re.compile(rf"htpasswd[ \t]+-[a-z]*b[a-z]*[ \t]+\S{{1,256}}[ \t]+\S{{1,128}}[ \t]+{_ARGUMENT}", re.ASCII)

_PIPED = re.compile(
    r"\|[ \t]{0,4}(?:sudo[ \t]+-S\b|[\w./-]{1,64}[ \t][^\n|]{0,300}?(?:-stdin\b|--with-token\b)|chpasswd\b|su\b)", re.ASCII
)
_ECHOED = re.compile(
    r"(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|\\?[\"']%s(?:\\+n)?\\?[\"'][ \t]+)?"
    r"(?P<quote>\\?[\"'])?(?P<echoed>[^\n\"'|]{4,512}?)(?P=quote)?[ \t]*\Z",
    re.ASCII,
)
_ECHOED_BARE = re.compile(r"(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?(?P<echoed>[^\s\"'|]{4,512})[ \t]*\Z", re.ASCII)


def _find_cookie_headers(text: str, low: str) -> Iterator[Span]:
    for header in scan(_COOKIE, low):
        yield from find_cookies(text, *header.span(1))


def _find_curl_cookies(text: str, low: str) -> Iterator[Span]:
    """`curl -b "sid=..."`."""
    for option in scan(_CURL_COOKIE, low):
        earliest = max(0, option.start() - _CURL_REACH)
        if low.rfind("curl", low.rfind("\n", earliest, option.start()) + 1 or earliest, option.start()) >= 0:
            yield from find_cookies(text, *option.span(1))


def find_cookies(text: str, start: int, end: int) -> Iterator[Span]:
    """The values in `Cookie` or `Set-Cookie` headers that log somebody in."""
    for pair in scan(_PAIR, text, start, end):
        if is_secret_cookie(pair[1], pair[2]):
            yield Span(*pair.span(2), "cookie")


def is_secret_cookie(name: str, value: str) -> bool:
    """Whether a cookie logs somebody in, by its name or by its value."""
    if _LOGIN_COOKIE.search(name) and is_assigned_secret("password", value, explicit=False):
        return True
    return is_token_like(value)


def _find_netrc(text: str, low: str) -> Iterator[Span]:
    """`machine ... login ... password ...`."""
    for login in scan(_NETRC, low):
        before = low[max(0, login.start() - 310) : login.start()]
        if _NETRC_BEFORE.search(before) and is_assigned_secret("password", text[login.start(1) : login.end(1)], explicit=True):
            yield Span(*login.span(1), "password")


def _find_pgpass(text: str, _low: str) -> Iterator[Span]:
    for line in scan(_PGPASS, text):
        if is_assigned_secret("password", line[1], explicit=True):
            yield Span(*line.span(1), "password")


def _find_sql_passwords(text: str, low: str) -> Iterator[Span]:
    """`ALTER ROLE alice PASSWORD '...'`, `CREATE USER alice IDENTIFIED BY '...'`."""
    for match in itertools.chain(scan(_SQL_PASSWORD, low), scan(_SQL_IDENTIFIED, low) if "identified" in low else ()):
        if _SQL_BEFORE.search(low, max(0, match.start() - _SQL_REACH), match.start()):
            value = text[match.start(1) : match.end(1)]
            is_parameter = value.startswith(":") and value[1:].isidentifier()
            if not is_parameter and is_assigned_secret("password", value, explicit=True):
                yield Span(*match.span(1), "password")


def _find_kubernetes_data(text: str, low: str) -> Iterator[Span]:
    """The values below `data` and `stringData` of a Kubernetes Secret."""
    done = read_to = 0  # nothing is read twice, whatever is repeated
    for kind in scan(_SECRET_KIND, low):
        earliest = max(0, kind.start() - _MANIFEST_REACH)
        start = max(done, earliest, low.rfind("---", earliest, kind.start()))
        end = low.find("---", kind.end(), kind.end() + _MANIFEST_REACH)
        done = max(done, end if end >= 0 else min(len(low), kind.end() + _MANIFEST_REACH))
        for data in scan(_SECRET_DATA, low, start, done):
            if data.end() < read_to:
                continue
            read_to = data.end()
            while member := _YAML_MEMBER.match(text, read_to):
                if is_assigned_secret("password", member[1], explicit=True):
                    yield Span(*member.span(1), "secret")
                read_to = member.end()


def _find_jwk(text: str, _low: str) -> Iterator[Span]:
    """The secret members of a JSON Web Key, on both sides of its type."""
    done = 0  # nothing is read twice
    for key in scan(_JWK, text):
        start, done = max(done, key.start() - _JWK_REACH), max(done, key.end() + _JWK_REACH)
        for secret in scan(_JWK_SECRET, text, start, min(done, len(text))):
            yield Span(*secret.span(1), "private_key")


def _find_short_options(text: str, _low: str) -> Iterator[Span]:
    """Passwords of commands with a short option for them: `docker login -p`, `mysql -p...`, `sshpass -p`."""
    for command, program, option in _COMMANDS:
        if command not in text:
            continue
        for match in scan(option, text):
            start = match.start()
            earliest = max(0, start - _COMMAND_REACH)
            line_start = max(earliest, *(text.rfind(end, earliest, start) + 1 for end in "\n|;"))
            if program.search(text, line_start, start) and is_assigned_secret("password", match[1], explicit=True):
                yield Span(*match.span(1), "password")


def _find_pass_sources(text: str, _low: str) -> Iterator[Span]:
    """`openssl ... -passin pass:...`, `htpasswd -b file user ...`."""
    for pattern in (_PASS_SOURCE, _BASIC_FILE) if "-pass" in text or "htpasswd" in text else ():
        for match in scan(pattern, text):
            if is_assigned_secret("password", match[1], explicit=True):
                yield Span(*match.span(1), "password")


def _find_piped(text: str, _low: str) -> Iterator[Span]:
    """What is piped to a command that reads a password: `echo ... | docker login --password-stdin`."""
    for pipe in scan(_PIPED, text):
        earliest = max(0, pipe.start() - 600)
        start = max(earliest, *(text.rfind(end, earliest, pipe.start()) + 1 for end in "\n|"))
        before = text[start : pipe.start()]
        echoed = _ECHOED.search(before) or _ECHOED_BARE.search(before)
        if echoed and is_assigned_secret("password", echoed["echoed"], explicit=True):
            yield Span(start + echoed.start("echoed"), start + echoed.end("echoed"), "password")


PLACE_RULES = (
    pattern_rule("bearer_token", "bearer", r"bearer[ \t]{1,8}([a-z0-9._~+/=-]{12,})", is_token_like, lowered=True),
    pattern_rule("basic_auth", "basic", r"basic[ \t]{1,8}([a-z0-9+/]{6,}={0,2})", is_basic, lowered=True),
    pattern_rule(
        "basic_auth",
        "auth",
        r"auth(?:\\{0,3}[\"'])?[ \t]{0,4}[:=][ \t]{0,4}(?:\\{0,3}[\"'])?([a-z0-9+/]{8,}={0,2})",
        is_login,
        lowered=True,
    ),
    pattern_rule("url_password", "://", r"://[^\s/:@\"'<>\\]{0,512}:([^\s/\"'<>\\]{1,1024})@", is_url_password),
    pattern_rule("url_password", "://", r"://([^\s/:@\"'<>\\]{16,512})(?::x-oauth-basic)?@", is_token_like),
    pattern_rule(
        "password",
        "curl",
        r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]{0,3}\\?[\"']?[^\s:\"'\\]{1,256}:([^\s\"'\\]{1,512})",
        is_url_password,
        lowered=True,
    ),
    pattern_rule("telegram_token", ":A", r"(?<!\d)\d{6,12}:A[\w-]{34,}", gate=_COLON),
    pattern_rule(
        "signature",
        "=",
        r"(?:[?&;](?i:sig|key|code|auth|hmac|st|x-amz-signature|x-goog-signature)|signature|Signature)=([\w%+/.~-]{16,}={0,2})",
        is_token_like,
        gate=_QUERY,
    ),
    Rule(("cookie",), True, _find_cookie_headers),
    Rule(("curl",), True, _find_curl_cookies),
    Rule(("pass",), True, _find_netrc),
    Rule(("password", "identified"), True, _find_sql_passwords),
    Rule(("",), False, _find_pgpass, _COLON),
    Rule(("secret",), True, _find_kubernetes_data),
    Rule((JWK_TYPE,), False, _find_jwk),
)
COMMAND_RULES = (
    Rule(("",), False, _find_short_options, _SHORT_OPTION),
    Rule(("pass",), True, _find_pass_sources),
    Rule(("",), False, _find_piped, Gate("|", _PIPED)),
)
