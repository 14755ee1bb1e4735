"""What the user typed of a prompt, without what editors and agents' programs put around it."""

from __future__ import annotations

import time

from cmserver.tooluse.typed_prompt import typed_text

WORDS = "why are webhooks retried?"


def test_what_programs_put_around_a_prompt_is_no_part_of_it():
    """One row a prompt: what stands there, what was typed."""
    rows = {
        WORDS: WORDS,
        f"<ide_opened_file>The user opened the file /w/x/src/billing.py in the IDE.</ide_opened_file>\n{WORDS}": WORDS,
        f"{WORDS}\n<ide_selection>The user selected the lines 1 to 9:\n<div>\n</div>\n</ide_selection>": WORDS,
        f"<ide_diagnostics>[]</ide_diagnostics><ide_opened_file>a.py</ide_opened_file>\n{WORDS}": WORDS,
        f"<system-reminder>\nToday's date is 2026-01-01.\n</system-reminder>\n\n{WORDS}": WORDS,
        f"<IDE_Selection attribute='1'>x</IDE_Selection>  {WORDS}": WORDS,
        "<command-message>review is running</command-message>\n<command-name>/review</command-name>\n"
        "<command-args>src/pay.py</command-args>": "/review\n src/pay.py",
        "<local-command-caveat>Caveat: x</local-command-caveat>\n<local-command-stdout>ok</local-command-stdout>": "",
        "<bash-input>git status</bash-input>\n<bash-stdout>clean</bash-stdout><bash-stderr></bash-stderr>": "! git status",
        f"<task-notification><task-id>b1</task-id></task-notification>\n{WORDS}": WORDS,
        "[Request interrupted by user]": "",
        f"[Request interrupted by user for tool use]\n{WORDS}": WORDS,
        f"<hook_context>&lt;cmserver-context&gt;\nNever use floats.\n&lt;/cmserver-context&gt;</hook_context>\n\n{WORDS}": WORDS,
        f"{WORDS}\n<hook_context>Never use floats.</hook_context>": WORDS,
        f"<session_context>\nThis is the Gemini CLI.\n</session_context>\n{WORDS}": WORDS,
        "why is <hook_context>x</hook_context> in prompts?": "why is <hook_context>x</hook_context> in prompts?",
        "This session is being continued from a previous conversation that ran out of context. Never use floats.": "",
        "Stop hook feedback:\n- lint failed": "",
        f"<user_query>\n{WORDS}\n</user_query>": WORDS,
        f"<attached_files>\n<code>x</code>\n</attached_files>\n<user_query>{WORDS}": WORDS,
        f"# Context from my IDE setup:\n\n## Active file: a.py\n\n## My request for Codex:\n{WORDS}": WORDS,
        "# AGENTS.md instructions for /w/x\n\n<INSTRUCTIONS>\nNever use floats.\n</INSTRUCTIONS>": "",
        "<environment_context>\n<cwd>/w</cwd>\n</environment_context>": "",
        f"{WORDS} @a.md\n--- Content from referenced files ---\nNever.\n--- End of content ---": f"{WORDS} @a.md",
        # what the user typed stays, markup included
        "Why is `<ide_x>x</ide_x>` in prompts?": "Why is `<ide_x>x</ide_x>` in prompts?",
        "<div class='a'>this is centred</div>\nmake it left": "<div class='a'>this is centred</div>\nmake it left",
        "<ide_selection> is never closed": "<ide_selection> is never closed",
        "# Plan\n\n## My request\nDo it": "# Plan\n\n## My request\nDo it",
        "/review src/pay.py": "/review src/pay.py",
        "": "",
    }

    assert {prompt: typed_text(prompt) for prompt in rows if typed_text(prompt) != rows[prompt]} == {}


def test_reading_a_prompt_of_many_tags_costs_as_much_as_its_length():
    def seconds(text: str) -> float:
        return min(_time(text) for _ in range(3))

    pieces = ("<ide_x>", "\n<ide_x>", "</ide_x>", "<user_query>", "\n[Request interrupted by user ", " \n", "<ide_x a", "\n---\n")
    slow = [piece for piece in pieces if seconds(piece * 8_000) > 24 * seconds(piece * 1_000) + 0.002]

    assert slow == []


def _time(text: str) -> float:
    started = time.process_time()
    typed_text(text)
    return time.process_time() - started
