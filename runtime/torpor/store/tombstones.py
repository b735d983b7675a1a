"""What is kept of a conversation that was erased, so that it and copies of it can be recognised. Pure.

Both digests need a secret that each store has of its own, so that tombstones of two stores cannot be compared, and a
copy of tombstones alone gives no way to try names or texts. Whoever has the whole database can try names.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.records.ids import ConversationKey

_ROW: Final = msgspec.json.Decoder(list[msgspec.Raw])


def path_mark(key: ConversationKey, *, secret: bytes) -> str:
    """Stands for a name, 64 hex digits."""
    return hmac.new(secret, b"path\n" + key.path.encode(), hashlib.sha256).hexdigest()


class RecordsDigest:
    """Of records in their order, each as it is written in its row; an export has them a line each."""

    def __init__(self, *, secret: bytes) -> None:
        self._digest = hmac.new(secret, b"records\n", hashlib.sha256)

    def add(self, record: bytes) -> None:
        self._digest.update(record + b"\n")

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def digest_of(rows: Iterable[bytes], *, secret: bytes) -> str:
    """Of the rows of a journal, oldest first; empty when one of them cannot be taken apart."""
    digest = RecordsDigest(secret=secret)
    try:
        for row in rows:
            for record in _ROW.decode(row):
                digest.add(bytes(record))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return digest.hexdigest()
