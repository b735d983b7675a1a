"""Names of bodies: the content's hash, within a folder for each owner. Pure."""

import hashlib
import re
from typing import Final

from torpor.records.ids import ConversationKey

HANDLE: Final = re.compile(r"[0-9a-f]{64}")
"""The sha256 of the content, which must match in full."""


def folder_of(key: ConversationKey) -> str:
    """Of the owner: names of people may be anything, names of folders may not."""
    # A slash can be in neither name, so no two owners share a hash's input.
    return hashlib.sha256(f"{key.tenant}/{key.owner}".encode()).hexdigest()[:32]
