"""Each Python that the product starts leaves out the working folder and PYTHONPATH; tests/process/test_isolation.py tries it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.examples import blocks
from tests.house.house import PACKAGE, ROOT, Source, source, sources

_START = re.compile(r"""(?:\bpython[\d.]*|\$python|\$candidate)["',]*\s+["']?(-\w+)""")
_ISOLATING = {"-I", "-EP"}
_OF_DEVELOPERS = {"bench", "build", "check", "release", "screenshots", "storm", "test"}
"""Programs of bin/ that work in the checkout, whose tests they have to find there."""
_MAY_NAME_PYTHON = {"cmserver.base.own_command", "cmserver.cli.service_unit"}
"""The one starts it, the other looks whether another user can reach it."""


def shell_texts() -> Iterator[tuple[Path, str]]:
    programs = [file for file in sorted((ROOT / "bin").iterdir()) if file.name not in _OF_DEVELOPERS]
    scripts = [file for suffix in ("sh", "js", "ts") for file in sorted(PACKAGE.rglob(f"*.{suffix}"))]
    for file in [ROOT / "Containerfile", ROOT / "compose.yaml", *programs, *scripts]:
        yield file, file.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        yield page, "\n".join(block.text for block in blocks(text) if block.language == "sh")


def open_starts(text: str) -> list[str]:
    """Lines that start a Python which looks for modules where strangers can put them."""
    return [line for line in text.splitlines() if any(option not in _ISOLATING for option in _START.findall(line))]


def names_python(source: Source) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in {"executable", "_base_executable"} and isinstance(node.value, ast.Name)
        for node in ast.walk(source.tree)
    )


def test_every_python_in_a_script_or_a_documented_command_is_isolated():
    found = [f"{file.relative_to(ROOT)}: {line.strip()}" for file, text in shell_texts() for line in open_starts(text)]

    assert found == []


def test_only_one_place_starts_our_own_python():
    assert {source.module for source in sources() if names_python(source)} == _MAY_NAME_PYTHON


def test_programs_of_developers_take_no_modules_of_the_shell():
    for name in _OF_DEVELOPERS:
        text = (ROOT / "bin" / name).read_text(encoding="utf-8")

        assert re.search(r"^unset (PYTHONPATH )?PYTHONHOME$", text, re.MULTILINE), name
        assert text.index('cd "$root"') < text.index("unset ") < text.index("bin/setup --dev\n", text.index("unset ")), name


def test_a_start_that_is_open_is_found():
    assert open_starts("KEY=$(python3 -c 'import json')") != []
    assert open_starts('exec "$root/.venv/bin/python" -m cmserver "$@"') != []
    assert open_starts('CMD ["python", "-c", "x"]') != []
    assert open_starts('"$python" -m venv x') != []
    assert open_starts("python3 -I -c 'x'; /opt/x/bin/python -EP -m cmserver") == []
    assert names_python(source("import sys\nrun([sys.executable, '-m', 'cmserver'])"))
