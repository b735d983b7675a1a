"""What a host or a library said, as the text of an error: pure.

It goes on record and to clients, so it is made storable and short, and what nobody may read is taken out of it: hosts
and proxies repeat the key that they refuse.
"""

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from torpor.conversation.graphemes import cut
from torpor.conversation.text import clean

DETAIL_CHARS_MAX: Final = 500
"""Of the text of an error."""
HIDDEN: Final = "[hidden]"
WORD_CHARS_MAX: Final = 7
"""A secret of so many characters may be a word, or a letter: it is hidden only where it stands alone."""
_LOOKED_AT_MAX: Final = 16_384
"""More of a text than this is not searched, and so not told."""


class Wording:
    """Knows what to hide."""

    def __init__(self, *, secrets: Iterable[str]) -> None:
        """Args: secrets: as they are; they are found as URLs, JSON and HTML write them, too."""
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._secret = re.compile("|".join(map(_pattern, longest_first)), re.IGNORECASE) if forms else None

    def told(self, text: str, *, chars_max: int = DETAIL_CHARS_MAX) -> str:
        """``text`` as it may be read by anybody; never more than ``chars_max`` code points."""
        plain = text[:_LOOKED_AT_MAX]
        if self._secret is not None:
            plain = self._secret.sub(HIDDEN, plain)
        plain = clean(plain[: 2 * chars_max]).text
        return cut(plain, chars_max=chars_max) or plain[:chars_max]


def secrets_of_url(url: str) -> tuple[str, ...]:
    """What of a URL's user and password nobody may read; none where it has no password."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not password:
        return ()
    return password, base64.b64encode(f"{user}:{password}".encode()).decode()


def _forms(secret: str) -> tuple[str, ...]:
    return secret, quote(secret, safe=""), html.escape(secret), json.dumps(secret)[1:-1]


def _pattern(form: str) -> str:
    escaped = re.escape(form)
    return escaped if len(form) > WORD_CHARS_MAX else rf"(?<![\w-]){escaped}(?![\w-])"
