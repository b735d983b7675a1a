"""What turns offered and allowed: flags, skills and the working context, by the journal and by what was really so.

A flag or a skill that was the same from the moment the model asked for a call until something came of it leaves no room
for doubt; one that changed in between may have been looked at before or after.
"""

from bisect import bisect_right
from collections.abc import Iterator
from html import unescape

from tests.support.oracle_case import NEVER, Case
from tests.support.oracle_evidence import Json, Violation

ALWAYS_OFFERED = frozenset({"read_result"})
ENGINE_TOOLS = frozenset({"read_result", "read_earlier", "load_skill", "read_skill_file", "search_skills"})
ROOM_FOR_SKILLS_TOKENS = 360
"""With less beside the fixed parts, the texts of skills may have to go."""
_LATELY = 4
"""So many preambles, and as many flags, the last ones among them, are stored once between them."""
_HIDDEN = "for nobody's eyes"


def judge_offers(case: Case) -> Iterator[Violation]:
    yield from _Walk(case).violations()
    yield from _runs(case)


class _Walk:
    """The journal from its first record to its last."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._off = frozenset[str]()
        self._pinned: list[Json] = []
        self._all_pinned: dict[str, list[Json]] = {}
        """By digest."""
        self._context: Json = {}
        self._version = 0
        self._preamble: Json = {}
        self._preambles: dict[str, Json] = {}
        """All that were stored, by digest; used last, last."""
        self._skills: dict[str, tuple[str, list[str]]] = {}
        """Digest and allowed tools of those in the view."""
        self._base_skills: dict[str, tuple[str, list[str]]] = {}
        self._loaded_in: dict[str, int] = {}
        """Turns in which they were loaded."""
        self._base_loaded_in: dict[str, int] = {}
        self._replied = 0
        """Moment at which the model had asked for the calls of the open round."""
        self._binding: dict[str, tuple[str, list[str]]] = {}
        """Skills in the view when it did."""

    def violations(self) -> Iterator[Violation]:
        for record in self._case.story.records:
            step = getattr(self, f"_{record['kind']}", None)
            if step is not None:
                yield from step(record)

    def _broken(self, kind: str, record: Json, fact: str) -> Violation:
        return self._case.broken(kind, f"record {record['seq']}: {fact}")

    def _flags_pinned(self, record: Json) -> Iterator[Violation]:
        if record["decisions"] == self._pinned:
            yield self._broken("flags_pinned", record, "the same decisions are pinned again")
        if record["digest"] in list(self._all_pinned)[-_LATELY:]:
            yield self._broken("stored_again", record, f"flags {record['digest']} were pinned a short while ago")
        self._pin(record["digest"], record["decisions"])

    def _flags_returned(self, record: Json) -> Iterator[Violation]:
        before = self._all_pinned.get(record["digest"])
        if before is None or before == self._pinned:
            yield self._broken(
                "flags_pinned", record, f"flags {record['digest']} are no others that were pinned before"
            )
        self._pin(record["digest"], before or [])

    def _pin(self, digest: str, decisions: list[Json]) -> None:
        self._all_pinned.pop(digest, None)
        self._all_pinned[digest] = self._pinned = decisions
        self._off = frozenset(each["key"] for each in decisions if not each["value"])

    def _preamble_changed(self, record: Json) -> Iterator[Violation]:
        if record["digest"] in list(self._preambles)[-_LATELY:]:
            yield self._broken("stored_again", record, f"preamble {record['digest']} was in use a short while ago")
        self._use(record["digest"], record["body"])

    def _preamble_returned(self, record: Json) -> Iterator[Violation]:
        if record["digest"] not in list(self._preambles)[:-1]:
            yield self._broken("digest", record, f"preamble {record['digest']} is no other that was in use before")
        self._use(record["digest"], self._preambles.get(record["digest"], self._preamble))

    def _use(self, digest: str, body: Json) -> None:
        self._preambles.pop(digest, None)
        self._preambles[digest] = self._preamble = body

    def _context_changed(self, record: Json) -> Iterator[Violation]:
        before, self._context = _selection(self._context), record["context"]
        version = self._version + (_selection(self._context) != before or not self._version)
        if record["version"] != version:
            yield self._broken("context", record, f"its version is {record['version']}, expected {version}")
        self._version = version

    def _turn_prepared(self, record: Json) -> Iterator[Violation]:
        self._base_skills, self._base_loaded_in = dict(self._skills), dict(self._loaded_in)
        tools = {tool["name"] for tool in self._preamble["tools"]} - ALWAYS_OFFERED
        index = "".join(block["text"] for block in self._preamble["system"][1:])
        offered = {f"{kind}.{name}" for name in tools for kind in ("tool", "subagent")}
        offered |= {key for key in self._off if key.startswith("skill.") and f'"{key[6:]}"' in index}
        if offered & self._off:
            yield self._broken("off_offered", record, f"{sorted(offered & self._off)} are off")
        signal = "".join(block["text"] for block in record.get("signal", []))
        if _HIDDEN in unescape(signal):
            yield self._broken("context", record, "it shows what the agent may not see")
        if signal and (f'version="{self._version}"' not in signal or not self._shows(signal)):
            yield self._broken("context", record, f"{signal!r} is not version {self._version}, {self._context}")

    def _shows(self, signal: str) -> bool:
        """Whether the signal is what was told last, all of it, and nothing of the record that is not selected."""
        screen, record = self._context.get("screen"), self._context.get("record")
        is_seen = screen is not None and screen.get("label") != "secret"
        shown_screen = f">{screen['text']}</screen>" if screen is not None and is_seen else ""
        shown_record = f'id="{record["id"]}"' if record is not None else ""
        if 'left_out="' in signal:  # for want of room
            shown_screen = shown_record = ""
        said = unescape(signal)
        return (
            shown_screen in said
            and shown_record in said
            and (is_seen or "<screen" not in said)
            and (record is not None or "<record" not in said)
        )

    def _model_replied(self, record: Json) -> Iterator[Violation]:
        self._replied = replied_at(self._case, record)
        self._binding = dict(self._skills)
        yield from ()

    def _tool_started(self, record: Json) -> Iterator[Violation]:
        lists = [allowed for _, allowed in self._binding.values() if allowed]
        if not self._case.evidence.is_restricted or not lists or record["name"] in ENGINE_TOOLS:
            return
        joined = [allowed for _, allowed in self._skills.values()]  # a later attempt also knows what the first loaded
        if record["name"] not in {name for allowed in lists + joined for name in allowed}:
            yield self._broken("tool_not_allowed", record, f"{record['name']} is in none of {lists}")

    def _tool_finished(self, record: Json) -> Iterator[Violation]:
        following = self._case.story.records[record["seq"] : record["seq"] + 1]
        has_loaded = bool(following) and following[0]["kind"] == "skill_loaded"
        has_loaded = has_loaded and following[0]["call_id"] == record["call_id"]
        text = record["block"].get("content", "")
        brings_one = record["name"] == "load_skill" and text.startswith("Skill ") and ", version " in text[:80]
        if brings_one is not has_loaded:
            yield self._broken("skill_untold", record, f"{text!r} with a record of a skill: {has_loaded}")
        elif has_loaded and not text.startswith(
            f"Skill {following[0]['skill']}, version {following[0]['digest'][:12]}:"
        ):
            yield self._broken("skill_untold", record, f"{text!r} for {following[0]['digest']}")

    def _skill_loaded(self, record: Json) -> Iterator[Violation]:
        skill, digest = record["skill"], record["digest"]
        if self._skills.get(skill, ("", []))[0] == digest:
            yield self._broken("skill_twice", record, f"{skill} is in the view in this version")
        self._skills[skill] = (digest, record.get("allowed_tools", []))
        self._loaded_in[skill] = record["turn"]
        durable = self._case.durable(record["seq"])
        if was_off(self._case, f"skill.{skill}", self._replied, durable):
            yield self._broken("skill_off", record, f"{skill} was off all the time")
        if digest not in _shelved(self._case, skill, self._replied, durable):
            yield self._broken("skill_stale", record, f"{skill} was never of that version then")

    def _turn_refused(self, record: Json) -> Iterator[Violation]:
        self._skills, self._loaded_in = dict(self._base_skills), dict(self._base_loaded_in)
        yield from ()

    def _message_retracted(self, record: Json) -> Iterator[Violation]:
        if record.get("turn"):
            self._skills, self._loaded_in = dict(self._base_skills), dict(self._base_loaded_in)
        yield from ()

    def _context_replaced(self, record: Json) -> Iterator[Violation]:
        """A skill that was loaded in what goes stands at the head from now on, at that version, or is told as
        forgotten; and no other one is."""
        carried, forgotten = record.get("skills", []), record.get("forgotten", [])
        gone = {skill for skill, turn in self._loaded_in.items() if turn < record["kept_from"]}
        if set(carried) | set(forgotten) != gone and record["reason"] != "shortened":
            fact = f"carried are {carried}, forgotten {forgotten}, in what goes stood {sorted(gone)}"
            yield self._broken("skill_lost", record, fact)
        head, durable = [block["text"] for block in record["head"]], self._case.durable(record["seq"])
        since = self._case.durable(self._case.story.turns[record["turn"]].begin_seq)
        for skill in carried:
            mark = f"[Skill {skill}, version {self._skills[skill][0][:12]}, loaded earlier:]"
            if sum(text.startswith(mark) for text in head) != 1:
                yield self._broken("skill_lost", record, f"{mark} is not in the head once")
            if was_off(self._case, f"skill.{skill}", since, durable):
                yield self._broken("skill_off", record, f"{skill} was off all the time")
        window = self._case.evidence.window
        has_room = window is None or window.free_tokens >= ROOM_FOR_SKILLS_TOKENS
        has_room = has_room and record["reason"] != "everything"  # the running turn may leave no room
        for skill in forgotten:
            is_there = has_room and "" not in _shelved(self._case, skill, since, durable)
            if is_there and was_on(self._case, f"skill.{skill}", since, durable):
                yield self._broken("skill_lost", record, f"{skill} was forgotten, and could have been kept")
            if record["reason"] != "shortened":
                for skills in (self._skills, self._base_skills):
                    skills.pop(skill, None)
                for turns in (self._loaded_in, self._base_loaded_in):
                    turns.pop(skill, None)


def _runs(case: Case) -> Iterator[Violation]:
    """No tool runs that its turn does not offer, or that is off from the reply that asks for it on."""
    asked = {
        block["id"]: replied_at(case, record)
        for record in case.story.records
        if record["kind"] == "model_replied"
        for block in record["blocks"]
        if block["type"] == "tool_use"
    }
    for step in case.tool_steps:
        call = case.story.calls.get(step.call_id)
        if step.what != "started" or call is None or call.name != step.tool:
            continue
        if step.tool not in case.story.turns[call.turn].offered:
            yield case.broken("tool_not_offered", f"{step.tool} ran in turn {call.turn}, which does not offer it")
        if was_off(case, f"tool.{step.tool}", asked[step.call_id], step.moment):
            yield case.broken("tool_off", f"call {step.call_id} ran {step.tool}, which was off since it was asked for")
    for record in case.story.records:
        if record["kind"] != "subagent_started":
            continue
        id_, name = record["call_id"], record["name"]
        if was_off(case, f"subagent.{name}", asked.get(id_, NEVER), case.durable(record["seq"])):
            yield case.broken("tool_off", f"call {id_} had {name} work, which was off since it was asked for")


def replied_at(case: Case, record: Json) -> int:
    """When the model had said what a reply's record holds; ``NEVER`` when nobody noted it."""
    commit = case.commit_of(record["seq"])
    life = commit.life if commit else ""
    ended = (call.ended for call in case.model_calls if (call.call, call.life) == (record["call"], life) and call.ended)
    return max((moment for moment in ended if moment <= case.durable(record["seq"])), default=NEVER)


def was_off(case: Case, key: str, since: int, until: int) -> bool:
    """Whether a flag was off from one moment to another without a break."""
    changes = [change for change in case.evidence.switched if change.key == key]
    place = bisect_right(changes, since, key=lambda change: change.moment)
    if not place or changes[place - 1].is_on or since > until:
        return False
    return not any(change.is_on for change in changes[place:] if change.moment <= until)


def was_on(case: Case, key: str, since: int, until: int) -> bool:
    """Whether a flag was on from one moment to another without a break."""
    changes = [change for change in case.evidence.switched if change.key == key]
    place = bisect_right(changes, since, key=lambda change: change.moment)
    if (place and not changes[place - 1].is_on) or since > until:
        return False
    return all(change.is_on for change in changes[place:] if change.moment <= until)


def _shelved(case: Case, skill: str, since: int, until: int) -> set[str]:
    """The versions that a skill had between two moments."""
    changes = [change for change in case.evidence.shelved if change.skill == skill]
    place = bisect_right(changes, since, key=lambda change: change.moment)
    return {change.digest for change in changes[max(place - 1, 0) :] if change.moment <= until}


def _selection(context: Json) -> tuple[str, str] | None:
    record = context.get("record")
    return (record["type"], record["id"]) if record is not None else None
