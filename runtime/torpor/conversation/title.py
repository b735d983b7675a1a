"""What a person calls a conversation, made fit for a line of a list. Pure."""

from typing import Final

from torpor.conversation.graphemes import cut
from torpor.conversation.text import clean, is_blank

TITLE_CHARS_MAX: Final = 200
"""In code points; a longer title is cut between characters as people see them."""


def titled(text: str) -> str:
    """One line that can be stored and shown; empty when nothing of it is visible."""
    line = cut(" ".join(clean(text).text.split()), chars_max=TITLE_CHARS_MAX).rstrip()
    return "" if is_blank(line) else line
