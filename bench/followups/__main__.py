"""What follow-ups can still see, by policy: ``python -m bench.followups [--json] [--quick]``.

The project's own conversations and, where TORPOR_TEST_DATA or the folder beside the project has them, public ones. With
``--model`` a real model makes summaries as well and answers every follow-up of the clinic's conversations.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import anyio

from bench.followups.answers import answered, opened
from bench.followups.compare import Case, Maker, Outcome, at_the_worst_moment, compared, under_pressure
from bench.followups.conversations import Conversation, clinic
from bench.followups.items import kept
from bench.followups.public import public
from bench.followups.report import Report, Section, as_builtins, figures, table
from bench.followups.summarisers import Counted, extract, lazy, scripted
from tests.support.recordings import data_folder
from torpor.errors import ConfigError
from torpor.operations.logs import LogOptions, configure_logs

PRESSURES: Final = (2.0, 4.0)
"""How many times the budget a whole conversation is."""
QUICK: Final = 4
"""Conversations of the clinic in a quick run."""
RULES: Final[dict[str, Maker]] = {
    "extract": lambda cap_tokens: scripted(extract(cap_tokens=cap_tokens), name="extract"),
    '"ok."': lambda cap_tokens: scripted(lazy, name="lazy"),
}

Told = list[tuple[Case, tuple[Outcome, ...]]]


async def measured(*, is_quick: bool, table_: dict[str, Any] | None = None, answers_max: int = 20) -> Report:
    """Everything. Args: table_: of the model that makes summaries and answers.  answers_max: cases it answers.

    Raises: ConfigError: the model cannot be used.
    """
    own = clinic()[:QUICK] if is_quick else clinic()
    data = None if is_quick else data_folder()
    sets = [own, *_by_set(public(data))] if data is not None else [own]
    async with AsyncExitStack() as stack:
        makers, name, model = dict(RULES), "", None
        if table_ is not None:
            model = await stack.enter_async_context(opened(table_))
            name = str(table_.get("model", table_["kind"]))
            makers[name] = partial(_real, Counted(model))
        sections, answers = list[Section](), []
        for pressure in PRESSURES[:1] if is_quick else PRESSURES:
            for conversations in sets:
                cases = [await under_pressure(conversation, pressure=pressure) for conversation in conversations]
                told = [
                    (case, await compared(case, makers=makers if case.conversation in own else RULES)) for case in cases
                ]
                sections.append(_section(f"{pressure:g} times the budget", told))
                if model is not None and conversations is own and pressure == PRESSURES[0]:
                    answers = await answered(model, name, told[:answers_max])
        worst = [case for conversation in own for case in await at_the_worst_moment(conversation)]
        told = [(case, await compared(case, makers=RULES)) for case in worst]
        sections.append(_section("folded at the follow-up itself", told))
        return Report(
            sections=tuple(sections),
            items=tuple(await kept(own)),
            summarisers=tuple(makers),
            answers=tuple(answers),
            model=name,
        )


def _real(model: Counted, cap_tokens: int) -> Counted:
    del cap_tokens
    return model.again()


def _by_set(conversations: Iterable[Conversation]) -> list[tuple[Conversation, ...]]:
    found = dict[str, list[Conversation]]()
    for conversation in conversations:
        found.setdefault(conversation.set, []).append(conversation)
    return [tuple(each) for each in found.values()]


def _section(window: str, told: Told) -> Section:
    conversations = {case.conversation.name: len(case.conversation.follow_ups) for case, _ in told}
    judged = {(case.conversation.name, place) for case, _ in told for place in case.places}
    return Section(
        set=told[0][0].conversation.set,
        window=window,
        conversations=len(conversations),
        left_out=sum(conversations.values()) - len(judged),
        figures=figures(outcome for _, outcomes in told for outcome in outcomes),
    )


def main(argv: list[str]) -> int:
    """The command; 2 when the model cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m bench.followups")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="a few of the project's own conversations only")
    parser.add_argument("--model", choices=("anthropic", "local"), help="who also makes summaries, and answers")
    parser.add_argument("--model-name", default="claude-haiku-4-5", help="with --model anthropic")
    parser.add_argument("--model-file", help="with --model local: a GGUF file")
    parser.add_argument("--answers", type=int, default=20, help="conversations whose follow-ups are answered")
    arguments = parser.parse_args(argv)
    tables = {
        "anthropic": {"kind": "anthropic", "model": arguments.model_name},
        "local": {"kind": "local", "path": arguments.model_file or ""},
    }
    configure_logs(LogOptions(level="error"))
    run = partial(
        measured,
        is_quick=arguments.quick,
        table_=tables.get(arguments.model or ""),
        answers_max=arguments.answers,
    )
    try:
        report = anyio.run(run)
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        return 2
    print(json.dumps(as_builtins(report), indent=2) if arguments.json else table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
