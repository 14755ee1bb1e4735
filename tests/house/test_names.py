"""A class name is a noun, and names one thing in the whole code base; so does the name by which a module is imported.

A participle or a pronoun (`Told`, `Given`, `Several`) does not tell what an object is; with two classes of one name a reader must
look up which one is meant. Exempt are private classes, which other files do not use, and exceptions, which are named after HTTP's
and PostgreSQL's errors (`Forbidden`).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WIRE_SUFFIXES = ("Out", "In", "Query")
"""`ProjectOut` is how a `Project` looks on the wire: what stands before the suffix must be a noun, too."""

IRREGULAR_PARTICIPLES = (
    "Begun|Bound|Bought|Brought|Built|Caught|Done|Drawn|Felt|Found|Gone|Grown|Heard|Held|Kept|Known|Laid|Led|Left|Lost|Made|Meant|Met|Paid|"
    "Said|Seen|Sent|Shown|Sold|Sought|Spent|Struck|Taught|Thrown|Told|Understood|Won|Worn"
)
PRONOUNS = (
    "All|Another|Any|Anybody|Both|Each|Everybody|Everything|Few|Here|Many|Mine|Most|Much|Nobody|Nothing|Ours|Other|Others|Several|Some|"
    "Somebody|Something|Such|That|Theirs|Them|There|These|They|This|Those|What|Where|Which|Who|Whom|Whose|Yours"
)
PREPOSITIONS = "About|Above|Across|After|Around|Before|Behind|Below|Beside|Between|Beyond|Inside|Near|Outside|Since|Until|With"
ENDINGS = r"\w*(?:[^e]ed|tten|aken|osen|[^aeiou]ing)"
"""Of regular participles, and of those in -en."""
NOUNS = {
    *(
        "Embed",
        "Embedding",
        "Feed",
        "Finding",
        "Heading",
        "Listing",
        "Meaning",
        "Pooling",
        "Pricing",
        "Ranking",
        "Reading",
        "Seed",
        "Setting",
    ),
    *("Reading", "String", "Timing", "Token", "Warning", "Wording"),
}
"""Nouns of the field with such an ending."""

_NO_NOUN = re.compile(f"{IRREGULAR_PARTICIPLES}|{PRONOUNS}|{PREPOSITIONS}|{ENDINGS}")
Classes = Mapping[str, Iterable[str]]
"""Name of a public class -> the modules that define it."""


def last_word(name: str) -> str:
    """The noun of a compound: `StoredEvent` is an Event, `ObservationTold` a Told."""
    for suffix in WIRE_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name.removesuffix(suffix)
            break
    return (re.findall(r"[A-Z][a-z0-9]*", name) or [name])[-1]


def is_noun(word: str) -> bool:
    return word in NOUNS or not _NO_NOUN.fullmatch(word)


def public_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Module -> its text becomes class -> its modules; without exceptions."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    defined = [(module, node) for module, tree in trees.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    bases = {node.name: [base.id for base in node.bases if isinstance(base, ast.Name)] for _, node in defined}
    classes: dict[str, list[str]] = defaultdict(list)
    for module, node in defined:
        if not node.name.startswith("_") and not is_exception(node.name, bases):
            classes[node.name].append(module)
    return classes


def is_exception(name: str, bases: Mapping[str, list[str]]) -> bool:
    return name.endswith(("Error", "Exception")) or any(is_exception(base, bases) for base in bases.get(name, []) if base != name)


def without_a_noun(classes: Classes) -> list[str]:
    return sorted(f"{name} in {module}" for name, modules in classes.items() if not is_noun(last_word(name)) for module in modules)


def defined_twice(classes: Classes) -> Iterator[str]:
    for name, modules in sorted(classes.items()):
        if len(places := sorted(modules)) > 1:
            yield f"{name} in {', '.join(places)}"


def ambiguous_imports(sources: Mapping[str, str]) -> list[str]:
    """Names that are bound to different modules in different files, as `sessions` for two of them.

    Inside its own folder a module has the name of its file (`repository`).
    """
    modules = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in sources}
    bound: dict[str, set[str]] = defaultdict(set)
    for module, file in modules.items():
        for node in ast.walk(ast.parse(sources[file])):
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                imported = f"{node.module}.{alias.name}"
                is_own = alias.asname is None and f"{module}.".startswith(f"{node.module}.")
                if imported in modules and not is_own:
                    bound[alias.asname or alias.name].add(imported)
    return [f"{name}: {', '.join(sorted(meant))}" for name, meant in sorted(bound.items()) if len(meant) > 1]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "cmserver").rglob("*.py")}


@pytest.fixture(scope="module")
def classes(sources: dict[str, str]) -> dict[str, list[str]]:
    return public_classes(sources)


def test_the_name_of_a_module_means_one_module(sources: dict[str, str]):
    assert ambiguous_imports(sources) == [], "import one of them under a name that says which it is"


def test_a_name_for_two_modules_is_noticed():
    planted = {
        "shop/orders/repository.py": "",
        "shop/orders/read.py": "from shop.orders import repository",
        "shop/bills/repository.py": "",
        "shop/bills/read.py": "from shop.orders import read as orders\nfrom shop.bills import repository",
        "shop/api.py": "from shop.orders import repository as orders\nfrom shop.bills import repository as bills",
    }

    assert ambiguous_imports(planted) == ["orders: shop.orders.read, shop.orders.repository"]


def test_a_class_is_a_noun(classes: Classes):
    assert without_a_noun(classes) == [], "name the class for what it is, or add a noun to NOUNS"


def test_a_class_name_is_used_once(classes: Classes):
    assert list(defined_twice(classes)) == [], "name each for what it is in its room, or make them one"


def test_a_bad_name_is_noticed():
    sources = {
        "a.py": ["Told", "Change", "Forbidden(CmserverError)", "StoredEvent", "_Given", "Ranking"],
        "b.py": ["ObservationTold", "RevokedOut", "Several", "Waiting", "Change", "Driver"],
    }
    planted = public_classes({file: "\n".join(f"class {name}: ..." for name in names) for file, names in sources.items()})

    assert without_a_noun(planted) == [
        "ObservationTold in b.py",
        "RevokedOut in b.py",
        "Several in b.py",
        "Told in a.py",
        "Waiting in b.py",
    ]
    assert list(defined_twice(planted)) == ["Change in a.py, b.py"]
