"""Names of things: who owns a conversation, which one it is, which message was meant."""

import re
from typing import Final, NewType

import msgspec

MessageId = NewType("MessageId", str)
"""Chosen by the client, unique within the conversation; a resend carries the same one."""
NO_MESSAGE: Final = MessageId("")
CallId = NewType("CallId", str)
"""The model's id of one tool call, unique within the conversation."""

CONVERSATION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a conversation id and a message id must match in full."""
OWNER_ID: Final = re.compile(r"[^/\x00-\x20\x7f]{1,128}")
"""What a tenant and an owner must match in full: no slash, no blanks, no controls."""

JOB_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""What the id of a job must match in full."""

CHILD_MARK: Final = "/"
"""Between the name of a conversation and that of a sub-agent which works for it."""

DEFAULT_TENANT: Final = "default"
"""Of those whose token names none, and of ids on command lines."""


class ConversationKey(msgspec.Struct, frozen=True, order=True):
    """The only name by which a store is asked: the owner's, never a bare id."""

    tenant: str
    owner: str
    conversation: str

    @property
    def path(self) -> str:
        """``tenant/owner/conversation``, as people write it."""
        return f"{self.tenant}/{self.owner}/{self.conversation}"

    @property
    def is_child(self) -> bool:
        """Whether it is a sub-agent's: no client can name one, since its name has a slash."""
        return CHILD_MARK in self.conversation

    @property
    def root(self) -> "ConversationKey":
        """The conversation that a sub-agent works for in the end; of any other one, itself."""
        if not self.is_child:
            return self
        return ConversationKey(self.tenant, self.owner, self.conversation.partition(CHILD_MARK)[0])

    def child(self, name: str) -> "ConversationKey":
        """A sub-agent's that this one has; ``name`` matches ``CONVERSATION_ID``."""
        return ConversationKey(self.tenant, self.owner, f"{self.conversation}{CHILD_MARK}{name}")
