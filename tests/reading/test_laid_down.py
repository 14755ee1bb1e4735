"""What a user lays down for good is told from what is asked for once, from talk, and from what is pasted."""

from __future__ import annotations

import pytest

from cmserver.reading.laid_down import read_rules
from tests.growth import grows_too_fast
from tests.table import try_rows


def rules(prompt: str) -> list[str]:
    return [rule.text for rule in read_rules(prompt)]


@try_rows(
    "prompt",
    [
        "never use floats for money, we agreed on integer cents",
        "we deploy with `make deploy-eu`, never with the github action, remember that",
        "from now on write the changelog in English",
        "Please always run the linter before you commit",
        "remember: the staging database is shared with the other team",
        "we don't mock the database in this repo",
        "Every migration must have a way back.",
        "commit messages must follow the ticket's number",
        "do not use lodash anymore, we have es2022",
        "Nobody may ever push to main: always open a pull request, even for a typo",
        "No new dependencies without asking me first",
        "You must never touch the vendor folder",
        "New thing for this repo: no default exports",
        "New rule: a pull request has one topic",
        "Convention: all Redis keys begin with ordo",
        "When CI is red, never merge.",
        "ab jetzt gilt: kein Utc::now() direkt in der Library",
        "Bitte nie auf main pushen",
        "Beträge immer in Cent speichern",
        "Wir pushen nie direkt auf main",
        "Merk dir: die Testdatenbank gehört dem anderen Team",
        "Migrationen dürfen nie Spalten löschen",
        "désormais on écrit les messages de commit en anglais",
        "n'utilise jamais de float pour les montants",
        "il ne faut jamais toucher au dossier vendor",
        "on ne pousse jamais sur main",
        "a partir de ahora, los mensajes de commit van en inglés",
        "nunca subas nada a main sin revisión",
        "Every change to the parser gets a fuzz run, except in the samples.",
        "Nothing is merged without a green build.",
        "The signing keys are off limits, no exceptions",
        "we decided to store prices in cents",
        "We no longer deploy by hand",
        "btw only Kim deploys to the plant",
        "Run the linter before every push",
        "whenever you touch the schema, regenerate the client",
        "Alle Anfragen laufen über den Proxy, außer die von /health.",
        "Released wird nur dienstags",
        "The archive keeps raw prices unless the customer opted out",
        "Les exports partent la nuit, sauf ceux du siège",
        "Auf dem Cluster wird grundsätzlich nichts von Hand geändert",
        "Die alte Tabelle ist tabu, da hängt der Export dran",
        "wir mocken die Datenbank nicht mehr",
        "Du coup on arrête de livrer le vendredi",
        "On n'écrit plus de tests sans nom",
        "Tant que j'y pense : chaque route doit passer le contrôle, sauf /health.",
        "Il est interdit de pousser sur main",
        "Todas las consultas pasan por la réplica, salvo las de pagos.",
        "nada de consolas en el código",
        "No se despliega los viernes, salvo parches",
        "bueno, ya no usamos moment",
    ],
)
def test_a_rule_is_kept_in_the_users_own_words(prompt: str):
    assert rules(prompt) == [prompt]


@try_rows(
    "prompt",
    [
        "hello",
        "why does it always fail on Mondays?",
        "the nightly job never finishes, please look",
        "don't change anything yet",
        "never mind, I found it",
        "fix the failing test in tests/test_money.py",
        "der Test schlägt immer fehl",
        "le test échoue toujours",
        "we don't know why this fails",
        "This server must be down, can you check it",
        "The test must have failed because of x",
        "The button must be blue",
        "Must be a typo somewhere",
        "How come we never see this error.",
        "In the future it could be nice to add x",
        "remember when we fixed the login bug",
        "we decided nothing yesterday, what now",
        "never do that for now, the freeze ends on Monday",
        "go ahead",
    ],
)
def test_questions_complaints_and_single_requests_lay_nothing_down(prompt: str):
    assert rules(prompt) == []


@try_rows(
    "prompt",
    [
        "Ben thinks we should always rebase, I don't care",
        "maybe we should never have split the repo",
        "she: always squash, me: never. no conclusion",
        "imagine we always deployed from a laptop again",
        "my old boss used to say: never deploy on a Friday. Anyway, is the plan clean?",
        "sure, always push straight to prod, what could go wrong",
        "I never got the point of monorepos",
        "we always argue about this",
        "what if we never cached anything and see",
        "never again will I touch helm lol",
        "Rule number one: never wake the build server. 😄 So, why is it slow?",
        "they always ship on Fridays over there and nothing breaks",
        "Eigentlich müsste man immer alles in UTC ablegen, aber das bereden wir am Dienstag.",
        "Tobias meint, wir sollten nie wieder squashen",
        "vielleicht künftig alles in einem Repo, mal sehen",
        "on pourrait désormais tout mettre dans un seul dépôt, je réfléchis",
        "Nathalie dit qu'il ne faut jamais regarder la date",
        "ce simulateur ne démarre jamais du premier coup",
        "claro que sí, nunca documentes nada, jajaja",
        "creo que siempre tarda tanto los lunes",
        "great idea, from now on we deploy from Dave's laptop",
        "if we ever rewrite this we must never use xml again",
        "suppose every request always carried a tenant id. would that help?",
        "the dialog says Always allow, can you find where it comes from",
        "change the label to Never show again",
        "rename the button from Always ask to Ask every time",
        "every release must break something, it's tradition at this point",
        "our intern believes tests must never be deleted. cute",
        "never have I ever seen a stack trace this long",
        "Always fun to debug timezones. Anyway, what is wrong in parse.py",
        "we never finished that migration did we",
        "Always on Mondays, the build dies",
        "remember that time the db was dropped",
        "the docs claim you must always call close(), is that so",
        "we always said we would clean this up",
        "no one must know lol",
        "in the future we might all write rust",
        "nobody ever reads these logs",
        "that must never have worked",
        "I'd never do it like that but ok",
        "people always forget the lock file",
        "you never answer my question",
        "you always do this. just fix it",
        "they must have changed the api",
        "everything must go, said the ceo about the old servers",
        "All tests must be green they said. It will be fun they said.",
        '"never trust the client" is what my professor used to repeat',
        "so the policy is: nobody knows. fine",
        "from now on I'm not touching css, it's cursed",
        "new rule: whoever breaks the build buys cake haha",
        "as a rule of thumb how big should a chunk be",
        "as a rule interns break things",
        "we don't have staging here",
        "we only have two people here",
        "Never a dull moment with this repo",
        "never thought i'd see cobol here",
        "we should never say never",
        "It's always DNS",
        "Always blame the network, that's what they teach you",
        "the error text is: You must never close this window. where is it",
        "Must always be something",
        "immer wieder derselbe Fehler, ich kann nicht mehr",
        "nie im Leben ist das ein Cachefehler",
        "Immer diese Zeitzonen",
        "wir machen das immer so, sagt Jens. Stimmt das?",
        "kein Mensch kann das lesen",
        "künftig fliegen wir alle zum Mars",
        "ab jetzt wird alles besser, sagt der Vertrieb",
        "Der Text auf dem Button ist: Nie wieder fragen",
        "wir haben das noch nie getestet",
        "Man darf nie aufhören zu träumen",
        "in zukunft wird das wohl die KI machen",
        "toujours la même erreur, je craque",
        "jamais vu un truc pareil",
        "on ne comprend jamais rien à ces logs",
        "le client veut toujours tout pour hier",
        "désormais je bois du thé",
        "on a toujours fait comme ça, dit Paul",
        "siempre igual, se cae los lunes",
        "nunca he visto algo así",
        "siempre que abro el log se cuelga",
        "el mensaje dice: nunca apague el equipo. dónde está?",
        "what would happen if we always rebuilt the index",
        "feels like every PR must touch this file",
        "wouldn't it be nice to never wait for CI",
        "the team lead wants us to always pair, not sure yet",
        "I read that you must never store dates as strings",
        "somebody on the forum wrote: always pin your deps",
        "half of us say always squash, the other half never",
        "Legend has it one must never restart host b2",
        "so we never ship then? fun",
        "always good to see green",
        "why not always cache it",
        "can't we just never delete anything",
        "I keep telling them to never push on fridays, nobody listens",
        "mein Vater sagte immer: nie am Freitag deployen",
        "eigentlich sollten wir nie ohne Review mergen, macht aber keiner",
        "Every test needs ten minutes now",
        "all requests go to the wrong host",
        "nobody reviews anything without three reminders",
        "only Dave can break a build twice",
        "the tests pass except two, have a look",
        "delete all of them except the config",
        "die Tests laufen außer zweien",
        "every PR of mine gets stuck, I wonder why",
        "we decided to have lunch, back in an hour",
        "we no longer know what it does",
        "whenever you look, it works",
        "Alle Requests gehen seit gestern ins Leere",
        "grundsätzlich ja, aber lass uns das Montag besprechen",
        "wir wissen nicht mehr, woran es liegt",
        "es wird immer langsamer",
        "on ne comprend plus rien dans ce module",
        "tous les appels vont dans le mur depuis hier",
        "todas las peticiones van al host viejo desde ayer",
        "nada de esto tiene sentido",
        "ya no sabemos nada",
        "Hätten wir mal immer Backups gemacht",
        "Jonas suggested that from now on we only use Postgres. Mia disagreed. Show me the schema",
        "Marta proposed that all services must use gRPC. I'm against. We park it",
        "So: from now on no deploys on Mondays, or only then. Nothing decided yet. Is the queue empty",
        "never seen that before, what is ECONNRESET",
        "Rule of thumb from university: every function must fit on a screen. Show me the longest one",
        "our policy: whatever Bob feels like. Seriously now, does the retry work",
        "So the rule is no rule, as Zoe put it. Rename the handler",
        "note for later: buy milk. And now explain the lexer",
        "Regel Nummer 7: nie ohne Kaffee. So, jetzt der Importer",
        "Ab sofort alles in Kotlin, oder doch nicht. Noch nichts entschieden. Wie groß ist das Modul",
        "Notre règle : celui qui casse le build paie les croissants. Bon, regarde l'import",
        "Désormais tout en Rust ? Inès oui, Paul non, rien de décidé. Regarde les logs",
        "Carlos propone que todos los PR lleven captura, yo paso. Mira el log",
        "Trips like these are great - always full of surprises",
        "Always staying on the old version, that team",
    ],
)
def test_talk_lays_nothing_down(prompt: str):
    assert rules(prompt) == []


@try_rows(
    ("prompt", "found"),
    [
        ("Never use tabs here.\n\n> always use tabs\n\nis what the old guide says.", ["Never use tabs here."]),
        ("Look at this log:\n\n2026-11-01 12:00:01 ERROR never retry this request\n2026-11-01 12:00:02 WARN  always on", []),
        ('the old wiki says "never insert more than 100 rows at once", true?', []),
        ("> always restart the server\nwhat does this mean", []),
        ("```\nassert always(x) is never(y)\n```\nexplain this", []),
        ("Fix this:\n\n# Export crashes\n\n1. Always open the page first.\n2. Never click cancel.", []),
        ("Please look at this report:\n\nTitle: Crash\n\n### Steps\n1. Always start empty\n2. Never save", []),
        ("Shorten this AGENTS.md:\n\n# Agents\nAlways run all tests. From now on use bun.", []),
        ("Add a test with the sentence 'From now on always use tabs' as input.", []),
        ("Add a test for “never trust the clock, always ask the server”.", []),
        ("What do they want?\n\nSubject: Sensor heads\n\nNever power the head with its cap on.", []),
        ("This is what they wrote:\nAlways let the unit settle.\nNever open it.", []),
        ("Translate the text below.\n\nFrom now on all visitors must always wear a badge in the whole building.", []),
        ("anna: never rebase a shared branch\nben: always rebase\nwho is right", []),
        (
            "Always answer in English. Here is the mail:\n\nBitte nie auf main pushen, und immer erst fragen.",
            ["Always answer in English."],
        ),
        ("see the output\n$ make always\nERROR: never do this\nthanks", []),
        ("| always | never |\n|---|---|\n| use a | use b |\nfill in the table", []),
        ("From now on use bun.\n\n```\nnpm ci\n```\n\nThe old one was:\n\n> always use npm", ["From now on use bun."]),
        ("Here is our guide. From now on follow it:\n\n# Guide\nNever use var.", []),
    ],
)
def test_what_is_pasted_or_quoted_lays_nothing_down_and_what_stands_beside_it_does(prompt: str, found: list[str]):
    assert rules(prompt) == found


@try_rows(
    ("prompt", "found"),
    [
        ("Rules for this repo:\n- pnpm only\n- no default exports", ["pnpm only", "no default exports"]),
        ("Rules for this repo:\n\n1. pnpm only\n2. tests beside the code", ["pnpm only", "tests beside the code"]),
        (
            "House rules, please stick to them:\n* one effect per file\n* half precision\nNow: port the haze.",
            ["one effect per file", "half precision"],
        ),
        ("Thanks. Our conventions:\n- **money**: integer cents\n- dates in UTC", ["money: integer cents", "dates in UTC"]),
        ("From now on:\n- squash\n- sign your commits", ["squash", "sign your commits"]),
        ("Never:\n- push to main", ["push to main"]),
        ("Unsere Regeln:\n- Commits auf Englisch\n- kein Squash", ["Commits auf Englisch", "kein Squash"]),
        ("Nos règles :\n- pas de float\n- tests à côté du code", ["pas de float", "tests à côté du code"]),
        ("Nuestras reglas:\n- nada de float", ["nada de float"]),
        ("damit wir es festgehalten haben: 1) Commits auf Englisch 2) kein Squash", ["Commits auf Englisch", "kein Squash"]),
        ("House rules: (1) tabs (2) one migration per PR. Now fix foo", ["tabs", "one migration per PR."]),
        ("please fix: 1) the header 2) the footer, always", []),
        ("Please do:\n- rename the column\n- always sort the list", []),
        ("Questions:\n- do we always squash?\n- why never on Fridays?", []),
        ("Rules for this repo:\n- do we squash?\n- sign your commits", ["sign your commits"]),
        ("Todo for today:\n1. never mind the lint\n2. always first the tests", []),
        ("Steps to reproduce:\n1. Always log in\n2. Never wait", []),
        ("Review these rules:\n- always use var\n- never use let", []),
        ("The vendor's rules say:\n- never open the case\n- always call us", []),
        ("- never push to main\n- fix the header", ["never push to main"]),
        ("Is there something wrong with our rules?\n- always rebase\n- never squash, says Ben", []),
    ],
)
def test_a_list_below_its_heading_gives_a_rule_an_item_and_other_lists_none(prompt: str, found: list[str]):
    assert rules(prompt) == found


@try_rows(
    ("prompt", "found"),
    [
        ("From now on never deploy on Fridays. Only hotfixes may go out then.", True),
        ("Never use floats for money. Except in the charts.", True),
        ("Always squash. Unless the branch is shared.", True),
        ("No dynamic allocation after init, from now on. The one exception is the OTA task.", True),
        ("Never connect to staging from here. Last week a lock stayed there for half a day.", True),
        ("Last week a migration took the site down. So from now on never migrate on a Friday.", True),
        ("Always ask before a force push. Never. Ever.", True),
        ("Ab jetzt keine Deployments am Freitag. Nur Hotfixes dürfen raus.", True),
        ("Nie auf main pushen. Außer bei Tippfehlern. Sonst wird der Build rot.", True),
        ("Désormais plus de déploiement le vendredi. Sauf pour les correctifs.", True),
        ("A partir de ahora, nada de float. Salvo en los gráficos.", True),
        ("Never use floats for money. Rename the column, too.", False),
        ("All calls go through the gate, except those of the archive (see ref. 12, p. 3). Otherwise the audit fails.", True),
        ("Always squash. Rename the branch", False),
    ],
)
def test_a_rule_has_its_exception_and_its_reason_and_not_the_request_beside_it(prompt: str, *, found: bool):
    assert (rules(prompt) == [prompt]) is found
    assert len(rules(prompt)) == 1


def test_the_request_around_a_rule_is_not_part_of_it():
    assert rules("rename the column please. never connect to staging from here. thanks") == ["never connect to staging from here."]


def test_remember_that_means_the_sentence_before_it():
    prompt = "Benchmarks laufen hier mit --profile release-lto. Merk dir das bitte"

    assert rules(prompt) == ["Benchmarks laufen hier mit --profile release-lto."]


def test_who_describes_something_at_length_lays_nothing_down_with_a_sentence():
    described = "The importer reads each file and writes a row for each of its lines. " * 20

    assert rules(f"{described}It must never open a file twice, and always close it.") == []


@try_rows(
    ("prompt", "found"),
    [
        (
            "From now on run the linter before you push. Can you fix the footer?",
            ["From now on run the linter before you push."],
        ),
        (
            "Der Footer ist rot? Ab jetzt kommt jede Farbe aus theme.css.",
            ["Ab jetzt kommt jede Farbe aus theme.css."],
        ),
        ("regra da casa: migração nunca apaga coluna. Cria a do campo novo?", ["regra da casa: migração nunca apaga coluna."]),
        ("Never touch vendor/. It is audited. Where is the parser?", []),
        ("Never touch vendor/. Or should we?", []),
        ("Where is vendor/ from? Never touch it.", []),
        ("From now on we deploy by hand? Rather not.", []),
    ],
)
def test_a_question_beside_a_rule_leaves_what_says_that_it_holds_from_now_on(prompt: str, found: list[str]):
    assert rules(prompt) == found


@try_rows(
    ("prompt", "title"),
    [
        ("And from now on: never connect to the staging database.", "From now on: never connect to the staging database."),
        ("Yes: remember that the platform team deploys our migrations.", "The platform team deploys our migrations."),
        ("please always run `make lint` before a commit", "Always run `make lint` before a commit"),
        ("Never:\n- push to main", "Never: push to main"),
        ("Rules:\n- snake_case.py for files", "snake_case.py for files"),
    ],
)
def test_the_title_of_a_rule_begins_with_its_point(prompt: str, title: str):
    assert [rule.title for rule in read_rules(prompt)] == [title]


@pytest.mark.speed
@try_rows(
    "part",
    [
        "never ",
        "we ",
        "always a ",
        '"',
        "'",
        ", ",
        "we don't ",
        "Rules:\n- a\n",
        "a: b\n",
        "Never x. Only y. ",
        "1. ",
        "rules: 1) a ",
        "all ",
        "(. ",
    ],
)
def test_a_hostile_prompt_is_read_in_time_that_grows_with_its_length(part: str):
    assert not grows_too_fast(read_rules, part)
