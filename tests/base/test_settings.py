from __future__ import annotations

from pathlib import Path

import pytest

from cmserver.base import settings
from cmserver.base.configuration import BadSetting, effective, load
from cmserver.base.contextify import UNUSED_VARIABLES, translate_contextify
from cmserver.base.removed_settings import HOLDING, REMOVED
from cmserver.base.settings import Settings
from cmserver.ops.backup.scheduled import KEPT
from cmserver.retention.model import RetentionDefaults
from tests.house.settings_page import settings_page
from tests.table import try_rows

HOME = {"HOME": "/home/alice"}
URL = "postgresql://cm:s3cret@db.example:5433/memory"


def refusal(environ: dict[str, str], config_file: Path | None = None) -> str:
    with pytest.raises(BadSetting) as caught:
        load(HOME | environ, config_file=config_file)
    return str(caught.value)


def test_without_any_setting_the_defaults_are_in_force():
    loaded = load(HOME)

    assert loaded.settings.port == 37877
    assert loaded.settings.database_url is None
    assert loaded.warnings == []
    assert set(loaded.sources.values()) == {"default"}


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path):
    file = tmp_path / "cmserver.toml"
    file.write_text('port = 1000\nhost = "0.0.0.0"\nlease_seconds = 30\nanthropic_api_key = "sk-ant-from-a-file"\n')

    loaded = load(HOME | {"CMSERVER_CONFIG": str(file), "CMSERVER_PORT": "2000"})

    assert (loaded.settings.port, loaded.settings.host, loaded.settings.lease_seconds) == (2000, "0.0.0.0", 30.0)
    assert loaded.settings.anthropic_api_key == "sk-ant-from-a-file"
    assert loaded.sources["port"] == "environment CMSERVER_PORT"
    assert loaded.sources["host"] == str(file)
    assert loaded.sources["model"] == "default"


def test_the_file_given_by_hand_wins_over_the_one_in_the_environment(tmp_path: Path):
    file = tmp_path / "given.toml"
    file.write_text("port = 1000")

    loaded = load(HOME | {"CMSERVER_CONFIG": "/nowhere.toml"}, config_file=file)

    assert loaded.settings.port == 1000


def test_an_empty_value_counts_as_not_set(tmp_path: Path):
    file = tmp_path / "cmserver.toml"
    file.write_text('port = 1000\nmodel = ""')

    environ = {"CMSERVER_PORT": "", "CMSERVER_DATABASE_URL": "", "CMSERVER_DATABASE_URL_FILE": ""}
    loaded = load(HOME | environ, config_file=file)

    assert loaded.settings.port == 1000
    assert loaded.settings.model is None
    assert loaded.settings.database_url is None


@try_rows(
    ("name", "value", "sentence"),
    [
        ("CMSERVER_PORT", "abc", "CMSERVER_PORT is 'abc': a whole number from 0 to 65535 is expected."),
        ("CMSERVER_PORT", "70000", "CMSERVER_PORT is '70000': a whole number from 0 to 65535 is expected."),
        ("CMSERVER_PORT", "1.5", "CMSERVER_PORT is '1.5': a whole number from 0 to 65535 is expected."),
        ("CMSERVER_LEASE_SECONDS", "-1", "CMSERVER_LEASE_SECONDS is '-1': a number from 0.2 to 3600 is expected."),
        ("CMSERVER_LEASE_SECONDS", "nan", "CMSERVER_LEASE_SECONDS is 'nan': a number from 0.2 to 3600 is expected."),
        ("CMSERVER_EMBEDDED", "no", "CMSERVER_EMBEDDED is 'no': 'auto' or 'never' is expected."),
        ("CMSERVER_DATA_DIR", "data", "CMSERVER_DATA_DIR is 'data': an absolute path is expected."),
        (
            "CMSERVER_DATABASE_URL",
            "db.example/memory:s3cret",
            "CMSERVER_DATABASE_URL is '***': a URL like postgresql://user:password@host:5432/database is expected.",
        ),
        (
            "CLAUDE_MEM_SERVER_DATABASE_URL",
            "mysql://cm:s3cret@db/memory",
            "CLAUDE_MEM_SERVER_DATABASE_URL is '***': a URL like postgresql://user:password@host:5432/database is expected.",
        ),
        (
            "CMSERVER_BASE_URL",
            "localhost:11434",
            "CMSERVER_BASE_URL is 'localhost:11434': a URL that begins with http:// or https:// is expected.",
        ),
    ],
)
def test_a_wrong_value_is_one_sentence_that_names_it_and_what_is_expected(name: str, value: str, sentence: str):
    assert refusal({name: value}) == sentence


def test_a_wrong_value_of_the_file_is_named_with_its_file(tmp_path: Path):
    file = tmp_path / "cmserver.toml"
    file.write_text('port = "80"')

    assert refusal({}, file) == f"port in {file} is '80': a whole number from 0 to 65535 is expected."


def test_a_wrong_secret_of_the_file_is_not_shown(tmp_path: Path):
    file = tmp_path / "cmserver.toml"
    file.write_text("openai_api_key = 12345678")

    assert refusal({}, file) == f"openai_api_key in {file} is '***': a text is expected."


def test_a_file_that_is_no_toml_or_cannot_be_read_is_one_sentence(tmp_path: Path):
    broken = tmp_path / "broken.toml"
    broken.write_text("port = ")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")

    assert refusal({"CMSERVER_CONFIG": str(broken)}).startswith(f"CMSERVER_CONFIG names {broken}, which is not valid TOML: ")
    assert refusal({}, tmp_path / "absent.toml") == (
        f"--config names {tmp_path}/absent.toml, which cannot be read: No such file or directory."
    )
    assert refusal({}, binary) == f"--config names {binary}, which cannot be read: it is no UTF-8 text."


@pytest.mark.parametrize("name", ["CMSERVER_DATABASE_URL", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"])
def test_a_secret_may_come_from_a_file_and_loses_one_newline_at_its_end(tmp_path: Path, name: str):
    file = tmp_path / "secret"
    file.write_text(f"{URL}\n")

    loaded = load(HOME | {f"{name}_FILE": str(file)})

    field = name.removeprefix("CMSERVER_").lower()
    assert getattr(loaded.settings, field) == URL
    assert loaded.sources[field] == f"{name}_FILE={file}"


def test_a_secret_file_that_cannot_be_used_is_one_sentence(tmp_path: Path):
    empty = tmp_path / "empty"
    empty.write_text("\n")

    assert refusal({"GEMINI_API_KEY_FILE": "/nowhere/key"}) == (
        "GEMINI_API_KEY_FILE names /nowhere/key, which cannot be read: No such file or directory."
    )
    # An empty URL would otherwise quietly mean the embedded database.
    assert refusal({"CMSERVER_DATABASE_URL_FILE": str(empty)}) == (
        f"CMSERVER_DATABASE_URL_FILE names {empty}, which is empty: write the value into it."
    )


def test_a_secret_that_is_set_twice_is_one_sentence():
    environ = {"CMSERVER_BOOTSTRAP_KEY": "cms_a_b", "CMSERVER_BOOTSTRAP_KEY_FILE": "/run/secrets/key"}

    assert refusal(environ) == ("CMSERVER_BOOTSTRAP_KEY and CMSERVER_BOOTSTRAP_KEY_FILE are both set: keep one of them.")


def test_the_older_name_of_the_database_url_is_accepted():
    loaded = load(HOME | {"CLAUDE_MEM_SERVER_DATABASE_URL": URL})

    assert loaded.settings.database_url == URL
    assert loaded.sources["database_url"] == "environment CLAUDE_MEM_SERVER_DATABASE_URL"


def test_the_older_name_gives_way_and_says_so():
    loaded = load(HOME | {"CLAUDE_MEM_SERVER_DATABASE_URL": "postgresql://old/a", "CMSERVER_DATABASE_URL": URL})

    assert loaded.settings.database_url == URL
    assert loaded.warnings == ["CLAUDE_MEM_SERVER_DATABASE_URL is ignored, because CMSERVER_DATABASE_URL is set."]


def test_the_variables_of_claude_mem_are_understood_and_named():
    theirs = {
        "CLAUDE_MEM_WORKER_PORT": "37701",
        "CLAUDE_MEM_MODEL": "claude-haiku",
        "CLAUDE_MEM_VERBOSITY": "minimal",
    }

    loaded = load(HOME | theirs | {"CMSERVER_PROVIDER": "claude-cli"})

    settings = loaded.settings
    assert (settings.port, settings.model, settings.verbosity) == (37701, "claude-haiku", "minimal")
    assert set(loaded.translated) == set(theirs)
    assert load(HOME | theirs).settings.model is None, "a model of Claude is none of the rules'"
    assert refusal({"CLAUDE_MEM_WORKER_PORT": "abc"}).startswith("CLAUDE_MEM_WORKER_PORT is 'abc': ")


def test_the_key_of_voyage_goes_nowhere_else():
    key = {"VOYAGE_API_KEY": "pa-1"}

    assert load(HOME | key | {"CMSERVER_EMBEDDER": "voyage"}).settings.embedder_key == "pa-1"
    for other in (
        {},
        {"CMSERVER_EMBEDDER": "openai"},
        {"CMSERVER_EMBEDDER": "openai", "CMSERVER_EMBEDDER_BASE_URL": "http://gate", "CMSERVER_EMBEDDER_KEY": "k"},
        {"CMSERVER_EMBEDDER": "voyage", "CMSERVER_EMBEDDER_BASE_URL": "http://gate"},
    ):
        loaded = load(HOME | key | other)
        assert loaded.settings.embedder_key == other.get("CMSERVER_EMBEDDER_KEY")
        assert loaded.warnings == []


CONTEXTIFY = {
    "DATABASE_URL": URL,
    "OLLAMA_URL": "http://ollama:11434",
    "EMBEDDING_MODEL": "mxbai-embed-large",
    "SERVER_PORT": "8420",
}


def test_the_general_names_of_contextify_are_not_taken_from_a_shell():
    loaded = load(HOME | CONTEXTIFY)

    assert set(loaded.sources.values()) == {"default"}
    assert (loaded.translated, loaded.warnings) == ({}, [])


def test_a_configuration_of_contextify_is_translated_when_asked_for():
    imported = translate_contextify({**CONTEXTIFY, "memory.greeting": "hello", "CONSOLIDATION_ENABLED": ""})

    assert imported.values == {
        "database_url": URL,
        "embedder_base_url": "http://ollama:11434",
        "embedder_model": "mxbai-embed-large",
        "port": "8420",
        "embedder": "ollama",
    }
    assert imported.unused == ["memory.greeting"]


def test_variables_of_contextify_without_a_setting_are_named_once():
    unused = dict.fromkeys(UNUSED_VARIABLES, "s3cret")

    (warning,) = load(HOME | unused).warnings

    assert all(name in warning for name in unused)
    assert "s3cret" not in warning


@try_rows(
    ("name", "warning"),
    [
        ("CMSERVER_PROT", "CMSERVER_PROT is not a setting and is ignored; did you mean CMSERVER_PORT?"),
        (
            "CMSERVER_LEASE",
            "CMSERVER_LEASE is not a setting and is ignored; did you mean CMSERVER_LEASE_SECONDS?",
        ),
        (
            "CMSERVER_OPENAI_API_KEY",
            "CMSERVER_OPENAI_API_KEY is not a setting and is ignored; did you mean OPENAI_API_KEY?",
        ),
        (
            "CMSERVER_XYZZY",
            "CMSERVER_XYZZY is not a setting and is ignored; `cmserver config` lists all there are.",
        ),
        ("CMSERVER_PORT_FILE", "CMSERVER_PORT_FILE is not a setting and is ignored; did you mean CMSERVER_PORT?"),
    ],
)
def test_an_unknown_name_is_pointed_out_with_the_nearest_right_one(name: str, warning: str):
    assert load(HOME | {name: "1"}).warnings == [warning]


def test_an_unknown_key_of_the_file_is_pointed_out(tmp_path: Path):
    file = tmp_path / "cmserver.toml"
    file.write_text("lease_second = 30\n[server]\nport = 1")

    warnings = load(HOME, config_file=file).warnings

    assert warnings[0] == f"lease_second in {file} is not a setting and is ignored; did you mean lease_seconds?"
    assert warnings[1].startswith(f"server in {file} is not a setting and is ignored; ")


def test_names_of_the_tests_and_of_others_are_not_pointed_out():
    assert load(HOME | {"CMSERVER_TEST_DATABASE_URL": "x", "PORT": "1", "OPENAI_KEY": "x"}).warnings == []


def test_each_setting_of_before_is_answered_by_a_sentence(tmp_path: Path):
    file = tmp_path / "cmserver.toml"
    file.write_text("\n".join(f"{name} = {HOLDING.get(name, 1)}" for name in REMOVED))

    in_file = load(HOME, config_file=file).warnings
    in_environment = load(HOME | {f"CMSERVER_{name.upper()}": str(HOLDING.get(name, 1)) for name in REMOVED}).warnings

    assert not REMOVED.keys() & {field.name for field in settings.fields()}
    assert in_file == [f"{name} in {file} is no setting any more and is ignored: {text}" for name, text in REMOVED.items()]
    assert in_environment == [
        f"CMSERVER_{name.upper()} is no setting any more and is ignored: {text}"
        for name, text in sorted(REMOVED.items(), key=lambda row: row[0].upper())
    ]
    for name in ("VOYAGE_API_KEY_FILE", "CMSERVER_VOYAGE_API_KEY_FILE"):
        assert "CMSERVER_EMBEDDER_KEY_FILE" in load(HOME | {name: "/run/key"}).warnings[0]


@try_rows("name", list(HOLDING))
def test_nothing_starts_with_a_setting_of_before_that_kept_or_deleted_what_now_is_not(tmp_path: Path, name: str):
    file, value_file = tmp_path / "cmserver.toml", tmp_path / "value"
    file.write_text(f"{name} = 14")
    value_file.write_text("14\n")
    variable = f"CMSERVER_{name.upper()}"
    gone = f"no setting any more; take it away. {REMOVED[name]}"

    assert refusal({}, file) == f"{name} in {file} is 14 and {gone}"
    assert refusal({variable: "14"}) == f"{variable} is '14' and {gone}"
    assert refusal({variable: "two weeks"}) == f"{variable} is 'two weeks' and {gone}"
    assert refusal({f"{variable}_FILE": str(value_file)}) == f"{variable}_FILE is '14' and {gone}"
    assert f"{variable}_FILE names /nowhere, which cannot be read" in refusal({f"{variable}_FILE": "/nowhere"})
    value_file.write_text(f"{float(HOLDING[name])}\n")
    assert len(load(HOME | {f"{variable}_FILE": str(value_file)}).warnings) == 1


def test_what_is_said_to_hold_holds():
    days = RetentionDefaults()

    assert {
        "retention_observations_days": days.observations_days,
        "retention_events_days": days.events_days,
        "retention_audit_days": days.audit_days,
        "retention_audit_min_days": days.audit_min_days,
        "retention_min_importance": days.min_importance,
        "retention_job_log_days": days.job_log_days,
        "retention_receipts_days": days.receipts_days,
        "retention_event_rows_days": days.event_rows_days,
        "retention_telemetry_days": days.telemetry_days,
        "retention_steward_days": days.steward_days,
        "undo_days": days.undo_days,
        "expired_retention_days": days.undo_days,
        "superseded_retention_days": days.undo_days,
        "backup_keep": KEPT,
    } == HOLDING


@try_rows(
    ("environ", "tokens"),
    [
        ({}, 65_536),
        ({"CMSERVER_PROVIDER": "openai"}, 65_536),
        ({"CMSERVER_PROVIDER": "ollama"}, 32_768),
        ({"CMSERVER_PROVIDER": "anthropic, ollama"}, 32_768),
        ({"CMSERVER_PROVIDER": "ollama", "CMSERVER_MODEL_CONTEXT_TOKENS": "131072"}, 131_072),
    ],
)
def test_the_context_is_no_longer_than_that_of_ollama(environ: dict[str, str], tokens: int):
    assert load(HOME | environ).settings.model_context_tokens == tokens


@try_rows(("timeout_seconds", "job_seconds"), [("5", 300), ("120", 300), ("600", 1500)])
def test_a_batch_is_held_for_two_calls_and_five_minutes_at_least(timeout_seconds: str, job_seconds: float):
    assert load(HOME | {"CMSERVER_PROVIDER_TIMEOUT_SECONDS": timeout_seconds}).settings.job_seconds == job_seconds


def test_the_heartbeat_and_the_end_of_a_worker_are_shorter_than_the_lease():
    assert refusal({"CMSERVER_LEASE_SECONDS": "8"}) == (
        "CMSERVER_LEASE_SECONDS is 8: more than CMSERVER_HEARTBEAT_SECONDS (5) and the 3.2 seconds in which a stopping worker "
        "finishes is expected, or it loses its jobs meanwhile."
    )


def test_without_the_embedded_database_a_url_is_needed():
    assert refusal({"CMSERVER_EMBEDDED": "never"}) == (
        "CMSERVER_EMBEDDED is 'never' and CMSERVER_DATABASE_URL is not set: set the URL of a PostgreSQL 15 or newer, "
        "or let the embedded one be used with 'auto'."
    )
    assert load(HOME | {"CMSERVER_EMBEDDED": "never", "CMSERVER_DATABASE_URL": URL}).settings.embedded == "never"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CMSERVER_DATABASE_TENANT_URL", "postgresql://request@db.example/memory"),
        ("CMSERVER_DATABASE_DIRECT_URL", URL),
        ("CMSERVER_DATABASE_POOLING", "session"),
    ],
)
def test_what_stands_before_a_database_needs_the_url_of_that_database(name: str, value: str):
    assert name in refusal({name: value})


def test_transaction_pooling_needs_a_way_past_the_pooler():
    pooled = {"CMSERVER_DATABASE_URL": URL, "CMSERVER_DATABASE_POOLING": "transaction"}

    assert "CMSERVER_DATABASE_DIRECT_URL" in refusal(pooled)
    assert load(HOME | pooled | {"CMSERVER_DATABASE_DIRECT_URL": URL}).settings.database_pooling == "transaction"


@pytest.mark.parametrize("name", ["CMSERVER_DATABASE_TENANT_URL", "CMSERVER_DATABASE_DIRECT_URL"])
def test_no_password_of_a_further_url_is_shown(name: str, tmp_path: Path):
    file = tmp_path / "url"
    file.write_text("postgresql://request:hunter2@db.example/memory\n", encoding="utf-8")
    loaded = load(HOME | {"CMSERVER_DATABASE_URL": URL, f"{name}_FILE": str(file)})

    assert "hunter2" not in repr(loaded.settings) + str(effective(loaded))
    assert "hunter2" in str(getattr(loaded.settings, name.removeprefix("CMSERVER_").lower()))
    assert "hunter2" not in refusal({"CMSERVER_DATABASE_URL": URL, name: "hunter2"})


@try_rows("host", ["0.0.0.0", "::", "10.0.0.7", "memory.example", "localhost.evil", "127.0.0.1.evil"])
def test_guests_are_refused_where_others_can_call(host: str):
    assert refusal({"CMSERVER_TRUST_LOOPBACK": "default", "CMSERVER_HOST": host}) == (
        f"CMSERVER_TRUST_LOOPBACK is set and CMSERVER_HOST is {host!r}: callers without a key are only let in where nobody but "
        "this machine can call. Listen on 127.0.0.1, or let them use keys."
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_guests_are_let_in_where_only_this_machine_can_call(host: str):
    loaded = load(HOME | {"CMSERVER_TRUST_LOOPBACK": "default", "CMSERVER_HOST": host})

    assert loaded.settings.trust_loopback == "default"


def test_words_are_accepted_in_any_case():
    assert load(HOME | {"CMSERVER_LOG_LEVEL": "DEBUG"}).settings.log_level == "debug"


def test_the_tests_can_shorten_the_lease_and_take_any_free_port():
    environ = {"CMSERVER_LEASE_SECONDS": "2", "CMSERVER_HEARTBEAT_SECONDS": "0.5"}

    loaded = load(HOME | environ | {"CMSERVER_PORT": "0", "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})

    assert (loaded.settings.lease_seconds, loaded.settings.port) == (2.0, 0)


@pytest.mark.parametrize(
    ("uid", "environ", "expected"),
    [
        (0, HOME | {"XDG_DATA_HOME": "/xdg"}, "/var/lib/cmserver"),
        (1000, HOME | {"XDG_DATA_HOME": "/xdg"}, "/xdg/cmserver"),
        (1000, HOME | {"XDG_DATA_HOME": "relative"}, "/home/alice/.local/share/cmserver"),
        (1000, HOME, "/home/alice/.local/share/cmserver"),
        (1000, HOME | {"CMSERVER_DATA_DIR": "~/memory"}, "/home/alice/memory"),
        (1000, HOME | {"CMSERVER_DATA_DIR": "~"}, "/home/alice"),
        (0, HOME | {"CMSERVER_DATA_DIR": "/srv/with space"}, "/srv/with space"),
    ],
)
def test_the_data_lie_where_the_user_keeps_such_data(
    monkeypatch: pytest.MonkeyPatch, uid: int, environ: dict[str, str], expected: str
):
    monkeypatch.setattr("os.geteuid", lambda: uid)

    assert load(environ).settings.data_dir == Path(expected)


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch):
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("pathlib.Path.home", no_home)

    assert refusal({"HOME": ""}) == "This user has no home folder: set CMSERVER_DATA_DIR to an absolute path."


@try_rows(
    ("url", "shown"),
    [
        (URL, "postgresql://cm:***@db.example:5433/memory"),
        ("postgresql://cm@db.example/memory", "postgresql://cm@db.example/memory"),
        ("postgresql://cm:s3@cret@db.example/memory", "postgresql://cm:***@db.example/memory"),
        ("postgres://db/m?user=cm&password=s3cret&sslmode=require", "postgres://db/m?user=cm&password=***&sslmode=require"),
        (r"host=h password = s3\ cret dbname=m", "host=h password = *** dbname=m"),
        ("host=/run/pg dbname=memory password='s3 cret' user=cm", "host=/run/pg dbname=memory password=*** user=cm"),
    ],
)
def test_a_shown_url_keeps_host_and_database_and_hides_the_password(url: str, shown: str):
    lines = {line.name: line for line in effective(load(HOME | {"CMSERVER_DATABASE_URL": url}))}

    assert lines["database_url"].value == shown
    assert lines["database_url"].masked == (url != shown)


def test_a_shown_address_of_a_provider_hides_its_password_and_key():
    environ = {"CMSERVER_BASE_URL": "https://cm:s3cret@proxy.example/v1?key=s3cret&sslkey=a"}

    lines = {line.name: line for line in effective(load(HOME | environ))}

    assert lines["base_url"].value == "https://cm:***@proxy.example/v1?key=***&sslkey=a"


def test_a_shown_key_keeps_its_first_letters():
    environ = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "OPENAI_API_KEY": "short"}

    lines = {line.name: line for line in effective(load(HOME | environ))}

    assert (lines["anthropic_api_key"].value, lines["anthropic_api_key"].masked) == ("sk-a...", True)
    assert lines["openai_api_key"].value == "..."
    assert (lines["gemini_api_key"].value, lines["gemini_api_key"].masked) == (None, False)


def test_a_secret_is_never_in_the_repr():
    loaded = load(HOME | {"CMSERVER_DATABASE_URL": URL, "CMSERVER_BOOTSTRAP_KEY": "cms_0123456789_s3cret"})

    assert "s3cret" not in repr(loaded)
    assert "s3cret" not in str(loaded.settings.__rich_repr__())
    assert "port=37877" in repr(loaded.settings)
    assert repr(loaded.settings).startswith("Settings(data_dir=")


def test_every_setting_is_described_briefly_and_stands_on_the_page():
    page = settings_page()

    for field in settings.fields():
        assert field.description.endswith(".")
        assert len(field.description) <= 240
        assert f"| `{field.environment}`" in page


def test_every_number_has_a_unit_in_its_name_or_counts_something_and_has_limits():
    counts = {"database_pool_size", "api_processes", "port", "generation_concurrency"}
    times = ("_seconds", "_minutes", "_hours")
    for field in settings.fields():
        if field.type is int or field.type is float:
            assert field.name in counts or field.name.endswith((*times, "_tokens")), field.name
            assert (field.type is float) == field.name.endswith(times), field.name
            assert field.at_least is not None, field.name
            assert field.at_most is not None, field.name


def test_the_defaults_are_within_their_own_limits():
    defaults = Settings(data_dir=Path("/data"))

    for field in settings.fields():
        value = getattr(defaults, field.name)
        if isinstance(value, int | float) and field.at_least is not None and field.at_most is not None:
            assert field.at_least <= value <= field.at_most
