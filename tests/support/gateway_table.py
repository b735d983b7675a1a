"""Every frame that a client may send, made for a conversation: one line for each kind.

Tests that must hold for all frames go over this table. A kind that is missing here fails them, so whoever adds a frame
adds its line.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

import msgspec
import pytest

from torpor.records.bounds import Amount, Count, Place, RowCount
from torpor.records.context import WorkingContext
from torpor.records.frames import (
    Ack,
    AnyClientFrame,
    Archive,
    BeginUpload,
    Cancel,
    ClientFrame,
    CountJobs,
    Create,
    Cursor,
    Delete,
    DrainServer,
    DropJob,
    DropUpload,
    Fetch,
    FinishUpload,
    ForgetOwner,
    Fork,
    Hello,
    HibernateConversation,
    InspectConversation,
    Link,
    ListConversations,
    ListJobs,
    ListMcp,
    ListTurns,
    QuarantineConversation,
    ReadBundle,
    ReadHistory,
    ReadNumbers,
    Refresh,
    ReleaseConversation,
    Rename,
    Retract,
    RetryJob,
    Send,
    Subscribe,
    Subscription,
    ThawConversation,
    Unarchive,
    Unsubscribe,
    UpdateContext,
    UploadPiece,
)
from torpor.records.ids import MessageId

KINDS: Final[tuple[type[ClientFrame], ...]] = get_args(AnyClientFrame)
REF: Final = "r1"
MESSAGE_ID: Final = MessageId("m_of_the_table")

BUNDLE: Final = hashlib.sha256(b"{}").hexdigest()
"""Of one that nobody left, unless a test has somebody leave it."""

NAMING: Final[dict[type[ClientFrame], Callable[[str], ClientFrame]]] = {
    Hello: lambda name: Hello(ref=REF, subscriptions=(Subscription(conversation=name),)),
    Subscribe: lambda name: Subscribe(ref=REF, subscription=Subscription(conversation=name, cursor=Cursor(event=1))),
    Unsubscribe: lambda name: Unsubscribe(ref=REF, conversation=name),
    Send: lambda name: Send(ref=REF, conversation=name, message_id=MESSAGE_ID, text="hello"),
    Create: lambda name: Create(ref=REF, conversation=name),
    Rename: lambda name: Rename(ref=REF, conversation=name, title="another"),
    Archive: lambda name: Archive(ref=REF, conversation=name),
    Unarchive: lambda name: Unarchive(ref=REF, conversation=name),
    Retract: lambda name: Retract(ref=REF, conversation=name, message_id=MESSAGE_ID),
    Fork: lambda name: Fork(ref=REF, conversation=name, into="c_forked"),
    Delete: lambda name: Delete(ref=REF, conversation=name),
    UpdateContext: lambda name: UpdateContext(ref=REF, conversation=name, context=WorkingContext()),
    Refresh: lambda name: Refresh(ref=REF, conversation=name),
    Cancel: lambda name: Cancel(ref=REF, conversation=name),
    Ack: lambda name: Ack(ref=REF, conversation=name, event=1),
    ReadBundle: lambda name: ReadBundle(ref=REF, conversation=name, bundle=BUNDLE),
    ReadHistory: lambda name: ReadHistory(ref=REF, conversation=name),
    Fetch: lambda name: Fetch(ref=REF, conversation=name, blob=BUNDLE),
    Link: lambda name: Link(ref=REF, conversation=name, blob=BUNDLE),
    ListConversations: lambda name: ListConversations(ref=REF, after=name),
    HibernateConversation: lambda name: HibernateConversation(ref=REF, path=name),
    ThawConversation: lambda name: ThawConversation(ref=REF, path=name),
    QuarantineConversation: lambda name: QuarantineConversation(ref=REF, path=name, reason="looks wrong"),
    ReleaseConversation: lambda name: ReleaseConversation(ref=REF, path=name),
    InspectConversation: lambda name: InspectConversation(ref=REF, path=name),
    ForgetOwner: lambda name: ForgetOwner(ref=REF, owner=name),
    ListJobs: lambda name: ListJobs(ref=REF, after=f"{name}/j_1"),
    RetryJob: lambda name: RetryJob(ref=REF, path=f"{name}/j_1"),
    DropJob: lambda name: DropJob(ref=REF, path=f"{name}/j_1"),
}
"""Kinds that name a conversation, about the one of that name."""

UPLOADING: Final[dict[type[ClientFrame], ClientFrame]] = {
    BeginUpload: BeginUpload(ref=REF, upload="u_1", name="scan.png", size_bytes=3, sha256=BUNDLE),
    UploadPiece: UploadPiece(ref=REF, upload="u_1", offset=0, data=b"abc"),
    FinishUpload: FinishUpload(ref=REF, upload="u_1"),
    DropUpload: DropUpload(ref=REF, upload="u_1"),
}
"""Kinds that are about a file on its way, which is whose the connection is."""

NAMELESS: Final[dict[type[ClientFrame], ClientFrame]] = {
    **UPLOADING,
    CountJobs: CountJobs(ref=REF),
    ReadNumbers: ReadNumbers(ref=REF),
    ListTurns: ListTurns(ref=REF),
    ListMcp: ListMcp(ref=REF),
    DrainServer: DrainServer(ref=REF),
}
"""Kinds that name none."""


_OF_FILES: Final = frozenset({"ref", "upload", "name", "sha256"})


def tag(kind: type[ClientFrame]) -> str:
    """What ``frame`` says on the wire."""
    return str(kind.__struct_config__.tag)


def on_backends(kinds: Iterable[type[ClientFrame]]) -> list[Any]:
    """Cases of ``("kind", "anyio_backend")``: all on trio, which tells at once that nothing moves, and the first two on
    asyncio, where each time takes a tenth of a second."""
    listed = list(kinds)
    cases = [(kind, "trio") for kind in listed] + [(kind, "asyncio") for kind in listed[:2]]
    return [pytest.param(kind, backend, id=f"{tag(kind)}-{backend}") for kind, backend in cases]


def example(kind: type[ClientFrame], name: str = "c1") -> ClientFrame:
    """A frame of that kind that is well formed."""
    return NAMING[kind](name) if kind in NAMING else NAMELESS[kind]


def names_nothing(kind: type[ClientFrame]) -> bool:
    """Whether a frame of that kind cannot name a conversation: it has no field for text but ``ref``, and what a client
    calls a file of its own."""
    numbers = {int, float, bool, bytes, RowCount, Count, Amount, Place}
    return all(field.name in _OF_FILES or field.type in numbers for field in msgspec.structs.fields(kind))
