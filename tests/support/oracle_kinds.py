"""Names that records and errors have, as the oracle knows them."""

PUBLIC_KINDS = frozenset(
    {"message_received", "turn_prepared", "model_replied", "model_failed", "tool_started", "tool_finished"}
    | {
        "message_retracted",
        "conversation_renamed",
        "conversation_archived",
        "conversation_unarchived",
        "conversation_forked",
        "context_changed",
        "context_replaced",
        "compaction_failed",
        "live_context_replaced",
        "live_context_failed",
        "skill_loaded",
        "subagent_started",
        "subagent_finished",
        "late_result",
        "turn_finished",
        "turn_cancelled",
        "turn_failed",
        "turn_refused",
    }
)
FINAL = frozenset({"end_turn", "stop_sequence", "tool_use", "max_tokens"})
"""Reasons to stop after which a reply without calls may be the answer."""
CODES_OF_FILES = {
    "missing": {"attachment_missing"},
    "damaged": {"attachment_damaged"},
    "refused": {"attachment_not_taken", "model_request_invalid", "model_request_too_large"},
}
"""Of the failed call before files are withdrawn, by why they are."""
