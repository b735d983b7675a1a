"""What folds leave: the last turns word for word, what is open, the summary before, and requests that fit."""

import json
from collections.abc import Iterator

from tests.support.oracle_case import Case
from tests.support.oracle_evidence import Json, SideCall, Violation, Window
from tests.support.oracle_view import canonical
from tests.support.oracle_views_told import Fold, Request

KEPT_TURNS = 2
"""Before the running one."""
BYTES_PER_TOKEN = 4
WORTH_FOLDING_BYTES = 600
"""Less than this need not be folded, since a summary is not much shorter."""
KINDS = frozenset({"correction", "denial", "question", "proposal"})
_RECKONED = 1.02
"""What a fold's number may be wrong by: a few bytes for each message that joins, and what is learnt at that moment."""
_SLACK = 1.04
_SLACK_TOKENS = 20
"""What an estimate may be wrong by. A new live context is counted with the next reply only."""


def judge_folds(case: Case) -> Iterator[Violation]:
    for fold in case.story.folds:
        yield from _tail(case, fold)
        yield from _head(case, fold)
        yield from _items(case, fold)
        if fold.record["reason"] == "summary":
            yield from _summarised(case, fold)
        if fold.record["reason"] in {"summary", "mechanical"} and not fold.is_measured:
            is_over = _is_over(case, fold)
            if fold.record["reason"] == "summary" or not is_over:
                yield _broken(case, fold, "fold_not_measured", "no reply has told what the fold before came to")
    yield from _attempts(case)
    yield from _failures(case)
    yield from _reckoned(case)
    if case.evidence.window is not None:
        yield from _requests(case, case.evidence.window)
        yield from _too_long(case, case.evidence.window)


def _broken(case: Case, fold: Fold, kind: str, fact: str) -> Violation:
    return case.broken(kind, f"record {fold.seq}: {fact}")


def _is_over(case: Case, fold: Fold) -> bool:
    """Whether the request would not have fitted, as far as that can be told."""
    window = case.evidence.window
    return window is None or fold.record.get("before_tokens", 0) > window.limit_tokens or _was_too_long(case, fold)


def _was_too_long(case: Case, fold: Fold) -> bool:
    """Whether the host said so before this fold, in its turn."""
    begin = case.story.turns[fold.turn].begin_seq
    told = case.story.records[begin : fold.seq]
    return any(record["kind"] == "model_failed" and record["code"] == "model_context_too_long" for record in told)


def _tail(case: Case, fold: Fold) -> Iterator[Violation]:
    """The last two turns and the running one stay, unless nothing else was left to do."""
    stays = fold.turns[-KEPT_TURNS - 1 :]
    match fold.record["reason"]:
        case "summary" | "mechanical":
            expected = stays[0]
        case "everything":
            expected = fold.turn
        case _:
            expected = fold.turns[0]
    if fold.record["kept_from"] != expected:
        fact = f"{fold.record['reason']} keeps from turn {fold.record['kept_from']}, expected {expected}"
        yield _broken(case, fold, "fold_tail", fact)


def _head(case: Case, fold: Fold) -> Iterator[Violation]:
    """The summary says which turns and records it stands for, and is smaller than they were."""
    record = fold.record
    if record["reason"] == "shortened":
        yield from _shortened(case, fold)
        return
    generation = fold.before.get("generation", 0) + 1
    begin = (
        f"[Summary of earlier conversation: turns 1 to {_last_turn(fold)}, records 1 to {fold.last_seq}, "
        f"generation {generation}."
    )
    text = record["head"][0]["text"]
    if not text.startswith(begin) or record["generation"] != generation:
        yield _broken(case, fold, "fold_head", f"it begins {text[:100]!r}, expected {begin!r}")
    if record["turns"] != [1, _last_turn(fold)] or record["seqs"] != [1, fold.last_seq]:
        yield _broken(case, fold, "fold_head", f"it covers {record['turns']} and {record['seqs']}, expected {begin!r}")
    size_bytes = sum(len(canonical(block)) for block in record["head"])  # in a message that stays
    if record["reason"] == "summary" and size_bytes >= fold.gone_bytes:
        yield _broken(case, fold, "fold_grows", f"{size_bytes} bytes stand for {fold.gone_bytes}")


def _last_turn(fold: Fold) -> int:
    """The last one that the summary stands for."""
    gone = [turn for turn in fold.turns if turn < fold.record["kept_from"]]
    return gone[-1] if gone else fold.before.get("turns", [0, 0])[1]


def _shortened(case: Case, fold: Fold) -> Iterator[Violation]:
    if not fold.record.get("shortened"):
        yield _broken(case, fold, "fold_head", "no result is shortened")
    for id_, block in fold.record.get("shortened", {}).items():
        call = case.story.calls.get(id_)
        if call is None or len(canonical(block)) >= call.size_bytes:
            yield _broken(case, fold, "fold_grows", f"the result of {id_} is not shorter")


def _items(case: Case, fold: Fold) -> Iterator[Violation]:
    """What is open stays, as it was said, until it is closed by id with a turn; and the model can read it."""
    record = fold.record
    before = {item["id"]: item for item in fold.before.get("items", [])}
    after = {item["id"]: item for item in record.get("items", [])}
    closed = {closing["id"]: closing["turn"] for closing in record.get("closed", [])}
    gone = [item for id_, item in before.items() if after.get(id_) != item and id_ not in closed]
    if len(gone) > _left_out(fold):
        yield _broken(case, fold, "item_lost", f"of {gone}, neither open nor closed, {_left_out(fold)} made way")
    for id_, turn in closed.items():
        item = before.get(id_, {"turn": 0})
        if id_ in after or not max(item.get("turn", 0), 1) <= turn <= _last_turn(fold):
            yield _broken(case, fold, "item_lost", f"{id_} is closed by turn {turn}, it is {item}")
    text = "".join(block["text"] for block in record["head"])
    for item in after.values():
        if f"- {item['id']} ({item['kind']}" not in text or item["text"] not in text:
            yield _broken(case, fold, "item_lost", f"{item} is not in the view")


def _summarised(case: Case, fold: Fold) -> Iterator[Violation]:
    """What the summariser said is in the record, and it was told of what the view had no more."""
    calls = _calls_of(case, fold)
    if not calls or any(not call.conversation for call in calls):
        return  # one of them was asked about a piece that does not tell which conversation it is of
    facts = fold.before.get("summary", {}).get("facts", [])
    missing = [fact for fact in facts if json.dumps(fact, ensure_ascii=False)[1:-1] not in calls[0].question]
    missing += [item["id"] for item in fold.before.get("items", []) if f"{item['id']} (" not in calls[0].question]
    if missing:
        yield _broken(case, fold, "summary_forgotten", f"the summariser was not told of {missing}")
    said = [answer for call in calls if (answer := _object(call.answer)) is not None]
    texts = {item["text"] for item in fold.record.get("items", [])}
    for each in (each for answer in said for each in _list(answer, "open")):
        if not isinstance(each, dict) or each.get("kind") not in KINDS or _left_out(fold) or _closed(fold):
            continue
        if each["text"] not in texts:
            yield _broken(case, fold, "item_lost", f"the summariser found {each}, open are {sorted(texts)}")
    proposed = {each.get("id") for answer in said for each in _list(answer, "closed") if isinstance(each, dict)}
    if invented := _closed(fold) - proposed:
        yield _broken(case, fold, "item_lost", f"{sorted(invented)} were closed by nobody")


def _left_out(fold: Fold) -> int:
    """Items for which this fold had no room."""
    counts = [record.get("left_out", 0) for record in (fold.before, fold.record)]
    return int(counts[1] - counts[0])


def _closed(fold: Fold) -> set[str]:
    return {closing["id"] for closing in fold.record.get("closed", [])}


def _calls_of(case: Case, fold: Fold) -> list[SideCall]:
    """The answers that the summary was made of: those that came before it in its life, as many as it says."""
    commit = case.commit_of(fold.seq)
    if commit is None:
        return []
    begun = max((seq for seq in case.story.turns[fold.turn].attempts.values() if seq < fold.seq), default=0)
    own = [
        call
        for call in case.side_calls
        if call.purpose == "summary"
        and call.life == commit.life
        and call.call.startswith(f"{fold.turn}-fold-")
        and case.durable(begun) < call.moment < commit.moment
    ]
    count = fold.record.get("calls", 0)
    return own if len(own) == count else []


def _object(text: str) -> Json | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _list(answer: Json, name: str) -> list[object]:
    value = answer.get(name)
    return value if isinstance(value, list) else []


def _attempts(case: Case) -> Iterator[Violation]:
    """No summariser is asked before the attempt is on record."""
    for call in case.side_calls:
        if call.purpose != "summary":
            continue
        turn = case.story.turns.get(int(call.call.partition("-")[0]))
        begun = (seq for name, seq in turn.attempts.items() if name[0] == "compact") if turn is not None else ()
        own = (commit for seq in begun if (commit := case.commit_of(seq)) is not None and commit.life == call.life)
        if not any(commit.moment < call.moment for commit in own):
            yield case.broken("attempt_unrecorded", f"{call.life} asked for {call.call} before its record")


def _failures(case: Case) -> Iterator[Violation]:
    """After a failure the summariser is left alone until the next turn."""
    failed = 0
    for record in case.story.records:
        is_summary = record["kind"] == "context_replaced" and record["reason"] == "summary"
        if failed == record.get("turn", 0) and failed and (is_summary or record["kind"] == "compaction_failed"):
            yield case.broken("fold_retried", f"record {record['seq']} follows a failure in turn {failed}")
        if record["kind"] == "compaction_failed":
            failed = record["turn"]


def _reckoned(case: Case) -> Iterator[Violation]:
    """A fold tells the tokens of the request that follows it, whoever joins it and whatever is offered with it.

    In bytes, since the request may be made by another process, which counts its bytes as it has learnt itself.
    """
    told: Json = {}
    for record in case.story.records:
        if record["kind"] == "model_requested" and told:
            after, asked = told["after_tokens"], record["estimated_tokens"]
            model = record.get("model", "")
            has, had = _bytes_per_token(case, record, model=model), _bytes_per_token(case, told, model=model)
            if not asked * has / _RECKONED - has <= after * had <= asked * has * _RECKONED + had:
                fact = f"record {told['seq']} tells {after} tokens after it, request {record['call']} has {asked}"
                yield case.broken("fold_misreckoned", fact)
        if record["kind"] not in {"preamble_changed", "preamble_returned"}:
            told = record if record["kind"] == "context_replaced" else {}


def _bytes_per_token(case: Case, record: Json, *, model: str) -> float:
    """As the process counted that wrote ``record``."""
    commit = case.commit_of(record["seq"])
    return BYTES_PER_TOKEN if commit is None else commit.bytes_per_token.get(model, BYTES_PER_TOKEN)


def _requests(case: Case, window: Window) -> Iterator[Violation]:
    """No request is sent that does not fit, and none that older turns could have been folded out of."""
    failed = {record["turn"] for record in case.story.records if record["kind"] == "compaction_failed"}
    for request in case.story.requests:
        tokens = (len(request.body) - request.live_bytes) // BYTES_PER_TOKEN
        if tokens > window.limit_tokens * _SLACK + _SLACK_TOKENS:
            fact = f"request {request.call} has {tokens} tokens, {window.limit_tokens} fit"
            yield case.broken("request_over_limit", fact)
        # The live context takes room for those who wait as soon as a reply has counted it.
        with_next = (len(request.body) + request.left_bytes) // BYTES_PER_TOKEN
        has_room = request.new_files <= case.evidence.files_max
        if request.left_bytes and has_room and with_next < window.limit_tokens / _SLACK - _SLACK_TOKENS:
            fact = f"request {request.call} would have {with_next} tokens with a message that waits to join it"
            yield case.broken("steer_left", f"{fact}, {window.limit_tokens} fit")
        is_older = len(request.turns) > KEPT_TURNS + 1 and request.older_bytes > WORTH_FOLDING_BYTES
        is_due = is_older and tokens > window.threshold_tokens * _SLACK + _SLACK_TOKENS
        is_able = window.has_summariser and request.turn not in failed and not _is_left_alone(case, request, window)
        is_fixed_alone = request.fixed_bytes // BYTES_PER_TOKEN > window.threshold_tokens
        if is_due and is_able and request.is_new and request.is_measured and not is_fixed_alone:
            fact = f"request {request.call} has {tokens} tokens in turns {request.turns}, and nothing was folded"
            yield case.broken("not_folded", fact)


def _too_long(case: Case, window: Window) -> Iterator[Violation]:
    """No turn ends for want of room that there is without those who wait, and without what may be left out."""
    for end in case.story.too_long:
        tokens = end.body_bytes // BYTES_PER_TOKEN
        if tokens < window.limit_tokens / _SLACK - _SLACK_TOKENS:
            fact = f"record {end.seq} ends a turn whose request has {tokens} tokens, {window.limit_tokens} fit"
            yield case.broken("failed_with_room", fact)


def _is_left_alone(case: Case, request: Request, window: Window) -> bool:
    """Whether the summariser failed so often in a row that it may not be asked for a while."""
    failures = 0
    for record in case.story.records[: request.seq]:
        if record["kind"] == "compaction_failed":
            failures += record["code"] != "cancelled"
        elif record["kind"] == "context_replaced" and record["reason"] == "summary":
            failures = 0
    return failures >= window.failures_max
