"""The interventions that a plan may name: ``config/interventions.toml``, read, checked, searched and told.

Above: the result type of plans, which refuses what is not here, and the tools by which a child looks around. A file
with a fault is no catalogue. Searching is in memory and gives the same answer to the same question.
"""

import difflib
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from torpor.conversation.text import is_blank
from torpor.conversation.words import words_of
from torpor.errors import ConfigError
from torpor.misfits import Words, misfit_in_toml, read_toml, seen

CATALOGUE_FILE: Final = "config/interventions.toml"
ID_CHARS_MAX: Final = 64
QUERY_CHARS_MAX: Final = 2_048
QUERY_WORDS_MAX: Final = 24
"""Different words of a search that count, the first ones."""

Id: TypeAlias = Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=600)]

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_NEAREST_MAX: Final = 3
_NEAREST_CUTOFF: Final = 0.5
_STEM_MIN: Final = 4
_ENDING_MAX: Final = 2
"""Letters by which two forms of a word may differ from what they share."""
_NAME_WEIGHT: Final = 4
_PROBLEM_WEIGHT: Final = 3
_WHOLE: Final = 3
"""What a whole word counts, where another form of it counts 1."""


class DoseOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of it."""

    id: Id
    text: Name


class Intervention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry."""

    id: Id
    title: Name
    summary: Text
    applies_to: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=20)]
    """Codes of problems."""
    dose_options: Annotated[tuple[DoseOption, ...], msgspec.Meta(min_length=1, max_length=10)]
    cautions: Annotated[tuple[Name, ...], msgspec.Meta(max_length=10)] = ()
    """To be told with it."""
    contraindications: Annotated[tuple[Id, ...], msgspec.Meta(max_length=10)] = ()
    """Ids of what must be known to be absent."""

    def dose(self, id_: str) -> DoseOption | None:
        return next((option for option in self.dose_options if option.id == id_), None)


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    problems: Annotated[dict[Id, Name], msgspec.Meta(min_length=1, max_length=500)]
    contraindications: Annotated[dict[Id, Name], msgspec.Meta(max_length=500)] = {}
    intervention: Annotated[tuple[Intervention, ...], msgspec.Meta(min_length=1, max_length=1_000)]


class InterventionCatalogue:
    """All entries; immutable."""

    def __init__(
        self, entries: Iterable[Intervention], *, problems: Mapping[str, str], contraindications: Mapping[str, str]
    ) -> None:
        """Args: problems, contraindications: what they are, by code and by id."""
        self._by_id = {entry.id: entry for entry in sorted(entries, key=lambda entry: entry.id)}
        self.problems: Final[Mapping[str, str]] = dict(sorted(problems.items()))
        self.contraindications: Final[Mapping[str, str]] = dict(sorted(contraindications.items()))
        self._words = {entry.id: self._words_of(entry) for entry in self}

    @property
    def ids(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(self._by_id)

    def get(self, id_: str) -> Intervention | None:
        return self._by_id.get(id_)

    def search(self, query: str, *, limit: int) -> tuple[Intervention, ...]:
        """The entries that share words with ``query``, best first; ties in the order of ids.

        Having more of the words counts most; then a word counts most in an id or a title, next in what it is for, and
        more whole than as another form.
        """
        had: Counter[str] = Counter()
        scores: Counter[str] = Counter()
        for word in words_of(query[:QUERY_CHARS_MAX], words_max=QUERY_WORDS_MAX):
            for entry_id, words in self._words.items():
                if worth := max((weight * _likeness(word, other) for other, weight in words.items()), default=0):
                    had[entry_id] += 1
                    scores[entry_id] += worth
        best = heapq.nsmallest(limit, had, key=lambda entry_id: (-had[entry_id], -scores[entry_id], entry_id))
        return tuple(self._by_id[entry_id] for entry_id in best)

    def nearest(self, id_: str) -> tuple[str, ...]:
        """At most three ids that ``id_`` may be meant for: those written alike, else those that a search finds."""
        return nearest(id_, self._by_id) or tuple(entry.id for entry in self.search(id_, limit=_NEAREST_MAX))

    def _words_of(self, entry: Intervention) -> dict[str, int]:
        """What each word of an entry weighs."""
        rest = " ".join((entry.summary, *(option.text for option in entry.dose_options)))
        problems = " ".join(f"{code} {self.problems.get(code, '')}" for code in entry.applies_to)
        weights = dict.fromkeys(_all_words(rest), 1)
        weights |= dict.fromkeys(_all_words(problems), _PROBLEM_WEIGHT)
        return weights | dict.fromkeys(_all_words(f"{entry.id} {entry.title}"), _NAME_WEIGHT)

    def __iter__(self) -> Iterator[Intervention]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"<InterventionCatalogue entries={len(self)} problems={len(self.problems)}>"


def load_catalogue(home: Path) -> InterventionCatalogue:
    """The catalogue of a home. Raises: ConfigError: there is none, or it has a fault."""
    try:
        tables = read_toml(home / CATALOGUE_FILE, where=CATALOGUE_FILE)
    except FileNotFoundError as exc:
        raise ConfigError(
            CATALOGUE_FILE, key="file", found=Words("missing"), expected="the interventions that plans are made of"
        ) from exc
    return catalogue_from(tables, where=CATALOGUE_FILE)


def catalogue_from(tables: Mapping[str, Any], *, where: str) -> InterventionCatalogue:
    """The catalogue that ``tables`` are. Args: where: what errors call the file.

    Raises: ConfigError: names the place, what is there and what is expected.
    """
    try:
        file = msgspec.convert(tables, _File)
    except msgspec.ValidationError as exc:
        unfit = misfit_in_toml(exc, _File, value=dict(tables))
        found = seen(unfit, dict(tables))
        raise ConfigError(where, key=unfit.path.strip(".") or "content", found=found, expected=unfit.expected) from exc
    for fault in itertools.chain(_faults(file), _blanks(file)):
        raise ConfigError(where, key=fault.key, found=fault.found, expected=fault.expected)
    return InterventionCatalogue(file.intervention, problems=file.problems, contraindications=file.contraindications)


def nearest(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three of ``known`` that are written like ``word``, the most alike first."""
    near = difflib.get_close_matches(word[:ID_CHARS_MAX].lower(), known, n=_NEAREST_MAX, cutoff=_NEAREST_CUTOFF)
    return tuple(near)


def _all_words(text: str) -> list[str]:
    return words_of(text, words_max=len(text) + 1)


def _likeness(word: str, other: str) -> int:
    if word == other:
        return _WHOLE
    shared = max(_STEM_MIN, min(len(word), len(other)) - _ENDING_MAX)
    return int(len(word) >= shared and word[:shared] == other[:shared])


class _Fault(NamedTuple):
    key: str
    found: str
    expected: str


def _faults(file: _File) -> Iterator[_Fault]:
    """Ids that are written wrongly, stand for nothing or stand for two things."""
    yield from _odd_ids(file)
    first: dict[str, int] = {}
    for number, entry in enumerate(file.intervention):
        place = f"intervention[{number}]"
        before = first.setdefault(entry.id, number)
        if before != number:
            yield _Fault(f"{place}.id", entry.id, f"another id, since intervention[{before}] has it")
        yield from _strangers(entry.applies_to, file.problems, place=f"{place}.applies_to", table="problems")
        yield from _strangers(
            entry.contraindications,
            file.contraindications,
            place=f"{place}.contraindications",
            table="contraindications",
        )
        doses = [option.id for option in entry.dose_options]
        for part, ids in (
            ("applies_to", entry.applies_to),
            ("contraindications", entry.contraindications),
            ("dose_options", doses),
        ):
            yield from (
                _Fault(f"{place}.{part}[{index}]", id_, "each id once")
                for index, id_ in enumerate(ids)
                if id_ in ids[:index]
            )


def _odd_ids(file: _File) -> Iterator[_Fault]:
    expected = f"an id of small letters, digits, '-', '_' and '.', at most {ID_CHARS_MAX} of them"
    ids = [("problems", code) for code in file.problems]
    ids += [("contraindications", id_) for id_ in file.contraindications]
    for number, entry in enumerate(file.intervention):
        ids.append((f"intervention[{number}].id", entry.id))
        ids += [
            (f"intervention[{number}].dose_options[{at}].id", dose.id) for at, dose in enumerate(entry.dose_options)
        ]
    return (_Fault(key, id_, expected) for key, id_ in ids if not _ID.fullmatch(id_))


def _strangers(ids: Iterable[str], known: Mapping[str, str], *, place: str, table: str) -> Iterator[_Fault]:
    for index, id_ in enumerate(ids):
        if id_ not in known:
            near = nearest(id_, known)
            perhaps = f", perhaps {' or '.join(map(repr, near))}" if near else ""
            yield _Fault(f"{place}[{index}]", id_, f"a key of [{table}]{perhaps}")


def _blanks(file: _File) -> Iterator[_Fault]:
    texts = {f"problems.{code}": text for code, text in file.problems.items()}
    texts |= {f"contraindications.{id_}": text for id_, text in file.contraindications.items()}
    for number, entry in enumerate(file.intervention):
        place = f"intervention[{number}]"
        texts |= {f"{place}.title": entry.title, f"{place}.summary": entry.summary}
        texts |= {f"{place}.cautions[{index}]": text for index, text in enumerate(entry.cautions)}
        texts |= {f"{place}.dose_options[{index}].text": dose.text for index, dose in enumerate(entry.dose_options)}
    return (_Fault(key, text, "visible text") for key, text in texts.items() if is_blank(text))
