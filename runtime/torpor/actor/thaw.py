"""From store to state: snapshot and tail, or the whole journal; anything doubtful fails closed."""

import msgspec
import structlog

from torpor.conversation.fold import fold
from torpor.conversation.snapshot import SNAPSHOT_VERSION, BadSnapshot, decode_snapshot
from torpor.conversation.state import BadHistory, ConversationState
from torpor.errors import JournalCorrupt
from torpor.records.ids import ConversationKey
from torpor.store.contract import Loaded, Store

_log = structlog.get_logger()


class Thawed(msgspec.Struct, frozen=True, kw_only=True):
    """A state and how much of it stands on a snapshot."""

    state: ConversationState
    snapshot: ConversationState | None = None
    """The state that the snapshot held; None when it was not used."""


async def thaw(store: Store, key: ConversationKey) -> Thawed:
    """Load and fold.

    A snapshot that cannot be used is ignored in favour of the journal; one ahead of the journal proves lost records.
    Raises: JournalCorrupt: the journal cannot be read or continued.
    """
    loaded = await store.load(key)
    snapshot = loaded.snapshot
    if snapshot is not None and snapshot.seq > loaded.head.seq:
        reason = f"its snapshot stands at record {snapshot.seq}, the journal ends at {loaded.head.seq}"
        raise JournalCorrupt(key.path, reason=reason)
    base = _from_snapshot(key, loaded)
    if base is not None:
        try:
            return Thawed(state=_folded(key, base, loaded), snapshot=base)
        except JournalCorrupt as exc:  # the whole journal tells which of the two is wrong
            _log.warning("snapshot.ignored", conversation=key.path, seq=base.seq, why=str(exc))
    if snapshot is not None:
        loaded = await store.load(key, use_snapshot=False)
    return Thawed(state=_folded(key, ConversationState(), loaded))


def _from_snapshot(key: ConversationKey, loaded: Loaded) -> ConversationState | None:
    snapshot = loaded.snapshot
    if snapshot is None or snapshot.version != SNAPSHOT_VERSION:
        return None
    try:
        state = decode_snapshot(snapshot.data)
    except BadSnapshot as exc:
        _log.warning("snapshot.ignored", conversation=key.path, seq=snapshot.seq, why=str(exc))
        return None
    return state if state.seq == snapshot.seq else None


def _folded(key: ConversationKey, base: ConversationState, loaded: Loaded) -> ConversationState:
    try:
        state = fold(base, loaded.tail)
    except (BadHistory, msgspec.DecodeError) as exc:
        raise JournalCorrupt(key.path, reason=str(exc)) from exc
    if (state.seq, state.event) != (loaded.head.seq, loaded.head.event):
        reason = f"it folds to record {state.seq}, event {state.event}; its head says {loaded.head!r}"
        raise JournalCorrupt(key.path, reason=reason)
    return state
