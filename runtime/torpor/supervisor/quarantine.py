"""Setting a conversation aside, and taking it back: the mark in the store, and word to those that watch.

Above: the registry, which has ended its actor before. The journal is not touched; what it holds can be read all the
while.
"""

import structlog

from torpor.actor.parts import ActorParts
from torpor.errors import Quarantined, StoreError
from torpor.records.ids import ConversationKey
from torpor.store.contract import QuarantineKind

_log = structlog.get_logger()


async def mark(key: ConversationKey, parts: ActorParts, *, kind: QuarantineKind, reason: str) -> None:
    """No actor starts from now on. Raises: StoreError: it is not marked."""
    await parts.store.quarantine(key, reason=reason, kind=kind, at_us=parts.clock.now_us())
    tell = _log.info if kind is QuarantineKind.OPERATOR else _log.error
    tell("conversation.quarantined", conversation=key.path, kind=kind.value, reason=reason)
    parts.bus.publish_standing(key)


async def mark_if_possible(
    key: ConversationKey, parts: ActorParts, *, kind: QuarantineKind, reason: str
) -> Quarantined:
    """The same for what was found out here; what cannot be written now is found out again at the next thaw."""
    try:
        await mark(key, parts, kind=kind, reason=reason)
    except StoreError as exc:
        _log.error("quarantine.failed", conversation=key.path, reason=reason, why=str(exc))
    return Quarantined(key.conversation, reason=reason)


async def lift(key: ConversationKey, parts: ActorParts) -> bool:
    """Take the mark away. Returns: whether a turn is due. Raises: StoreError: it is still marked."""
    await parts.store.quarantine(key, reason="")
    _log.info("conversation.released", conversation=key.path)
    parts.bus.publish_standing(key)
    row = await parts.store.describe(key)
    return row is not None and row.due_us is not None
