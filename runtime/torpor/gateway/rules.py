"""Which frame needs which scope, and who serves it.

Above: the session, which knows who is asking and hands frames over one after the other. Below: modules of
functions for what is said in a conversation, for conversations as a whole, for operators, and for the server. A frame
that is missing in the table fails a test.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from torpor.errors import NotPermitted
from torpor.gateway import chat_frames, operator_frames, own_frames, server_frames, upload_frames
from torpor.gateway.auth import Principal, Scope
from torpor.gateway.desk import Desk, tag
from torpor.records.frames import (
    Ack,
    Archive,
    BeginUpload,
    Cancel,
    ClientFrame,
    CountJobs,
    Create,
    Delete,
    DrainServer,
    DropJob,
    DropUpload,
    Fetch,
    FinishUpload,
    ForgetOwner,
    Fork,
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
    ThawConversation,
    Unarchive,
    Unsubscribe,
    UpdateContext,
    UploadPiece,
)


class Rule(msgspec.Struct, frozen=True):
    """What a frame needs, and who serves it."""

    scope: Scope
    serve: Callable[[Desk, Any, Principal], None]


RULES: Final[dict[type[ClientFrame], Rule]] = {
    Subscribe: Rule(Scope.CHAT, Desk.subscribe),
    Unsubscribe: Rule(Scope.CHAT, Desk.unsubscribe),
    Ack: Rule(Scope.CHAT, Desk.ack),
    Send: Rule(Scope.CHAT, chat_frames.send),
    Create: Rule(Scope.CHAT, own_frames.create),
    Rename: Rule(Scope.CHAT, own_frames.rename),
    Archive: Rule(Scope.CHAT, own_frames.archive),
    Unarchive: Rule(Scope.CHAT, own_frames.unarchive),
    Retract: Rule(Scope.CHAT, own_frames.retract),
    Fork: Rule(Scope.CHAT, own_frames.fork),
    Delete: Rule(Scope.CHAT, own_frames.delete),
    Refresh: Rule(Scope.CHAT, chat_frames.refresh),
    UpdateContext: Rule(Scope.CHAT, chat_frames.update_context),
    Cancel: Rule(Scope.CHAT, chat_frames.cancel),
    ReadHistory: Rule(Scope.CHAT, chat_frames.history),
    ReadBundle: Rule(Scope.CHAT, own_frames.bundle),
    BeginUpload: Rule(Scope.CHAT, upload_frames.begin),
    UploadPiece: Rule(Scope.CHAT, upload_frames.piece),
    FinishUpload: Rule(Scope.CHAT, upload_frames.finish),
    DropUpload: Rule(Scope.CHAT, upload_frames.drop),
    Fetch: Rule(Scope.CHAT, upload_frames.fetch),
    Link: Rule(Scope.CHAT, upload_frames.link),
    ListConversations: Rule(Scope.CHAT, chat_frames.list_conversations),
    HibernateConversation: Rule(Scope.OPERATOR, operator_frames.hibernate),
    ThawConversation: Rule(Scope.OPERATOR, operator_frames.thaw),
    QuarantineConversation: Rule(Scope.OPERATOR, operator_frames.quarantine),
    ReleaseConversation: Rule(Scope.OPERATOR, operator_frames.release),
    ForgetOwner: Rule(Scope.OPERATOR, operator_frames.forget),
    InspectConversation: Rule(Scope.OPERATOR, operator_frames.inspect),
    ListJobs: Rule(Scope.OPERATOR, operator_frames.list_jobs),
    CountJobs: Rule(Scope.OPERATOR, operator_frames.count_jobs),
    RetryJob: Rule(Scope.OPERATOR, operator_frames.retry_job),
    DropJob: Rule(Scope.OPERATOR, operator_frames.drop_job),
    ReadNumbers: Rule(Scope.OPERATOR, server_frames.statistics),
    ListTurns: Rule(Scope.OPERATOR, server_frames.turns),
    ListMcp: Rule(Scope.OPERATOR, server_frames.mcp),
    DrainServer: Rule(Scope.OPERATOR, server_frames.drain),
}
"""Every frame but ``hello``, which is the session's own."""


def serve(frame: ClientFrame, *, at: Desk, by: Principal) -> None:
    """Do what ``frame`` asks, or set it going.

    Raises: ClientError: nothing was done.
    """
    rule = RULES[type(frame)]
    if not by.may(rule.scope):
        raise NotPermitted(tag(frame), scope=rule.scope.value)
    rule.serve(at, frame, by)
