"""Makes the record that replaces a part of the view, with a summariser's words or without. Pure.

Above: the turn, which asks the summariser and commits the record. What is folded and what stays is decided in
``compaction``; the fold of the journal carries it out.
"""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from torpor.conversation.budget import BYTES_PER_TOKEN, tokens_of_bytes
from torpor.conversation.compaction import WORTH_FOLDING_BYTES, kept_starts, long_results
from torpor.conversation.graphemes import cut
from torpor.conversation.markup import defused
from torpor.conversation.segments import Change, Said, TurnStart, blocks_of, rebuilt, said_in, shortening
from torpor.conversation.state import ConversationState, LoadedSkill
from torpor.conversation.summary import LINE_BYTES, Carried, CompactionOptions, held, rendered, told_bytes
from torpor.conversation.transcript import first_words, text_of_result
from torpor.records.blocks import Block, canonical, head_of, result_of, text_block
from torpor.records.journal import ContextReplaced
from torpor.records.summary import Summary
from torpor.records.terms import FoldReason

FIRST_WORDS_CHARS: Final = 120
"""Of a user's words and of the reply, in a summary that no model made."""
_SKILL_MARK: Final = "[Skill {key}, version {version}, loaded earlier:]\n"
_VERSION_CHARS: Final = 12
_SKILL_CUT: Final = "\n[cut here; load_skill gives all of it]"
_RESULT_CUT: Final = "\n[about {left_out} bytes left out here to make room{hint}]\n"
_RESULT_HINT: Final = "; read_earlier shows all of turn {turn}"
_BEFORE_ALL: Final = TurnStart(0, 0, 0, 0)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is folded and what stays."""

    folded: tuple[tuple[int, tuple[Said, ...]], ...]
    """Each turn that goes, with what it said, oldest first; at least one."""
    kept: tuple[TurnStart, ...]
    """To the end of the view; at least one."""


def plan_of(state: ConversationState, reason: FoldReason) -> Plan:
    """What ``reason`` folds, of a state with something to fold. Costs a passage over the view."""
    kept = state.starts[-1:] if reason is FoldReason.EVERYTHING else kept_starts(state)
    gone = state.starts[: len(state.starts) - len(kept)]
    said = said_in(state.view, state.starts)
    return Plan(folded=tuple((start.turn, said[place]) for place, start in enumerate(gone)), kept=kept)


def carried_so_far(state: ConversationState) -> Carried:
    """The items before anybody says more of them."""
    return Carried(items=state.items, left_out=state.left_out, left_out_turns=state.left_out_turns)


def folded(
    state: ConversationState,
    plan: Plan,
    *,
    reason: FoldReason,
    summary: Summary | None,
    carried: Carried,
    skills: AbstractSet[str],
    options: CompactionOptions,
    reads_earlier: bool = True,
) -> ContextReplaced:
    """The record that puts a summary in the place of ``plan.folded``; what it comes to is not reckoned yet.

    Args: summary: the summariser's; None to go by the beginnings of what was said.  carried: the items after it,
        of which stays what has room.  skills: keys that may still be loaded.  reads_earlier: whether the model has the
        tool for it.
    """
    generation, last_turn, last_seq = state.generation + 1, plan.folded[-1][0], plan.kept[0].seq - 1
    if summary is None:
        room = min(options.summary_tokens * BYTES_PER_TOKEN, (_gone_bytes(state, plan) - WORTH_FOLDING_BYTES) // 2)
        summary = _beginnings(state.summary, plan.folded, bytes_max=room)
    carried = held(carried, options)
    texts = _skill_texts(state.skills, plan.folded, allowed=skills, options=options)
    turns, seqs = (1, last_turn), (1, last_seq)
    said = rendered(
        summary,
        carried.items,
        generation=generation,
        turns=turns,
        seqs=seqs,
        left_out=carried.left_out,
        left_out_turns=carried.left_out_turns,
        skills={skill.key: skill.digest for skill in state.skills if skill.key in texts},
        reads_earlier=reads_earlier,
    )
    head = (text_block(said), *texts.values())
    view, _ = rebuilt(state.view, plan.kept, head=head)
    return ContextReplaced(
        turn=plan.kept[-1].turn,
        reason=reason,
        generation=generation,
        kept_from=plan.kept[0].turn,
        head=head,
        link=view.link.hex(),
        turns=turns,
        seqs=seqs,
        summary=summary,
        items=carried.items,
        closed=carried.closed,
        left_out=carried.left_out,
        left_out_turns=carried.left_out_turns,
        skills=tuple(texts),
        forgotten=tuple(sorted(_in_what_goes(state.skills, plan.folded).keys() - texts.keys())),
    )


def _gone_bytes(state: ConversationState, plan: Plan) -> int:
    """What is folded weighs."""
    return state.view.weight_before(plan.kept[0].size_bytes)


def shortened(state: ConversationState, *, options: CompactionOptions, reads_earlier: bool = True) -> ContextReplaced:
    """The record that cuts the long results of every turn in the view, the open round's among them; what it comes to is
    not reckoned yet.

    Args: reads_earlier: whether the model has the tool that reads them.
    """
    short = {
        call_id: _cut_result(block, hint=_RESULT_HINT.format(turn=number) if reads_earlier else "", options=options)
        for call_id, (number, block) in long_results(state, bytes_max=options.result_bytes).items()
    }
    record = changed_in_place(state, shortening(short), reason=FoldReason.SHORTENED)
    return msgspec.structs.replace(record, shortened=short)


def changed_in_place(state: ConversationState, change: Change | None, *, reason: FoldReason) -> ContextReplaced:
    """The record of a view in which blocks are others and everything else stays; what ``change`` is goes beside it."""
    head, skills = head_of_view(state)
    view, _ = rebuilt(state.view, state.starts, head=head, change=change)
    return ContextReplaced(
        turn=state.starts[-1].turn,
        reason=reason,
        generation=state.generation,
        kept_from=state.starts[0].turn,
        head=head,
        link=view.link.hex(),
        turns=(min(state.covered[0], 1), state.covered[0]),
        seqs=(min(state.covered[1], 1), state.covered[1]),
        summary=state.summary,
        items=state.items,
        left_out=state.left_out,
        left_out_turns=state.left_out_turns,
        skills=skills,
    )


def head_of_view(state: ConversationState) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """What the view begins with, and the skills whose texts come last in it. One that was loaded again since stands
    before them, since nothing else tells it from the others."""
    head, *_ = said_in(state.view, (_BEFORE_ALL, *state.starts))
    texts = {bytes(skill.head[0]): skill.key for skill in state.skills if skill.head}
    blocks = [block for _, block in blocks_of(head)]
    own = [block for block in blocks if bytes(block) in texts]
    others = [block for block in blocks if bytes(block) not in texts]
    return (*others, *own), tuple(texts[bytes(block)] for block in own)


def _beginnings(before: Summary, turns: Sequence[tuple[int, Sequence[Said]]], *, bytes_max: int) -> Summary:
    """What the summary before said, and how each turn began and ended; over the cap, what is oldest goes."""
    lines = list(before.facts)
    for number, said in turns:
        asked, answered = first_words(said, chars=FIRST_WORDS_CHARS)
        lines.append(f"turn {number}: user: {_quoted(asked)} reply: {_quoted(answered)}")
    said_so_far = [("entities", text) for text in before.entities] + [("decisions", text) for text in before.decisions]
    kept: dict[str, list[str]] = {"entities": [], "decisions": [], "facts": []}
    room = bytes_max
    for name, line in reversed([*said_so_far, *(("facts", line) for line in lines)]):
        room -= told_bytes(line) + LINE_BYTES
        if room < 0:
            break
        kept[name].append(line)
    return Summary(**{name: tuple(reversed(texts)) for name, texts in kept.items()})


def _quoted(text: str) -> str:
    """In quotes that what was said cannot close."""
    return defused(json.dumps(text, ensure_ascii=False)) if text else "nothing"


def _in_what_goes(
    skills: Sequence[LoadedSkill], turns: Sequence[tuple[int, Sequence[Said]]]
) -> Mapping[str, tuple[LoadedSkill, str]]:
    """The skills whose text stands in what is folded or before it, by key, with that text."""
    results = {
        call_id: block
        for _, said in turns
        for role, block in blocks_of(said)
        if role == "user" and (call_id := result_of(block))
    }
    found: dict[str, tuple[LoadedSkill, str]] = {}
    for skill in skills:
        if skill.head:
            found[skill.key] = (skill, head_of(skill.head[0]).text.partition("\n")[2])
        elif skill.call_id in results:
            found[skill.key] = (skill, text_of_result(results[skill.call_id]))
    return found


def _skill_texts(
    skills: Sequence[LoadedSkill],
    turns: Sequence[tuple[int, Sequence[Said]]],
    *,
    allowed: AbstractSet[str],
    options: CompactionOptions,
) -> dict[str, Block]:
    """Texts that stay in the window, at the version that was loaded; those loaded last win where there is no room."""
    texts: dict[str, Block] = {}
    room = options.skills_tokens
    for key, (skill, text) in reversed([*_in_what_goes(skills, turns).items()]):
        short = _cut_skill(text, bytes_max=options.skill_tokens * BYTES_PER_TOKEN)
        tokens = tokens_of_bytes(told_bytes(short))
        if key in allowed and short and tokens <= room:
            room -= tokens
            mark = _SKILL_MARK.format(key=key, version=skill.digest[:_VERSION_CHARS])
            texts[key] = text_block(mark + short)
    return dict(reversed([*texts.items()]))


def _cut_skill(text: str, *, bytes_max: int) -> str:
    """To what it may take within a request, its escapes counted."""
    if told_bytes(text) <= bytes_max:
        return text
    room, plain = bytes_max - told_bytes(_SKILL_CUT), text.removesuffix(_SKILL_CUT)
    while room > 0 and (size_bytes := told_bytes(plain)) > room:
        plain = _prefix(plain, len(plain.encode()) * room // size_bytes)
    return plain + _SKILL_CUT if room > 0 else ""


def _cut_result(block: Block, *, hint: str, options: CompactionOptions) -> Block:
    """The beginning and the end of what a tool answered; of what is no text, nothing."""
    fields: dict[str, Any] = json.loads(bytes(block))
    text = text_of_result(block)
    begin, end, bytes_max = text, "", options.result_bytes
    if len(text.encode()) > bytes_max:
        begin = _prefix(text, bytes_max * 2 // 3)
        end = text.encode()[-bytes_max // 3 :].decode(errors="ignore")
    left_out = len(memoryview(block)) - len(begin.encode()) - len(end.encode())
    note = _RESULT_CUT.format(left_out=left_out, hint=hint)
    return canonical({**fields, "content": f"{begin}{note}{end}"})


def _prefix(text: str, bytes_max: int) -> str:
    return cut(text, chars_max=len(text.encode()[:bytes_max].decode(errors="ignore")))
