"""Public conversations with what their follow-ups need, found without a person's marks.

- trec_cast: the words that a person put into a follow-up to make it clear by itself, where a user said them before. The
  data has no answers, so each turn is answered by a passage that says nothing.
- bfcl_memory: the accepted answers of each question, asked alone behind everything that its person said.
- tau_bench: ids and amounts that the recorded clerk's last words name, which neither the user's message nor a tool of
  the same turn does, but something before it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.followups.conversations import Conversation, Fact, FollowUp, plain, texts_of
from tests.support.recordings import HEARD, RecordedReply, RecordedTurn, recorded_sessions, tau_bench_trajectories

TOPICS_TOGETHER: Final = 5
"""Topics of trec_cast that one conversation goes through, one after the other."""
PASSAGE: Final = (
    "There is a passage on that. It goes on for a while, names a few things that nobody here needs to remember, and "
    "ends where it began. Whoever wrote it was careful, took more than one side, and left the reader free to make up "
    "their own mind. It has an introduction, three parts of about the same length, and a short conclusion. "
)
_WORD: Final = re.compile(r"[^\W_]+")
_COMMON: Final = frozenset(
    _WORD.findall(
        "about after also been before being between both could does doing done during each ever from have having into "
        "just like made make many more most much need once only other over same should some such than that their them "
        "then there these they this those through under until very were what when where which while will with would "
        "your tell describe give know mean used using work works take name kind kinds type types"
    )
)
_SHORTEST: Final = 4
_MARKS: Final = re.compile(r"#?\b[A-Z]?\d{6,}\b|\$\d[\d,]*(?:\.\d+)?|\b[a-z]+_[a-z]+_\d{3,}\b|\b(?=\w*\d)[A-Z0-9]{6}\b")
SCENARIOS: Final = ("customer", "healthcare", "notetaker")


def public(data: Path) -> tuple[Conversation, ...]:
    """All of them."""
    return (*trec_cast(data), *bfcl_memory(data), *tau_bench(data))


def trec_cast(data: Path) -> Iterator[Conversation]:
    """2019 with the resolved utterances beside it, 2020 with its manual rewrites."""
    folder = data / "trec_cast"
    for year, topics in (("2019", _topics_2019(folder)), ("2020", _topics_2020(folder))):
        for begin in range(0, len(topics), TOPICS_TOGETHER):
            utterances = [pair for topic in topics[begin : begin + TOPICS_TOGETHER] for pair in topic]
            yield _resolved(f"trec_cast {year}, from topic {begin + 1}", utterances)


def _topics_2019(folder: Path) -> list[list[tuple[str, str]]]:
    lines = (folder / "2019_data_evaluation_evaluation_topics_annotated_resolved_v1.0.tsv").read_text(encoding="utf-8")
    resolved = dict(line.split("\t", 1) for line in lines.splitlines() if "\t" in line)
    topics = _json(folder / "2019_data_evaluation_evaluation_topics_v1.0.json")
    return [
        [
            (turn["raw_utterance"], resolved.get(f"{topic['number']}_{turn['number']}", turn["raw_utterance"]))
            for turn in topic["turn"]
        ]
        for topic in topics
    ]


def _topics_2020(folder: Path) -> list[list[tuple[str, str]]]:
    topics = _json(folder / "2020_2020_manual_evaluation_topics_v1.0.json")
    return [[(turn["raw_utterance"], turn["manual_rewritten_utterance"]) for turn in topic["turn"]] for topic in topics]


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _resolved(name: str, utterances: Sequence[tuple[str, str]]) -> Conversation:
    """Args: utterances: as they were said, and as they are clear by themselves."""
    said = set[str]()
    follow_ups = []
    for number, (raw, clear) in enumerate(utterances, 1):
        own = _stems(raw)
        words = (_word_fact(stem) for stem in sorted((_stems(clear) - own) & said))
        if needs := tuple(word for word in words if not word.stands_in(plain(raw))):
            follow_ups.append(FollowUp(turn=number, kind="resolved", needs=needs))
        said |= own
    turns = tuple(RecordedTurn(user=raw, replies=(RecordedReply(text=PASSAGE),)) for raw, _ in utterances)
    return Conversation(name=name, set="trec_cast", turns=turns, follow_ups=tuple(follow_ups))


def _stems(text: str) -> set[str]:
    words = _WORD.findall(text.casefold().replace("'s", ""))
    return {word.removesuffix("s") for word in words if len(word) >= _SHORTEST and word not in _COMMON}


def _word_fact(stem: str) -> Fact:
    return Fact((stem, f"{stem}s"))


def bfcl_memory(data: Path) -> Iterator[Conversation]:
    """One conversation of each scenario, all its sessions in order, and every question about it."""
    questions = [json.loads(line) for line in (data / "bfcl_memory" / "questions.jsonl").read_text().splitlines()]
    for scenario in SCENARIOS:
        sessions = recorded_sessions(data / "bfcl_memory" / f"memory_{scenario}.json")
        told = [turn for session in sessions for turn in session.turns]
        asked = [each for each in questions if each["scenario"] == scenario and _is_told(each, told)]
        turns = [RecordedTurn(user=each["question"][0][0]["content"], replies=(_HEARD,)) for each in asked]
        follow_ups = (
            FollowUp(turn=number, kind="question", needs=(Fact(tuple(each["answers"])),))
            for number, each in enumerate(asked, len(told) + 1)
        )
        yield Conversation(
            name=f"bfcl_memory {scenario}",
            set="bfcl_memory",
            turns=(*told, *turns),
            follow_ups=tuple(follow_ups),
            common=len(told),
        )


_HEARD: Final = RecordedReply(text=HEARD)


def _is_told(question: Any, told: Sequence[RecordedTurn]) -> bool:
    """Whether an accepted answer stands in what was said, and none in the question."""
    fact, asked = Fact(tuple(question["answers"])), question["question"][0][0]["content"]
    return not fact.stands_in(plain(asked)) and any(fact.stands_in(plain(turn.user)) for turn in told)


def tau_bench(data: Path) -> Iterator[Conversation]:
    """Every trajectory in which the clerk names something from an earlier turn."""
    for recording in tau_bench_trajectories(data):
        follow_ups = tuple(_named_again(recording.turns))
        if follow_ups:
            yield Conversation(name=recording.name, set="tau_bench", turns=recording.turns, follow_ups=follow_ups)


def _named_again(turns: Sequence[RecordedTurn]) -> Iterator[FollowUp]:
    before = ""
    for number, turn in enumerate(turns, 1):
        *_, last = turn.replies
        now = plain("\n".join((turn.user, *(result for reply in turn.replies for result in reply.results))))
        facts = (Fact(_wordings(mark)) for mark in dict.fromkeys(_MARKS.findall(last.text)))
        if needs := tuple(fact for fact in facts if not fact.stands_in(now) and fact.stands_in(before)):
            yield FollowUp(turn=number, kind="named again", needs=needs)
        before = f"{before}\n{plain(' '.join(texts_of(turn)))}"


def _wordings(mark: str) -> tuple[str, ...]:
    """Results of tools have ids and amounts without the signs that people write before them."""
    bare = mark.lstrip("#$")
    return (mark,) if bare == mark else (mark, bare)
