"""The judges of folds and of what goes on beside turns find what they are there to find."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.aside_checker import context_faults, flag_faults, live_faults, skill_faults
from tests.support.fold_checker import canonical, fold_faults, view_faults
from tests.support.journal_checker import PUBLIC_KINDS, Journal, account_of

PATH = "default/ann/c1"
SKILL = b"---\nname: counting\n---\n\nCount it twice."
LINK = {"type": "text", "text": "It stands well"}
OFF = [{"key": "tool.gossip", "value": False}]
HEAD = {"type": "text", "text": "[Summary: Told: m1; open i1-1 what next?]"}


def said(number: int) -> dict[str, Any]:
    return {"type": "text", "text": f"c1 says: do it [m{number}]"}


class World:
    """Five turns: a skill is loaded in the first one, and in the fourth the first one is folded."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.add("conversation_created")
        self.add("context_changed", context={"record": {"id": "bill-1"}}, version=1)
        self.add("flags_pinned", digest="f1", decisions=OFF)
        self.add("preamble_changed", digest="d1", body={"tools": [{"name": "load_skill"}]})
        self.live = 0
        self.turn(1, skill=True)
        self.ordered = self.add("live_context_ordered", job="live-1")
        self.replaced = self.add("live_context_replaced", job="live-1", words="It stands well", block=LINK)
        self.live = self.replaced["seq"]
        for number in (2, 3):
            self.turn(number)
        self.turn(4, fold=True)
        self.log: list[dict[str, Any]] = [
            {"what": "started", "purpose": "live", "call": "live-1", "run": "r1", "body": {"messages": [said(1)]}},
            {"what": "ended", "run": "r1", "said": "It stands well"},
        ]
        self.told = [{"what": "told", "path": PATH, "id": "bill-1"}]
        self.view: list[tuple[str, str]] = [("user", canonical(block)) for block in self.fold["head"]]
        for number in (2, 3):
            self.view += [("user", canonical(said(number))), ("assistant", canonical(answer(number)))]
        self.view.append(("user", canonical(said(4))))
        self.jobs: list[str] = []

    def add(self, kind: str, **fields: Any) -> dict[str, Any]:
        record = {"kind": kind, "seq": len(self.records) + 1, **fields}
        if kind in PUBLIC_KINDS and "turn" in fields and kind != "turn_prepared":
            record["cause"] = f"m{fields['turn']}"
        self.records.append(record)
        return record

    def turn(self, number: int, *, skill: bool = False, fold: bool = False) -> None:
        self.add("message_received", message_id=f"m{number}", blocks=[said(number)])
        signal = [{"type": "text", "text": "bill-1"}]
        self.add("turn_prepared", turn=number, messages=[f"m{number}"], signal=signal, live=self.live)
        if fold:
            self.fold = self.add(
                "context_replaced",
                turn=number,
                reason="summary",
                generation=1,
                kept_from=2,
                head=[HEAD, {"type": "text", "text": "Count it twice."}],
                summary={"facts": ["Told: m1"]},
                items=[{"id": "i1-1", "text": "what next?"}],
                skills=["counting"],
            )
        self.request = self.add("model_requested", turn=number, call=f"{number}-1-1")
        if skill:
            use = {"type": "tool_use", "id": "t1", "name": "load_skill", "input": {}}
            self.add("model_replied", turn=number, call=f"{number}-1-1", blocks=[use])
            block = {"type": "tool_result", "tool_use_id": "t1", "content": "Count it twice."}
            self.add("tool_finished", turn=number, call_id="t1", outcome="succeeded", block=block)
            digest = hashlib.sha256(SKILL).hexdigest()
            self.loaded = self.add("skill_loaded", turn=number, call_id="t1", skill="counting", digest=digest)
            self.add("model_requested", turn=number, call=f"{number}-2-1")
        call = f"{number}-{2 if skill else 1}-1"
        self.add("model_replied", turn=number, call=call, blocks=[answer(number)])
        self.add("turn_finished", turn=number)

    def faults(self) -> list[str]:
        journal = Journal(path=PATH, records=self.records, jobs=self.jobs)
        account = account_of(journal)
        return [
            *account.faults,
            *fold_faults(PATH, account),
            *view_faults(account, self.request, self.view),
            *live_faults(journal, self.log),
            *flag_faults(journal),
            *context_faults(journal, self.told),
            *skill_faults(PATH, account, file=SKILL),
        ]


def answer(number: int) -> dict[str, Any]:
    return {"type": "text", "text": f"Answered m{number}."}


def test_a_sound_world_has_no_faults() -> None:
    assert World().faults() == []


def in_fold(**fields: Any) -> Callable[[World], None]:
    return lambda world: world.fold.update(fields)


def told_twice(world: World) -> None:
    world.add("live_context_replaced", job="live-1", words="It stands well", block=LINK)


def without_live(world: World) -> None:
    for record in world.records:
        record.pop("live", 0)


def failed_fold(code: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.records[-1]["kind"] = "compaction_failed"
        world.records[-1].update(code=code, detail="")
        world.add("turn_finished", turn=4)

    return change


BROKEN: dict[str, tuple[Callable[[World], None], str]] = {
    "a fold that takes too much": (in_fold(kept_from=3), "stay, expected those from 2"),
    "a message that no summary stands for": (in_fold(summary={"facts": ["Told:"]}), "expected ['m1'], each once"),
    "a message that stands there twice": (in_fold(summary={"facts": ["Told: m1, m1"]}), "expected ['m1']"),
    "a summary that the model cannot read": (in_fold(head=[LINK, LINK]), "the model cannot read"),
    "a skill lost by folding": (in_fold(skills=[]), "texts of the skills"),
    "an open question nobody reads": (in_fold(items=[{"id": "i1-1", "text": "lost"}]), "cannot read that"),
    "a fold of another kind": (in_fold(reason="mechanical"), "expected a summary"),
    "a generation left out": (in_fold(generation=3), "generation 3 follows 0"),
    "a request without the summary": (lambda world: world.view.__delitem__(0), "does not begin with the summary"),
    "a kept turn that is cut": (lambda world: world.view.__delitem__(3), "lacks words of turn 2"),
    "kept turns in another order": (lambda world: world.view.reverse(), "lacks words"),
    "a folded message that is still sent": (
        lambda world: world.view.insert(2, ("user", canonical(said(1)))),
        "holds message m1",
    ),
    "a summary given up too early": (failed_fold("crashed"), "was given up after 0 attempts"),
    "a summary that failed for another reason": (failed_fold("provider"), "the summary failed with provider"),
    "a live context told twice": (told_twice, "tells of job live-1, expected none"),
    "an order without a word": (lambda world: world.replaced.update(kind="conversation_created"), "nothing came of"),
    "a job done by nobody": (lambda world: world.log.clear(), "was ordered and never done"),
    "words that nobody said": (lambda world: world.replaced.update(words="It stands badly"), "nobody said"),
    "a turn without the live context": (
        without_live,
        "uses the live context of record 0",
    ),
    "a job that is left": (lambda world: world.jobs.append("live"), "job live is left"),
    "a tool that is off": (
        lambda world: world.records[3]["body"]["tools"].append({"name": "gossip"}),
        "flags are {'tool.gossip': False}",
    ),
    "flags pinned again": (
        lambda world: world.records.append({**world.records[2], "seq": 99}),
        "pins the flags that were pinned",
    ),
    "an update that is lost": (lambda world: world.told.append({**world.told[0], "id": "bill-2"}), "application told"),
    "a selection nobody tells the model": (
        lambda world: world.records[1].update(context={"record": {"id": "bill-3"}}),
        "the model is not told of bill-3",
    ),
    "a version left out": (lambda world: world.records[1].update(version=2), "is version 2, expected 1"),
    "a skill without its record": (lambda world: world.loaded.update(call_id="t9"), "its record is None"),
    "a skill of another version": (lambda world: world.loaded.update(digest="0"), "loaded version 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    world = World()
    breaking, expected = BROKEN[name]
    breaking(world)
    assert any(expected in fault for fault in world.faults()), world.faults()
