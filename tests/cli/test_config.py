from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cmserver.base.configuration import BadSetting
from cmserver.cli.config import config
from tests.table import try_rows

ENVIRON = {
    "CMSERVER_DATA_DIR": '/data/a "quoted" folder',
    "CMSERVER_DATABASE_URL": "postgresql://cm:s3cret@db.example/memory",
    "CMSERVER_PORT": "4000",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789-s3cret",
}


def run(*arguments: str, **environ: str) -> tuple[str, str]:
    result = CliRunner().invoke(config, arguments, env=ENVIRON | environ, catch_exceptions=False)
    return result.stdout, result.stderr


def test_config_prints_each_setting_with_its_source_and_no_secret():
    output, _ = run()

    assert "port = 4000  # environment CMSERVER_PORT\n" in output
    assert "lease_seconds = 20.0  # default\n" in output
    assert "postgresql://cm:***@db.example/memory" in output
    assert "s3cret" not in output


def test_the_output_can_be_pasted_into_a_config_file(tmp_path: Path):
    output, _ = run()
    file = tmp_path / "cmserver.toml"
    file.write_text(output)

    again = json.loads(run("--config", str(file), "--json", CMSERVER_PORT="", CMSERVER_DATA_DIR="")[0])

    assert again["port"] == {"value": 4000, "source": str(file), "masked": False}
    assert again["data_dir"]["value"] == '/data/a "quoted" folder'
    assert again["lease_seconds"]["source"] == str(file)
    assert "database_url" not in tomllib.loads(output)  # a masked secret would be a wrong one


def test_an_unknown_name_is_pointed_out_beside_the_output():
    output, beside = run("--json", CMSERVER_PROT="1")

    assert json.loads(output)["port"]["value"] == 4000
    assert beside == "CMSERVER_PROT is not a setting and is ignored; did you mean CMSERVER_PORT?\n"


def test_a_wrong_value_is_refused():
    with pytest.raises(BadSetting, match="CMSERVER_PORT is 'abc'"):
        run(CMSERVER_PORT="abc")


def test_a_configuration_of_contextify_becomes_lines_of_our_file(tmp_path: Path):
    env_file, yaml_file = tmp_path / "contextify.env", tmp_path / "config.yaml"
    env_file.write_text("# theirs\nexport DATABASE_URL='postgresql://c:p@db/memory'\nSERVER_PORT=8420\nSTEWARD_MODEL=qwen\n")
    yaml_file.write_text("server: {port: 8420}\nembedding:\n  model: nomic\nmemory: {default_ttl: 24h}\nsearch: {max_limit: 100}\n")

    output, unused = run("import", "contextify", str(env_file))
    of_yaml, unused_of_yaml = run("import", "contextify", str(yaml_file))

    assert tomllib.loads(output) == {"database_url": "postgresql://c:p@db/memory", "port": 8420}
    assert "STEWARD_MODEL" in unused
    assert tomllib.loads(of_yaml) == {"port": 8420, "embedder_model": "nomic", "embedder": "ollama"}
    assert unused_of_yaml == "Of a team, with --team TEAM: defaultTtlSeconds 86400.\nWithout a setting here: search.max_limit.\n"


@try_rows(
    ("text", "said"),
    [
        ("memory: {default_ttl: 1h30m, ttl_extend_factor: 0.25}", "defaultTtlSeconds 5400, extendFactor 0.25"),
        ("memory: {cleanup_interval: 5m, promote_importance: 0.9}", "promoteImportance 0.9, cleanupSeconds 300"),
        ("memory: {similarity_threshold: 0.7, auto_merge_threshold: 0.95}", "suggestAbove 0.7, autoMergeAbove 0.95"),
        ("consolidation: {auto_merge_threshold: 0.92, merge_strategy: append}", "autoMergeAbove 0.92, mergeStrategy append"),
        ("consolidation: {enabled: false, auto_merge_threshold: 0.92, suggest_threshold: 0.7}", "suggestAbove 0.7"),
    ],
)
def test_what_a_team_says_here_is_told(tmp_path: Path, text: str, said: str):
    file = tmp_path / "config.yaml"
    file.write_text(text)

    assert run("import", "contextify", str(file)) == ("", f"Of a team, with --team TEAM: {said}.\n")


@pytest.mark.parametrize("text", ["server: [", "server:\n  port: banana\n", "memory: {default_ttl: 3 weeks}"])
def test_a_configuration_that_is_no_good_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "config.yaml"
    file.write_text(text)

    with pytest.raises(BadSetting):
        run("import", "contextify", str(file))
