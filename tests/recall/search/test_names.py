"""Names are found as people type them: in another case, in parts, with spaces for the signs, without the folder or the v."""

from __future__ import annotations

import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.tools import numbers, run_search

ASKED: dict[str, list[str]] = {
    "getOrCreateSession": [
        "getorcreatesession",
        "GETORCREATESESSION",
        "get or create session",
        "getOrCreateSession()",
        "createSession",
    ],
    "SeatPlanRenderer": ["seatplanrenderer", "seat plan renderer", "seatPlanRenderer", "seat_plan_renderer", "seat-plan-renderer"],
    "parseHTTPResponse": ["parsehttpresponse", "parse http response", "parse_http_response"],
    "src/auth/oauth.ts": [
        "oauth.ts",
        "auth/oauth.ts",
        "SRC/AUTH/OAUTH.TS",
        "src auth oauth",
        "oauth ts",
        "./src/auth/oauth.ts",
        "oauth",
    ],
    "ECONNRESET": ["econnreset", "Econnreset", "ECONNRESET:", "(ECONNRESET)"],
    "v4.2.6": ["4.2.6", "V4.2.6", "version 4.2.6", "v4.2.6?", "4.2.6."],
    "ERR_SEAT_TAKEN": ["err_seat_taken", "err seat taken", "seat taken", "ERR-SEAT-TAKEN", "errSeatTaken", "SEAT_TAKEN"],
    "billing.invoice_lines": ["invoice_lines", "invoice lines", "billing invoice lines", "BILLING.INVOICE_LINES", "invoiceLines"],
    "DB_POOL_SIZE": ["db_pool_size", "db pool size", "pool size", "dbPoolSize", "$DB_POOL_SIZE", "db-pool-size"],
    "#1234": ["1234", "issue 1234", "#1234?"],
    "KRB-142": ["krb-142", "krb 142", "KRB-142:"],
    "@scope/pkg": ["@SCOPE/PKG", "scope/pkg", "scope pkg"],
    "foo::barbaz": ["FOO::BARBAZ", "foo barbaz", "foo::barbaz()", "barbaz"],
    r"C:\work\printer\spool.ini": [
        "spool.ini",
        r"printer\spool.ini",
        "printer/spool.ini",
        r"c:\WORK\printer\spool.ini",
        "spool ini",
    ],
    ".github/workflows/ci.yml": ["ci.yml", "workflows/ci.yml", "github workflows ci", "github/workflows/ci.yml", "CI.YML"],
    "cache.redis.maxTtl": ["cache.redis.maxttl", "redis.maxTtl", "cache redis max ttl", "maxTtl", "redis.max_ttl"],
    "snake_case_thing": ["SNAKE_CASE_THING", "snake case thing", "snakeCaseThing", "snake-case-thing"],
    "kebab-case-thing": ["kebab case thing", "kebabCaseThing", "kebab_case_thing", "KEBAB-CASE-THING"],
    "shopOrders2Csv": ["shoporders2csv", "SHOPORDERS2CSV"],
    "--dry-run": ["dry-run", "dry run", "--dry-run=true"],
    "useSeatMap.test.tsx": ["useseatmap.test.tsx", "useSeatMap", "use seat map", "seatMap.test.tsx"],
    "utf-8": ["UTF-8", "utf 8"],
    "HTTP/2": ["http/2", "HTTP 2"],
    "0x7fffdead": ["0X7FFFDEAD", "0x7fffdead"],
    "node_modules/.bin/vite": ["node_modules", ".bin/vite", "node modules bin vite"],
    "orders.id": ["ORDERS.ID", "orders id"],
    "192.168.17.4": ["192.168.17.4", "192.168.17.4:8080"],
    "C++": ["c++", "C++"],
}
"""A name as it stands in a text, and how else it is asked for."""

DISTRACTORS = [
    "the session was closed and the list of orders was created",
    "get the seat and the plan of it",
    "a response of the parser over http",
    "the source of the authors",
    "auth for the shop ts",
    "a connection was reset",
    "version 4 of the client",
    "version 2.6 of the pool",
    "an error of the seats",
    "the seat is not taken yet by the plan",
    "billing of the lines",
    "invoice for the shop",
    "the db is new",
    "pool of threads",
    "the size of a page",
    "issue 12 of 34",
    "issue 999",
    "krb login",
    "142 rows",
    "the scope of a package",
    "foo said so",
    "work of the printer",
    "an ini file of the system",
    "workflows of the shop",
    "github is down",
    "ci is red",
    "yml files are fine",
    "redis was restarted",
    "the cache is warm",
    "max of the numbers",
    "ttl of a record",
    "a snake in a case",
    "the thing itself",
    "kebab for lunch",
    "the case is closed",
    "shop orders of today are late",
    "a dry summer",
    "run it again",
    "use the map of the venue",
    "a test of the tsx parser",
    "utf is a word",
    "http is down",
    "two of them",
    "node was upgraded",
    "modules are small",
    "a bin in the yard",
    "vite builds it",
    "orders without an id card",
    "8 of 10",
    "192 rows in 168 tables",
    "c is a letter",
    "2 csv files",
    "dead code",
]


@pytest.fixture
async def library(cast: Cast, make: Make) -> dict[str, int]:
    """The number of each name's observation."""
    for distractor in DISTRACTORS:
        await make.observation(
            project=cast.alice.project, title="Another thing was repaired", narrative=f"It was about {distractor} in the end."
        )
    return {
        name: (
            await make.observation(
                project=cast.alice.project, title="Another thing was repaired", narrative=f"It was about {name} in the end."
            )
        ).number
        for name in ASKED
    }


async def test_every_form_of_asking_finds_the_name_first(db: Db, cast: Cast, library: dict[str, int]):
    missed: list[str] = []
    for name, forms in ASKED.items():
        for form in [name, *forms]:
            page = await run_search(db, cast.alice, form, limit=5)
            if numbers(page)[:1] != [library[name]]:
                place = numbers(page).index(library[name]) + 1 if library[name] in numbers(page) else "not"
                missed.append(f"{form!r} finds {name!r} at place {place}")

    assert not missed, "\n".join(missed)
