"""Pins in a storm: people add, edit, check and remove them, some guard pairs from the steward; and what must hold afterwards."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from tests.faults.actor import Actor
from tests.faults.keeping import Pair, plant_note, plant_pair
from tests.faults.system import System
from tests.process.program import rows

_GUARDED = ("orders", "parcels")
_MOST_PINS = 30


class PinFigures(msgspec.Struct, kw_only=True):
    """What was done with pins in a storm."""

    added: int = 0
    removed: int = 0
    checks: int = 0

    def __str__(self) -> str:
        return f"{self.added} pins added, {self.removed} removed, {self.checks} checks"


class GuardedPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two notes that the steward would merge, and the pin that refuses it: merged, the first two lines would have another word."""

    project: str
    pair: Pair
    pin_id: str


class Pinning(Actor):
    """Pins that guard pairs, and others that come and go until `end`."""

    def __init__(self, system: System, seed: int) -> None:
        super().__init__(system, seed)
        self.figures = PinFigures()
        self.wrong: list[str] = []
        self.there: set[str] = set()
        """Ids of pins of which was said that they are there, and that nobody asked to remove."""
        self.gone: set[str] = set()
        """Of which was said that they are removed."""
        self.doubtful: set[str] = set()
        """Somebody asked to remove them, and had no answer."""
        self.project = self.make_project(f"pinned-{seed}")["canonicalId"]
        self.guarded = [self._guard(noun) for noun in _GUARDED]
        self.begin(self._change, self._check)

    def read_check(self, project: str) -> httpx.Response | None:
        """A check of the pins of a project, as it is answered."""
        return self.request("POST", "/v1/pins/check", {"projectId": project}, 200)

    def _guard(self, noun: str) -> GuardedPair:
        """Pinned before it is suggested to merge the pair."""
        project = self.make_project(f"guarded-{noun}-{self.seed}")["canonicalId"]
        title = f"Deploys of {noun} run the migrations first"
        plant_note(self, project, "Migrations of payroll are run by hand")
        body = {
            "projectId": project,
            "question": f"deploys of {noun} run the migrations",
            "mustNot": ["payroll"],
            "lines": 1,
            "onBreak": "refuse",
        }
        made = self.insist("a pin", "POST", "/v1/pins", body, 201)
        pair = plant_pair(self, project, title, f"{title}, while the operator watches the log")
        edited = self.insist("a pin", "PATCH", f"/v1/pins/{made.json()['pin']['id']}", {"lines": 2}, 200)
        assert edited.json()["holds"], edited.text
        return GuardedPair(project=project, pair=pair, pin_id=str(edited.json()["pin"]["id"]))

    # -- people

    def _change(self) -> float:
        """Add, edit or remove a pin."""
        choice = self.random.random()
        known = sorted(self.there)
        if (choice < 0.5 and len(known) < _MOST_PINS) or not known:
            self._add()
        elif choice < 0.7:
            body = {"lines": self.random.randint(1, 20), "onBreak": self.random.choice(["report", "refuse"])}
            self.request("PATCH", f"/v1/pins/{self.random.choice(known)}", body, 200)
        else:
            self._remove(self.random.choice(known))
        return self.random.uniform(0.1, 0.5)

    def _add(self) -> None:
        word = "".join(self.random.choice("bcdfgklmnprst") + self.random.choice("aeiou") for _ in range(5))
        must = self.random.random() < 0.5
        body = {
            "projectId": self.project,
            "question": f"what is said of {word}",
            ("must" if must else "mustNot"): [word],
            "onBreak": self.random.choice(["report", "refuse"]),
        }
        answer = self.request("POST", "/v1/pins", body, 201)
        if answer is not None and answer.status_code == 201:
            made = answer.json()
            self.there.add(str(made["pin"]["id"]))
            self.figures.added += 1
            if made["holds"] is must:
                self.wrong.append(f"a pin for {word!r}, which nothing says, holds or does not: {answer.text[:200]}")

    def _remove(self, pin_id: str) -> None:
        self.there.discard(pin_id)
        self.doubtful.add(pin_id)
        answer = self.request("DELETE", f"/v1/pins/{pin_id}", None, 200)
        if answer is not None and answer.status_code == 200:
            self.doubtful.discard(pin_id)
            self.gone.add(pin_id)
            self.figures.removed += 1

    def _check(self) -> float:
        gone, before = {*self.gone}, {*self.there}
        answer = self.read_check(self.project)
        if answer is not None and answer.status_code == 200:
            self.figures.checks += 1
            self.wrong += find_wrong_results(answer.json()["results"], before & self.there, gone)
        return self.random.uniform(0.2, 0.6)


def find_wrong_results(results: list[dict[str, Any]], there: set[str], gone: set[str]) -> list[str]:
    """What a check answered otherwise than once for each pin that was there all the time, and not for one that was gone before."""
    ids = [str(result["pin"]["id"]) for result in results]
    sentences: list[str] = []
    if len({*ids}) != len(ids):
        sentences.append(f"a check answered twice for a pin: {ids}")
    if missing := there - {*ids}:
        sentences.append(f"a check left out pins: {sorted(missing)[:3]}")
    if back := gone & {*ids}:
        sentences.append(f"a check answered for removed pins: {sorted(back)[:3]}")
    return sentences


class PinJudge:
    """Looks at the pins after a storm; `violations` are sentences, none when everything held."""

    def __init__(self, system: System, pinning: Pinning) -> None:
        self._system, self._pinning = system, pinning
        self.violations: list[str] = []

    def look(self) -> None:
        """When the steward's jobs have ended."""
        pinning = self._pinning
        self.violations += pinning.wrong[:3]
        stored = {str(row["id"]) for row in rows(self._system.database, "SELECT id FROM pins")}
        if lost := pinning.there - stored:
            self.violations.append(f"lost: {len(lost)} acknowledged pins, such as {min(lost)}")
        if back := pinning.gone & stored:
            self.violations.append(f"removed pins are there: {len(back)}, such as {min(back)}")
        results = self._check(pinning.project)
        self.violations += find_wrong_results(results, pinning.there, pinning.gone)
        for guarded in pinning.guarded:
            merged = "SELECT number FROM observations WHERE id = ANY(%(ids)s) AND superseded_by IS NOT NULL"
            if rows(self._system.database, merged, ids=list(guarded.pair.ids)):
                self.violations.append(f"the steward merged {guarded.pair.numbers}, which pin {guarded.pin_id} refuses")
            (result,) = self._check(guarded.project)
            if not result["holds"]:
                self.violations.append(f"a pin that refuses to be broken does not hold: {result}")
        for result in results:  # so that the steward of the next storm has none of them to ask
            pinning.insist("a pin to be removed", "DELETE", f"/v1/pins/{result['pin']['id']}", None, 200, 404)
        for guarded in pinning.guarded:
            pinning.insist("a pin to be removed", "DELETE", f"/v1/pins/{guarded.pin_id}", None, 200, 404)
        self.violations += pinning.take_surprises()

    def _check(self, project: str) -> list[dict[str, Any]]:
        body = {"projectId": project}
        return self._pinning.insist("a check of pins", "POST", "/v1/pins/check", body, 200).json()["results"]
