"""Flags as people write them, and decisions by their rules."""

import itertools

import pytest

from torpor.flags.contract import FlagContext
from torpor.flags.declared import FlagsUnreadable, decide, parse_flags, share_of

BOOK = "tool.book_visit"


def somebody(owner: str = "ada", *, tenant: str = "north", agent: str = "clinic") -> FlagContext:
    return FlagContext(tenant=tenant, owner=owner, agent=agent)


def decided(rules: str, context: FlagContext, *, default: str = "true") -> tuple[bool, str, str]:
    """Value, variant and reason of one flag with ``rules``."""
    flags = parse_flags(f'[flags."{BOOK}"]\ndefault = {default}\n{rules}')
    decision = decide(BOOK, flags[BOOK], context)
    return decision.value, decision.variant, decision.reason


def rule(text: str) -> str:
    return f'[[flags."{BOOK}".rules]]\n{text}\n'


def problems(text: str) -> list[tuple[int, str]]:
    with pytest.raises(FlagsUnreadable) as caught:
        parse_flags(text)
    return [(problem.line, str(problem)) for problem in caught.value.problems]


def test_flag_without_rules_has_its_default() -> None:
    assert decided("", somebody()) == (True, "default", "STATIC")
    assert decided("", somebody(), default="false") == (False, "default", "STATIC")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('tenant = "north"', True),
        ('tenant = "south"', False),
        ('tenant = ["south", "north"]', True),
        ('owner = "ada"', True),
        ('owner = ["grace"]', False),
        ('agent = "clinic"', True),
        ('agent = "desk"', False),
        ('tenant = "north"\nowner = "ada"\nagent = "clinic"', True),
        ('tenant = "north"\nowner = "grace"', False),
        ("", True),
    ],
)
def test_rule_holds_when_all_of_its_conditions_do(condition: str, holds: bool) -> None:
    expected = (False, "rule-1", "TARGETING_MATCH") if holds else (True, "default", "DEFAULT")

    assert decided(rule(f"{condition}\nvalue = false"), somebody()) == expected


def test_first_rule_that_holds_decides() -> None:
    rules = rule('owner = "grace"\nvalue = false') + rule('tenant = "north"\nvalue = true') + rule("value = false")

    assert decided(rules, somebody("ada"), default="false") == (True, "rule-2", "TARGETING_MATCH")
    assert decided(rules, somebody("grace")) == (False, "rule-1", "TARGETING_MATCH")
    assert decided(rules, somebody(tenant="south")) == (False, "rule-3", "TARGETING_MATCH")


def test_percentage_takes_its_share_of_owners() -> None:
    rules = rule("percentage = 20\nvalue = false")

    off = [name for name in range(10_000) if not decided(rules, somebody(f"o{name}"))[0]]

    assert 1_900 < len(off) < 2_100
    assert decided(rules, somebody(f"o{off[0]}"))[2] == "SPLIT"


def test_percentage_draws_the_same_owners_in_every_process() -> None:
    shares = [round(share_of(BOOK, somebody(owner)), 3) for owner in ("ada", "grace", "edsger")]

    assert shares == [82.076, 22.46, 64.001]


def test_percentage_draws_by_owner_and_not_by_agent() -> None:
    assert share_of(BOOK, somebody(agent="desk")) == share_of(BOOK, somebody())
    assert share_of(BOOK, somebody(tenant="south")) != share_of(BOOK, somebody())


def test_larger_percentage_keeps_the_owners_of_a_smaller_one() -> None:
    def drawn(percentage: int) -> set[int]:
        rules = rule(f"percentage = {percentage}\nvalue = false")
        return {name for name in range(300) if not decided(rules, somebody(f"o{name}"))[0]}

    drawn_by_size = [drawn(percentage) for percentage in (0, 10, 50, 100)]

    assert all(smaller < larger for smaller, larger in itertools.pairwise(drawn_by_size))
    assert (len(drawn_by_size[0]), len(drawn_by_size[-1])) == (0, 300)


def test_each_flag_draws_its_own_owners() -> None:
    owners = [somebody(f"o{name}") for name in range(300)]

    first, second = ({who.owner for who in owners if share_of(key, who) < 50} for key in (BOOK, "memory"))

    assert first - second
    assert second - first


def test_flags_are_sorted_by_key() -> None:
    flags = parse_flags(
        '[flags.memory]\ndefault = false\n[flags."skill.visits"]\ndefault = true\n[flags.live_context]\ndefault = true'
    )

    assert list(flags) == ["live_context", "memory", "skill.visits"]
    assert parse_flags("") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[flags."tool.pay"]\ndefault = 1', [(1, 'flags."tool.pay".default is unusable: expected bool, got int')]),
        ('[flags."tool.pay"]', [(1, 'flags."tool.pay" is unusable: it lacks the field default')]),
        ('\n[flags."tol.pay"]\ndefault = true', [(2, 'flags."tol.pay" is unknown, perhaps \'tool.pay\', '
          "expected tool.<name>, skill.<name>, subagent.<name>, mcp.<name>, memory or live_context")]),
        ("[flags.tool.pay]\ndefault = true", [(1, 'flags."tool" is unknown, expected tool.<name>, skill.<name>, '
          'subagent.<name>, mcp.<name>, memory or live_context; quote the key, as in [flags."tool.name"]')]),
        ("[flag.memory]\ndefault = true", [(1, 'flag is unknown, expected tables [flags."<key>"]')]),
        ("flags = 3", [(1, 'flags is unknown, expected tables [flags."<key>"]')]),
        ("[flags.memory]\ndefault = true\nx = 3", [(1, 'flags."memory" is unusable: it has the unknown field x, '
          "expected one of default, description, rules")]),
    ],
)  # fmt: skip
def test_fault_is_told_with_its_line(text: str, expected: list[tuple[int, str]]) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("percentage = 120", "percentage is unusable: expected float <= 100.0"),
        ("percentage = -1", "percentage is unusable: expected float >= 0.0"),
        ('percentage = "half"', "percentage is unusable: expected float, got str"),
        ("tenant = []", "tenant is unusable: expected a list of length >= 1"),
        ('owner = ""', "owner is unusable: expected str of length >= 1"),
        (
            'who = "ada"',
            " is unusable: it has the unknown field who, expected one of agent, owner, percentage, tenant, value",
        ),
    ],
)
def test_fault_of_a_rule_is_told_with_the_line_of_that_rule(fault: str, told: str) -> None:
    text = f'[flags."{BOOK}"]\ndefault = true\n{rule("value = true")}{rule(f"{fault}{chr(10)}value = false")}'

    ((line, message),) = problems(text)

    assert line == 5
    assert message == f'flags."{BOOK}".rules[1]{"" if told.startswith(" ") else "."}{told}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[flags.memory]\ndefault = \n", 2),
        ('[flags."tool.pay"]\ndefault = "', 2),
        ("[flags.memory]\ndefault = [true,\n", 2),
        ("[flags.memory", 1),
        ("[flags.memory]\n[flags.memory]\n", 2),
    ],
)
def test_file_that_is_not_toml_is_told_with_the_line_of_the_fault(text: str, told: int) -> None:
    ((line, message),) = problems(text)

    assert line == told
    assert message.startswith("not TOML: ")


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    text = '[flags.memory]\ndefault = 1\n[flags."tool.pay"]\ndefault = true\n[flags."skill."]\ndefault = true\n[other]'

    assert [line for line, _ in problems(text)] == [1, 5, 7]


def test_a_file_nested_without_end_is_told_and_never_followed() -> None:
    with pytest.raises(FlagsUnreadable) as refused:
        parse_flags("x = " + "[" * 5_000 + "]" * 5_000)

    (problem,) = refused.value.problems
    assert problem.message.startswith("not TOML: ")


@pytest.mark.parametrize("number", ["1" * 5_000, "0x" + "f" * 5_000])
def test_number_without_end_is_a_fault_like_any_other(number: str) -> None:
    assert "a number beyond 64 bits" in problems(f'[flags."{BOOK}"]\ndefault = {number}\n')[0][1]


def test_brackets_without_end_are_a_fault_like_any_other() -> None:
    assert "not TOML" in problems("a = " + "[" * 10_000)[0][1]


def test_name_of_many_parts_is_a_fault_and_not_read() -> None:
    assert "more than 64 parts" in problems("a." * 100_000 + "b = 1")[0][1]


def test_flags_beyond_a_thousand_are_refused() -> None:
    text = "".join(f'[flags."tool.t{number}"]\ndefault = true\n' for number in range(1_001))

    assert "1,001 flags" in problems(text)[0][1]


def test_file_with_nothing_but_faults_tells_the_first_twenty() -> None:
    text = "".join(f'[flags."tool.t{number}"]\ndefault = 1\n' for number in range(900))

    assert len(problems(text)) == 20
