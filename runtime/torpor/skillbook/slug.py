"""Names as people write them, made safe to be named by a model: ``[a-z0-9-]``, at most 64 characters. PURE."""

import hashlib
import unicodedata
from typing import Final

import regex

NAME_CHARS_MAX: Final = 64
_OTHER: Final = regex.compile(r"[^a-z0-9]+")
_SPEAKING: Final = regex.compile(r"[\p{L}\p{N}\p{So}--[A-Za-z0-9]]", regex.V1)
_DIGEST_CHARS: Final = 6


def slug(name: str) -> str:
    """The key of ``name``; equal for what looks equal to a reader (capitals, accents, kinds of separators).

    Letters that have no counterpart in it are replaced by a few digits of a digest, so that names in other scripts stay
    apart and a look-alike is not taken for its model.
    """
    # Twice, since lower case may decompose what was composed.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).lower())
    bare = "".join(char for char in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(char))
    key = _OTHER.sub("-", bare).strip("-")
    if key and not _SPEAKING.search(bare) and len(key) <= NAME_CHARS_MAX:
        return key
    digest = hashlib.sha256(folded.encode(errors="replace")).hexdigest()[:_DIGEST_CHARS]
    head = key[: NAME_CHARS_MAX - _DIGEST_CHARS - 1].rstrip("-") or "skill"
    return f"{head}-{digest}"
