"""Private sessions over HTTP."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.verb import VerbCall, command, option
from cmserver.ops.privacy.mark import NEWEST, PrivateSessions
from cmserver.ops.privacy.wire import SessionPrivacyIn, SessionPrivacyOut, privacy_out, render_privacy


@command(
    "sessions private",
    lambda result, _: render_privacy(result),
    text="""Make a session yours alone: nobody else of the team is shown it, in no list, search, index or count.

    What was drawn from it is made anew without it, and it says who had been told of it. The key must be yours.
    """,
)
@option("SESSION_ID", field="id")
@option("--undo", "Give it back to the team.", field="private", on=False)
@verb.post("/v1/sessions/{id}/private", "sessions:write")
async def post_private(call: VerbCall, given: SessionPrivacyIn) -> SessionPrivacyOut:
    """Make a session the caller's alone, or give it back to the team; `told` lists who had been told of it.

    Only the person whose session it is can do either.
    """
    private_sessions = call.dependency(PrivateSessions)
    change = private_sessions.make_private if given.private else private_sessions.give_back
    name = given.id
    if name == NEWEST:
        name = await private_sessions.find_newest(call.principal, given.folder, is_private=not given.private)
    return privacy_out(await change(call.principal, name))


routes = [post_private]
