"""Settings that the program adds to a file of its user."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmserver.base.config_file import add_settings, replace_settings
from cmserver.base.configuration import BadSetting, load
from tests.process.conftest import passable_folder


def test_a_missing_file_is_made_for_its_user_alone(tmp_path: Path):
    file = tmp_path / "config.toml"

    add_settings(file, {"provider": "ollama", "model": 'a "b"', "model_context_tokens": 32_768})

    assert file.read_text() == 'provider = "ollama"\nmodel = "a \\"b\\""\nmodel_context_tokens = 32768\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_everything_else_in_the_file_stays(tmp_path: Path):
    real = tmp_path / "real.toml"
    real.write_text('# mine\nport = 4000\nprovider = ""  # later\nmodel = \'\'\n\n[other]\nprovider = "x"\n')
    real.chmod(0o640)
    file = tmp_path / "config.toml"
    file.symlink_to(real)

    add_settings(file, {"provider": "offline"})

    assert real.read_text() == 'provider = "offline"  # later\n# mine\nport = 4000\nmodel = \'\'\n\n[other]\nprovider = "x"\n'
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert file.is_symlink()


@pytest.mark.parametrize("text", ['provider = "gemini"\n', "port = ", 'note = """\nprovider = ""\n"""\n', '"provider" = ""\n'])
def test_a_file_that_would_lose_something_is_left_alone(tmp_path: Path, text: str):
    file = tmp_path / "config.toml"
    file.write_text(text)

    with pytest.raises(BadSetting, match='Add to it yourself: provider = "offline"'):
        add_settings(file, {"provider": "offline"})

    assert file.read_text() == text


def test_a_file_that_is_no_utf_8_is_a_sentence(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_bytes(b"# caf\xe9\n")

    with pytest.raises(BadSetting, match="no UTF-8 text"):
        add_settings(file, {"provider": "offline"})

    assert file.read_bytes() == b"# caf\xe9\n"


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbfport = 4000\n")
    environ = {"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)}
    assert load(environ).settings.port == 4000

    add_settings(file, {"provider": "offline"})

    assert file.read_bytes() == b'provider = "offline"\nport = 4000\n'


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path):
    with pytest.raises(BadSetting, match="No such file or directory"):
        add_settings(tmp_path / "absent" / "config.toml", {"provider": "offline"})


def test_settings_are_replaced_and_taken_out_and_a_key_closes_the_file(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('# mine\nport = 4000\nprovider = "anthro # pic"  # then "this"\nmodel = "x" # why\nbase_url = \'#\'\n')
    file.chmod(0o644)

    replace_settings(file, {"provider": "openai", "model": None, "base_url": None, "openai_api_key": "sk-1"})

    assert file.read_text() == 'provider = "openai"  # then "this"\nopenai_api_key = "sk-1"\n# mine\nport = 4000\n# why\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_key_that_was_there_before_closes_the_file_too(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('gemini_api_key = "k"\n')
    file.chmod(0o644)

    replace_settings(file, {"provider": "ollama"})

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["port = ", 'note = """\nprovider = ""\n"""\n', '"provider" = ""\n', '[other]\nprovider = "x"\n'])
def test_a_file_that_cannot_be_replaced_in_is_left_alone_and_no_key_is_told(tmp_path: Path, text: str):
    file = tmp_path / "config.toml"
    file.write_text(text)

    with pytest.raises(BadSetting, match="openai_api_key = \\.\\.\\.") as refused:
        replace_settings(file, {"provider": "offline", "openai_api_key": "sk-secret"})

    assert file.read_text() == text
    assert "sk-secret" not in str(refused.value)


# -- the file in the data folder


def test_the_file_in_the_data_folder_is_read_when_no_other_is_named(tmp_path: Path):
    environ = {"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)}
    file = tmp_path / "config.toml"
    assert load(environ).config_file == file
    file.write_text('provider = "claude-cli"\nport = 1000')

    loaded = load(environ | {"CMSERVER_PORT": "2000"})

    assert (loaded.settings.provider, loaded.settings.port) == ("claude-cli", 2000)
    assert (loaded.sources["provider"], loaded.config_file) == (str(file), file)


def test_a_file_that_is_named_is_read_instead(tmp_path: Path):
    (tmp_path / "config.toml").write_text('provider = "claude-cli"')
    named = tmp_path / "named.toml"
    named.write_text("port = 1000")
    environ = {"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)}

    by_variable, by_option = load(environ | {"CMSERVER_CONFIG": str(named)}), load(environ, config_file=named)

    assert by_variable.settings == by_option.settings
    assert (by_option.settings.provider, by_option.config_file) == ("offline", named)


def test_it_cannot_move_the_data_folder(tmp_path: Path):
    (tmp_path / "config.toml").write_text('data_dir = "/elsewhere"')

    loaded = load({"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)})

    assert loaded.settings.data_dir == tmp_path
    assert loaded.warnings == [f"data_dir in {tmp_path}/config.toml is ignored: set CMSERVER_DATA_DIR instead."]


@pytest.mark.parametrize("text", ["~/data", "{home}/data/", "{home}/other/../data", "{home}/link"])
def test_it_may_name_its_own_folder_in_another_way(tmp_path: Path, text: str):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "config.toml").write_text(f'data_dir = "{text.format(home=tmp_path)}"')

    loaded = load({"HOME": str(tmp_path), "CMSERVER_DATA_DIR": str(tmp_path / "data")})

    assert loaded.warnings == []


@pytest.mark.parametrize("text", ["loop", "\\u0000"])
def test_a_folder_that_is_none_is_ignored(tmp_path: Path, text: str):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "config.toml").write_text(f'data_dir = "{tmp_path}/{text}"')

    loaded = load({"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)})

    assert loaded.warnings == [f"data_dir in {tmp_path}/config.toml is ignored: set CMSERVER_DATA_DIR instead."]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"port = ", "{file} is not valid TOML: "), (b"# caf\xe9", "{file} cannot be read: it is no UTF-8 text.")],
)
def test_a_broken_one_is_named_first(tmp_path: Path, content: bytes, sentence: str):
    file = tmp_path / "config.toml"
    file.write_bytes(content)

    with pytest.raises(BadSetting) as raised:
        load({"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)})

    assert str(raised.value).startswith(sentence.format(file=file))


def test_one_that_this_user_may_not_read_is_skipped():
    with passable_folder() as folder:
        file = folder / "config.toml"
        file.write_text("port = 1000")
        file.chmod(0)

        with _ordinary_user():
            loaded = load({"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(folder)})

    assert loaded.settings.port != 1000
    assert loaded.warnings == [f"{file} is skipped: this user may not read it."]


@contextmanager
def _ordinary_user() -> Generator[None]:
    """Without the rights of root, if the tests have them."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
