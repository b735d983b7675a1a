"""Text from anywhere, made fit for a terminal: nothing in it is obeyed. Pure."""

import re
from typing import Final

from torpor.conversation.text import clean

_OBEYED: Final = re.compile("[\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Controls of eight bits, ends of lines that are none, and what turns the direction of what follows."""
_BLANKS: Final = re.compile(r"[\t\r\n]+")


def harmless(text: str) -> str:
    """Its lines and tabs stay."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", clean(text).text)


def on_one_line(text: str) -> str:
    """The same as one line."""
    return _BLANKS.sub(" ", harmless(text))
