"""The pages that the browser tests open. A new page adds a row here.

`path` may name things of the seeded team: {project}, {session}, {observation}, {job} and whatever else `Seed.things` has.
`empty_path` is the page in a team without anything; None where the page is about one thing.
"""

from __future__ import annotations

import msgspec


class PageCase(msgspec.Struct, frozen=True, kw_only=True):
    """A page as the tests open it."""

    name: str
    path: str
    heading: str = ""
    """What its <h1> begins with; empty for any."""
    empty_path: str | None = None
    is_signed_out: bool = False


PAGES = [
    PageCase(name="today", path="/ui", heading="Today", empty_path="/ui"),
    PageCase(name="projects", path="/ui/projects", heading="Projects", empty_path="/ui/projects"),
    PageCase(name="projects-stopped", path="/ui/projects?archived=true", empty_path="/ui/projects?archived=true"),
    PageCase(name="project", path="/ui/projects/{project}"),
    PageCase(name="project-preview", path="/ui/projects/{project}/preview", heading="What the next session is told"),
    PageCase(name="project-settings", path="/ui/projects/{project}/settings", heading="Preferences"),
    PageCase(name="sessions", path="/ui/sessions", heading="Sessions", empty_path="/ui/sessions"),
    PageCase(name="session", path="/ui/sessions/{told}"),
    PageCase(name="session-receipts", path="/ui/sessions/{told}/receipts", heading="What it was told"),
    PageCase(name="session-delete", path="/ui/sessions/{told}/delete", heading="Delete a session"),
    PageCase(name="event", path="/ui/events/{event}", heading="Event"),
    PageCase(name="observations", path="/ui/observations", heading="Observations", empty_path="/ui/observations"),
    PageCase(
        name="observations-found",
        path="/ui/observations?q=payments+tests+alert&explain=true&agent=&min_score=0",
        heading="Observations",
        empty_path="/ui/observations?q=nothing&explain=true",
    ),
    PageCase(
        name="observations-chosen",
        path="/ui/observations/chosen?number={observation}&number={second}&number={third}",
        empty_path="/ui/observations/chosen",
    ),
    PageCase(
        name="why",
        path="/ui/observations/why?project={project}&file=src%2Forders.py&text=while+order.attempt+%3C+3%3A",
        heading="Why a line of code is as it is",
        empty_path="/ui/observations/why",
    ),
    PageCase(name="observation", path="/ui/observations/{observation}"),
    PageCase(name="observation-edit", path="/ui/observations/{observation}/edit", heading="Edit"),
    PageCase(name="observation-merged", path="/ui/observations/{merged}"),
    PageCase(name="observation-expired", path="/ui/observations/{expired}"),
    PageCase(name="mine", path="/ui/mine", heading="Mine", empty_path="/ui/mine"),
    PageCase(name="mine-found", path="/ui/mine?q=answer", heading="Mine", empty_path="/ui/mine?state=dropped"),
    PageCase(name="mine-one", path="/ui/mine/m1"),
    PageCase(name="review", path="/ui/review", heading="Review", empty_path="/ui/review"),
    PageCase(
        name="contradictions",
        path="/ui/review?about=contradictions",
        heading="Contradictions",
        empty_path="/ui/review?about=contradictions",
    ),
    PageCase(name="rules", path="/ui/review/rules", heading="Rules", empty_path="/ui/review/rules"),
    PageCase(name="graph", path="/ui/graph", heading="Graph", empty_path="/ui/graph"),
    PageCase(name="entity", path="/ui/graph/{entity}"),
    PageCase(name="pins", path="/ui/pins", heading="Pins", empty_path="/ui/pins?broken=true"),
    PageCase(name="pin", path="/ui/pins/{pin}"),
    PageCase(name="proof", path="/ui/team/proof", heading="Proof", empty_path="/ui/team/proof"),
    PageCase(name="replays", path="/ui/pins/replays", heading="Replays", empty_path="/ui/pins/replays"),
    PageCase(name="replay", path="/ui/pins/replays/{replay}"),
    PageCase(name="team", path="/ui/team", heading="Team", empty_path="/ui/team"),
    PageCase(name="keys", path="/ui/team/keys", heading="Keys", empty_path="/ui/team/keys"),
    PageCase(name="audit", path="/ui/team/audit", heading="Audit log", empty_path="/ui/team/audit?action=nothing"),
    PageCase(name="model", path="/ui/model", heading="Model", empty_path="/ui/model"),
    PageCase(name="server", path="/ui/server", heading="Server", empty_path="/ui/server"),
    PageCase(name="jobs", path="/ui/jobs", heading="Jobs", empty_path="/ui/jobs"),
    PageCase(name="jobs-failed", path="/ui/jobs?status=failed", heading="Jobs", empty_path="/ui/jobs?status=failed"),
    PageCase(name="jobs-selected", path="/ui/jobs/selected?act=retry&status=failed", heading="Retry jobs"),
    PageCase(name="job", path="/ui/jobs/{job}", heading="Event"),
    PageCase(name="lanes", path="/ui/jobs/lanes", heading="Lanes", empty_path="/ui/jobs/lanes"),
    PageCase(name="providers", path="/ui/jobs/providers", heading="Providers", empty_path="/ui/jobs/providers"),
    PageCase(name="workers", path="/ui/jobs/workers", heading="Workers"),
    PageCase(name="costs", path="/ui/costs", heading="Costs", empty_path="/ui/costs"),
    PageCase(name="budgets", path="/ui/costs/budgets", heading="Budgets", empty_path="/ui/costs/budgets"),
    PageCase(name="analytics", path="/ui/analytics", heading="Analytics", empty_path="/ui/analytics"),
    PageCase(name="steward", path="/ui/steward", heading="Steward", empty_path="/ui/steward"),
    PageCase(name="steward-runs", path="/ui/steward/runs", heading="Runs", empty_path="/ui/steward/runs"),
    PageCase(name="steward-run", path="/ui/steward/runs/{run}", heading="Run of auto merge"),
    PageCase(name="steward-dry-run", path="/ui/steward/runs/{dry_run}", heading="Run of derive"),
    PageCase(name="steward-policies", path="/ui/steward/policies", heading="Policies", empty_path="/ui/steward/policies"),
    PageCase(name="doctor", path="/ui/doctor", heading="Doctor"),
    PageCase(name="profile", path="/ui/profile", heading="Profile", empty_path="/ui/profile"),
    PageCase(name="not-found", path="/ui/nothing", heading="Not found", empty_path="/ui/nothing"),
    PageCase(name="sign-in", path="/ui/sign-in", heading="Sign in", is_signed_out=True),
]
