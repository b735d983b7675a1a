"""Every error says who must act, what repeating may do, and what was expected."""

import inspect

import pytest

from torpor import attachment_errors, errors, provider_errors
from torpor.actor.lifecycle import ActorState, Signal
from torpor.errors import Retry, TorporError

SAMPLES = [
    errors.BadFrame("frame cannot be read"),
    errors.EmptyMessage(),
    errors.TooLong("message", size_bytes=102, max_bytes=100, bound="gateway.message_bytes_max"),
    errors.TooManySubscriptions(64),
    errors.TooManyConnections(100, retry_after_s=10.0),
    errors.TooManyFrames(rate=50.0, retry_after_s=0.1),
    errors.Unauthenticated("no token"),
    errors.TokenExpired(),
    errors.KeysUnavailable(retry_after_s=4.0),
    errors.NotPermitted("hibernate", scope="operator"),
    errors.UnknownConversation("c_1"),
    errors.ConversationExists("c_1"),
    errors.ConversationExists("c_1", agent="clinic", named="desk"),
    errors.ConversationDeleted("c_1"),
    errors.NotForkable("conversation 'c_1' cannot be forked there, no turn took message 'm_1' yet"),
    errors.NotRetractable("message 'm_1' cannot be retracted, only the last one can be, once"),
    errors.TooManyConversations(limit=10),
    errors.UnknownAgent("cook", known=("clerk",)),
    errors.Busy("mailbox", waiting=64, bound="actor.mailbox_capacity", retry_after_s=1.5),
    errors.TooManyUpdates(updates_max=128),
    errors.TooManyChanges("conversation was changed 128 times"),
    errors.Rejected(turn=3),
    errors.NotNow(turn=3, deadline_s=5.0),
    errors.NothingToCancel(),
    errors.NotOffered("retry"),
    errors.Quarantined("c_1", reason="record 7 is missing"),
    errors.Unavailable("the server is stopping", retry_after_s=1.0),
    errors.UnknownJob("reception/c_1/j_1"),
    errors.JobIsRunning("reception/c_1/j_1", retry_after_s=1.0),
    errors.ToolInputInvalid("expected int, got str"),
    errors.ToolUnknown("gone", known=("look", "pay")),
    errors.ToolTimedOut("pay", deadline_s=30.0),
    errors.ToolRefused("not after ten"),
    errors.ToolFailed("no such account"),
    errors.SkillFileUnreadable("triage", path="a.md", why="it is not there"),
    provider_errors.ProviderUnavailable("overloaded"),
    provider_errors.RateLimited("too many requests", retry_after_s=7.0),
    provider_errors.Overloaded("no capacity"),
    provider_errors.StreamLost("the stream ended before the reply did"),
    provider_errors.ModelTimedOut("no complete reply within 600 s"),
    provider_errors.ContextTooLong("prompt is too long"),
    provider_errors.RequestInvalid("too odd"),
    provider_errors.AttachmentNotTaken("could not process image", at=(0, 1)),
    provider_errors.AttachmentMissing((0, 2)),
    provider_errors.AttachmentDamaged((0, 2)),
    provider_errors.AttachmentsUnavailable("attachments cannot be read now"),
    provider_errors.RequestTooLarge("the request has 40 MB, expected at most 32"),
    provider_errors.KeyRefused("invalid key"),
    provider_errors.BillingRefused("no credit"),
    provider_errors.ModelUnknown("no model 'm'"),
    attachment_errors.AttachmentRefused("file 'a' is nothing"),
    attachment_errors.AttachmentEmpty("file 'a' has no bytes"),
    attachment_errors.AttachmentTooLarge("file 'a' has 40 bytes, expected at most 30"),
    attachment_errors.AttachmentUnsupported("file 'a' is a video, expected a picture"),
    attachment_errors.AttachmentEncrypted("document 'a' is encrypted, expected one without a password"),
    attachment_errors.AttachmentUnreadable("picture 'a' is damaged, expected a whole one"),
    attachment_errors.AttachmentTooManyPages("document 'a' has 200 pages, expected at most 100"),
    attachment_errors.TooManyAttachments(33, what="attachments", most=32),
    attachment_errors.UnknownAttachment(),
    attachment_errors.UnknownUpload("u_1"),
    attachment_errors.UploadOutOfStep("u_1", offset=7, received_bytes=3),
    attachment_errors.UploadDiffers("u_1", what="has another digest than was announced"),
    attachment_errors.TooManyUploads(16, what="uploads", most=16, retry_after_s=1.0, remedy="wait"),
    errors.JobFailed("no answer", retry_after_s=60.0),
    errors.JobImpossible("its conversation has no such turn"),
    errors.Fenced("k", fence=1, newer=2),
    errors.WrongSequence("k", expected_seq=1, head_seq=2),
    errors.DuplicateMessage("k", message_id="m", receipt=b"{}"),
    errors.JobLost("k", job="j_1"),
    errors.LeaseHeld("k", holder="s_1", until_us=7),
    errors.StoreFull("the disk is full"),
    errors.StoreGone("the database is not there any more"),
    errors.StoreUnavailable("lost"),
    errors.JournalCorrupt("k", reason="record 7 is missing"),
    errors.StoreUnusable("the database is locked"),
    errors.ConfigError("agents/clerk.toml", key="max_tokens", found=-1, expected="a positive number"),
    errors.InvariantBroken("a ticket was woken without an outcome"),
    errors.IllegalTransition(ActorState.IDLE, Signal.LOADED),
]
ROOTS = {
    TorporError,
    errors.ClientError,
    errors.ToolError,
    provider_errors.ProviderError,
    errors.JobError,
    errors.StoreError,
}
KINDS = {
    kind
    for module in (errors, provider_errors, attachment_errors)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, TorporError)
}


def test_there_is_a_sample_of_every_kind() -> None:
    assert {type(sample) for sample in SAMPLES} == KINDS - ROOTS


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_the_text_is_one_sentence_fragment_for_people(error: TorporError) -> None:
    text = str(error)
    assert text
    assert not text.endswith(".")
    assert "\n" not in text
    assert text[0].islower() or text.startswith(("LOADED", "agents/"))


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_the_code_is_a_stable_word(error: TorporError) -> None:
    assert error.code.replace("_", "").isalpha()
    assert error.code.islower()


def test_only_a_tool_that_failed_shares_its_code_with_its_root() -> None:
    codes = [kind.code for kind in KINDS - ROOTS - {errors.ToolFailed}]
    assert len(set(codes)) == len(codes)


def test_what_may_be_repeated_is_told_apart_from_what_must_be_looked_into() -> None:
    safe = {type(error).__name__ for error in SAMPLES if error.retry is Retry.SAFE}
    unknown = {type(error).__name__ for error in SAMPLES if error.retry is Retry.UNKNOWN_OUTCOME}
    passing = {"ProviderUnavailable", "RateLimited", "Overloaded", "StreamLost", "AttachmentsUnavailable"}
    assert (
        safe
        == {
            "Busy",
            "NotNow",
            "Unavailable",
            "JobIsRunning",
            "JobFailed",
            "LeaseHeld",
            "StoreFull",
            "StoreGone",
            "KeysUnavailable",
        }
        | {
            "TooManyUpdates",
            "TooManyChanges",
            "TooManyConnections",
            "TooManyFrames",
            "TooManyUploads",
            "UploadOutOfStep",
        }
        | passing
    )
    assert unknown == {"ToolTimedOut", "StoreUnavailable"}


def test_errors_keep_what_they_were_made_of() -> None:
    busy = errors.Busy("mailbox", waiting=64, bound="actor.mailbox_capacity", retry_after_s=1.5)
    assert str(busy) == ("mailbox is full (64 waiting), retry in 1.5 s; an operator may raise actor.mailbox_capacity")
    assert (busy.what, busy.waiting, busy.retry_after_s) == ("mailbox", 64, 1.5)
    assert str(errors.UnknownAgent("cook", known=())) == "no agent 'cook' in this home, expected one of none"
    fenced = errors.Fenced("k", fence=1, newer=2)
    assert (fenced.key, fenced.fence, fenced.newer) == ("k", 1, 2)
