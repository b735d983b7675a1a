"""A tool that returns what tools returned when a conversation was recorded."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from torpor import tool

RECORDINGS = Path(__file__).parent.parent / "recordings.json"


@cache
def _recordings() -> dict[str, Any]:
    return {recording["name"]: recording for recording in json.loads(RECORDINGS.read_text(encoding="utf-8"))}


@tool(effect="read")
async def replay(recording: str, turn: int, reply: int, index: int) -> str:
    """Return the result that was recorded.

    Args:
        recording: Which conversation.
        turn: Which of its turns, from 1.
        reply: Which reply of the turn, from 1.
        index: Which call of the reply, from 0.
    """
    result: str = _recordings()[recording]["turns"][turn - 1]["replies"][reply - 1]["results"][index]
    return result
