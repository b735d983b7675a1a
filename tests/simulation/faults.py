"""What can go wrong in a run, and how a seed decides how much of it does.

Every seed draws its own plan: some faults are off, the others have a chance each, so that rare ones are not always
drowned by common ones. Sizes and bounds of the engine are drawn as well, since many mistakes show at small bounds only.
"""

from enum import StrEnum
from random import Random
from typing import Final

import msgspec


class Fault(StrEnum):
    """Every kind of misfortune; each must occur in the sample."""

    CRASH_AT_STEP = "crash_at_step"
    """The process ends at a step of its scheduler."""
    CRASH_AT_PORT = "crash_at_port"
    """The process ends at a call of a port, before or behind what the call does."""
    STOPPED = "stopped"
    """The process is asked to stop, and gets its time."""
    PAUSED = "paused"
    """The process stands still, at times for longer than its leases live."""
    CLOCK_JUMPED = "clock_jumped"
    QUARANTINED = "quarantined"
    """An operator sets a conversation aside, and another one releases it later."""
    STORE_LOST_REPLY = "store_lost_reply"
    """Carried out, and answered as unavailable."""
    STORE_UNAVAILABLE = "store_unavailable"
    """Not carried out."""
    STORE_FULL = "store_full"
    STORE_SLOW = "store_slow"
    STORE_WRONG_SEQUENCE = "store_wrong_sequence"
    """Carried out, and answered as a sequence that is taken: what a repeated request hears."""
    STORE_READ_FAILED = "store_read_failed"
    SNAPSHOT_REFUSED = "snapshot_refused"
    SNAPSHOT_DAMAGED = "snapshot_damaged"
    SNAPSHOT_DELETED = "snapshot_deleted"
    BLOB_REFUSED = "blob_refused"
    MODEL_UNAVAILABLE = "model_unavailable"
    """Before any text; another time it may answer."""
    MODEL_REFUSED_REQUEST = "model_refused_request"
    """Before any text, and for good."""
    MODEL_LOST = "model_lost"
    """In the middle of the text."""
    MODEL_SLOW = "model_slow"
    MODEL_TIMED_OUT = "model_timed_out"
    MODEL_CRASHED = "model_crashed"
    """The adapter raises what no contract allows."""
    MODEL_EMPTY = "model_empty"
    MODEL_MANY_CALLS = "model_many_calls"
    """More calls in one reply than one append holds records."""
    MODEL_BLANK = "model_blank"
    """A text block that says nothing."""
    MODEL_BAD_INPUT = "model_bad_input"
    """Arguments that are no object, or not what the tool takes."""
    MODEL_CUT_INPUT = "model_cut_input"
    """Arguments that did not arrive whole."""
    MODEL_UNKNOWN_TOOL = "model_unknown_tool"
    MODEL_SAME_IDS = "model_same_ids"
    """Calls under an id that was given before."""
    MODEL_REFUSED = "model_refused"
    """It says no, before or after some words."""
    MODEL_CUT_CALLS = "model_cut_calls"
    """The output limit comes in the middle of the calls, or before the first word."""
    MODEL_PAUSED = "model_paused"
    MODEL_ODD_STOP = "model_odd_stop"
    """A reason to stop that nobody knows."""
    MODEL_TOO_LONG = "model_too_long"
    """It says that the request does not fit, whatever was counted."""
    SUMMARY_FAILED = "summary_failed"
    """The summariser's host gives nothing."""
    SUMMARY_SLOW = "summary_slow"
    """Its answer comes behind the deadline."""
    SUMMARY_LAZY = "summary_lazy"
    """It says ``ok.``"""
    SUMMARY_HOSTILE = "summary_hostile"
    """It says what it must not, or nothing."""
    SUMMARY_CRASHED = "summary_crashed"
    LIVE_FAILED = "live_failed"
    LIVE_SLOW = "live_slow"
    LIVE_WORDLESS = "live_wordless"
    """No words, a refusal or a tool call."""
    LIVE_ENDLESS = "live_endless"
    """More words than are allowed, and marks among them."""
    LIVE_CRASHED = "live_crashed"
    TOOL_SLOW = "tool_slow"
    TOOL_TIMED_OUT = "tool_timed_out"
    TOOL_RAISED = "tool_raised"
    TOOL_REFUSED = "tool_refused"
    TOOL_CRASHED = "tool_crashed"
    """The toolbox raises what no contract allows, before or behind what the call does."""
    TOOL_LONG_RESULT = "tool_long_result"
    PROBE_UNKNOWN = "probe_unknown"
    HOME_CHANGED = "home_changed"
    """A life starts with another prompt, and without one of the tools."""
    FLAG_FLIPPED = "flag_flipped"
    FLAGS_ASKED = "flags_asked"
    """What is decided is not known yet, and has to be waited for."""
    SKILL_EDITED = "skill_edited"
    """Another edition, or none."""
    EVENT_DROPPED = "event_dropped"
    """The bus is a hint."""
    DUPLICATE_SEND = "duplicate_send"
    """The same message twice at the same moment."""
    CLIENT_IMPATIENT = "client_impatient"
    """A client asks again before it was answered."""
    FILE_GONE = "file_gone"
    """The bytes of a file are lost by the time a model is to see them."""
    FILE_DAMAGED = "file_damaged"
    """They are other ones."""
    FILE_UNREADABLE = "file_unreadable"
    """They cannot be read now."""
    FILE_REFUSED = "file_refused"
    """The model's host does not take one, and may say which."""


class Sight(StrEnum):
    """What must have been seen to happen, somewhere in the sample, for it to have tried the engine."""

    LEASE_TAKEN_OVER = "lease_taken_over"
    LEASE_REFUSED = "lease_refused"
    RENEWED_TOO_LATE = "renewed_too_late"
    APPEND_FENCED = "append_fenced"
    SNAPSHOT_FENCED = "snapshot_fenced"
    SNAPSHOT_USED = "snapshot_used"
    SNAPSHOT_IGNORED = "snapshot_ignored"
    COMMIT_RECONCILED = "commit_reconciled"
    COMMIT_NOT_FOUND = "commit_not_found"
    MESSAGE_RESENT = "message_resent"
    RESENT_ELSEWHERE = "resent_elsewhere"
    GAP_FILLED = "gap_filled"
    HIBERNATED = "hibernated"
    MADE_ROOM = "made_room"
    """One that rested hibernated for another one's sake."""
    NO_ROOM = "no_room"
    """One more would have been one too many, and nobody rested."""
    SET_ASIDE = "set_aside"
    RELEASED = "released"
    HIBERNATION_REFUSED = "hibernation_refused"
    CANCELLED = "cancelled"
    RETRACTED = "retracted"
    DELETED = "deleted"
    BEGUN_AGAIN = "begun_again"
    """Under the id of one that was deleted."""
    FORKED = "forked"
    OTHER_LIFE = "other_life"
    """A client came back with numbers of one that was deleted."""
    BUSY = "busy"
    REJECTED = "rejected"
    TOOL_RETRIED_BY_KEY = "tool_retried_by_key"
    PROBE_KNOWN = "probe_known"
    PROBE_NEVER = "probe_never"
    RESULT_READ_ON = "result_read_on"
    RELOADED = "reloaded"
    TOOL_OFF = "tool_off"
    TOOL_GONE = "tool_gone"
    TOOL_NOT_ALLOWED = "tool_not_allowed"
    SKILL_KNOWN = "skill_known"
    SKILL_UNAVAILABLE = "skill_unavailable"
    SKILL_FOUND = "skill_found"
    CONTEXT_SHOWN = "context_shown"
    CONTEXT_WITHHELD = "context_withheld"
    POLICY_SHOWN = "policy_shown"
    TURNS_FOLDED = "turns_folded"
    RESULTS_SHORTENED = "results_shortened"
    ALL_FOLDED = "all_folded"
    FOLDED_WITHOUT_MODEL = "folded_without_model"
    SUMMARY_FOLDED = "summary_folded"
    """A second generation."""
    ITEM_CLOSED = "item_closed"
    SKILL_CARRIED = "skill_carried"
    """Its text stands at the head of the view."""
    EARLIER_READ = "earlier_read"
    EARLIER_QUOTED = "earlier_quoted"
    LIVE_CONTEXT_SENT = "live_context_sent"
    JOB_REPEATED = "job_repeated"
    JOB_BURIED = "job_buried"


_ABOUT = {
    Fault.STORE_LOST_REPLY: 0.03,
    Fault.STORE_UNAVAILABLE: 0.03,
    Fault.STORE_FULL: 0.02,
    Fault.STORE_SLOW: 0.04,
    Fault.STORE_WRONG_SEQUENCE: 0.02,
    Fault.STORE_READ_FAILED: 0.02,
    Fault.SNAPSHOT_REFUSED: 0.2,
    Fault.BLOB_REFUSED: 0.3,
    Fault.MODEL_MANY_CALLS: 0.008,
    Fault.TOOL_LONG_RESULT: 0.3,
    Fault.PROBE_UNKNOWN: 0.4,
    Fault.HOME_CHANGED: 0.3,
    Fault.EVENT_DROPPED: 0.1,
    Fault.DUPLICATE_SEND: 0.2,
    Fault.CLIENT_IMPATIENT: 0.2,
}
_OTHERWISE = 0.08
_MISFORTUNES = {
    Fault.CRASH_AT_STEP: 3.0,
    Fault.CRASH_AT_PORT: 3.0,
    Fault.STOPPED: 1.0,
    Fault.PAUSED: 3.0,
    Fault.CLOCK_JUMPED: 1.0,
    Fault.QUARANTINED: 1.0,
    Fault.SNAPSHOT_DAMAGED: 1.0,
    Fault.SNAPSHOT_DELETED: 1.0,
}


_OF_FILES = {Fault.FILE_GONE: 0.08, Fault.FILE_DAMAGED: 0.08, Fault.FILE_UNREADABLE: 0.05, Fault.FILE_REFUSED: 0.3}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed decided before it began."""

    chance: dict[Fault, float]
    """Of those that strike where something is asked for."""
    weight: dict[Fault, float]
    """Of those that strike out of the blue, against each other."""
    misfortune_every_s: float
    storm_s: float
    """How long faults may go on; they end early when no client wants anything more."""
    conversations: int
    clients: int
    """For each conversation."""
    sends: int
    """By each client."""
    keeps_name: bool
    """Whether a process that starts again calls itself by the same name, and so may take its own leases back."""
    lease_ttl_s: float
    sweep_s: float
    due_batch: int
    idle_timeout_s: float
    stop_deadline_s: float
    cancel_grace_s: float
    step_limit: int
    retries_max: int
    mailbox_capacity: int
    unprocessed_max: int
    snapshot_min_bytes: int
    snapshot_share: float
    group_limit: int
    is_restricted: bool
    """Whether the tools that a loaded skill allows are the only ones."""
    index_budget_tokens: int
    excerpts_tokens: int
    context_expiry_s: float
    room_tokens: int
    """For the conversation beside the fixed parts, before older turns are folded; 0 for a large window."""
    exchanges_max: int
    has_summariser: bool
    summary_window_tokens: int
    """Of the summariser; a small one reads in pieces."""
    live_every: int
    live_max_age_s: float
    live_max: int
    """Actors that may live in a process."""
    thaws_max: int
    deletes: int
    """How often clients delete the conversation, against other things that they do."""
    has_subagents: bool
    """Whether agents have sub-agents work for them; the other seeds play as if there were none."""
    child_steps_max: int
    child_tokens_max: int
    child_seconds_max: float
    children_at_once: int
    children_deep: int
    children_tokens_max: int
    """Of all that work for one turn."""
    has_files: bool
    """Whether clients send files along; the other seeds play as if there were none."""


_FEW: Final = 4
"""One seed in so many has sub-agents, since their runs are long."""
_FILES_IN: Final = 8
"""One seed in so many has files."""


def plan_of(seed: int, rng: Random) -> Plan:
    """Draw a plan. What is said of sub-agents and files is drawn apart: it came later, and older seeds are to stay what
    they are."""
    own, of_files = Random(f"{seed}, sub-agents"), Random(f"{seed}, files")
    chance = {
        fault: _ABOUT.get(fault, _OTHERWISE) * rng.uniform(0.2, 2.0) if rng.random() < 0.6 else 0.0
        for fault in Fault
        if fault not in _MISFORTUNES and fault not in _OF_FILES
    }
    chance |= {
        fault: about * of_files.uniform(0.2, 2.0) if of_files.random() < 0.6 else 0.0
        for fault, about in _OF_FILES.items()
    }
    weight = {fault: about * rng.random() if rng.random() < 0.7 else 0.0 for fault, about in _MISFORTUNES.items()}
    return Plan(
        chance=chance,
        weight=weight,
        misfortune_every_s=rng.choice((2.0, 5.0, 12.0)),
        storm_s=rng.choice((15.0, 30.0)),
        conversations=rng.choice((1, 1, 2)),
        clients=rng.choice((1, 2, 3)),
        sends=rng.choice((2, 4, 6)),
        keeps_name=rng.random() < 0.5,
        lease_ttl_s=rng.choice((2.0, 4.0)),
        sweep_s=rng.choice((0.7, 1.5)),
        due_batch=rng.choice((1, 64)),
        idle_timeout_s=rng.choice((0.5, 1.0, 4.0)),
        stop_deadline_s=rng.choice((0.5, 3.0)),
        cancel_grace_s=rng.choice((0.0, 0.5, 2.0)),
        step_limit=rng.choice((2, 5, 25)),
        retries_max=rng.choice((0, 2, 6)),
        mailbox_capacity=rng.choice((1, 3, 64)),
        unprocessed_max=rng.choice((1, 3, 32)),
        snapshot_min_bytes=rng.choice((1, 1, 3000)),
        snapshot_share=rng.choice((0.0, 0.5)),
        group_limit=rng.choice((1, 256)),
        is_restricted=rng.random() < 0.3,
        index_budget_tokens=rng.choice((20, 2_000)),
        excerpts_tokens=rng.choice((70, 2_000)),
        context_expiry_s=rng.choice((10.0, 1_800.0)),
        room_tokens=rng.choice((0, 100, 300, 300, 600)),
        exchanges_max=rng.choice((0, 0, 0, 3)),
        has_summariser=rng.random() < 0.85,
        summary_window_tokens=rng.choice((400, 8_000, 8_000)),
        live_every=rng.choice((3, 6)),
        live_max_age_s=rng.choice((10.0, 28_800.0)),
        live_max=rng.choice((1, 2_000)),
        thaws_max=rng.choice((1, 32)),
        deletes=rng.choice((0, 0, 2)),
        has_subagents=seed % _FEW == 2,
        child_steps_max=own.choice((2, 4, 6)),
        child_tokens_max=own.choice((0, 1_500, 5_000)),
        child_seconds_max=own.choice((2.0, 6.0, 40.0)),
        children_at_once=own.choice((1, 3, 4)),
        children_deep=own.choice((2, 3, 3)),
        children_tokens_max=own.choice((0, 6_000, 400_000)),
        has_files=seed % _FILES_IN == 3,
    )
