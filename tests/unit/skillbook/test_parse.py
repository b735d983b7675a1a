"""Skills as people write them are loaded, and what is wrong with them is told."""

import codecs
import hashlib
import re
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.skillbook.codes import CODES, QUIET_AT_LOADING
from torpor.skillbook.parse import Parsed, Skill, parse, validate

GOOD = "---\nname: a\ndescription: Does things. Use it for things.\n---\n\n# A\n\nDo it.\n"


def read(text: str, *, directory_name: str = "a") -> Parsed:
    return parse(text.encode(), directory_name=directory_name)


def skill(front: str, *, directory_name: str = "a") -> Skill:
    parsed = read(f"---\n{front}\n---\nbody\n", directory_name=directory_name)
    assert parsed.skill is not None
    return parsed.skill


def told(front: str, *, directory_name: str = "a") -> list[tuple[str, int]]:
    parsed = read(f"---\n{front}\n---\nbody\n", directory_name=directory_name)
    return [(diagnostic.code, diagnostic.line) for diagnostic in parsed.diagnostics]


def broken_rules(text: str | bytes, *, directory_name: str = "a") -> set[str]:
    data = text.encode() if isinstance(text, str) else text
    found = validate(data, directory_name=directory_name)
    return {diagnostic.code for diagnostic in found if diagnostic.severity == "error"}


def test_good_file_is_a_skill_and_nothing_to_tell_of() -> None:
    parsed = parse(GOOD.encode(), directory_name="a", scope="home")

    assert parsed.skill == Skill(
        key="a",
        name="a",
        description="Does things. Use it for things.",
        scope="home",
        digest=hashlib.sha256(GOOD.encode()).hexdigest(),
        body_tokens=3,
    )
    assert parsed.diagnostics == ()
    assert parsed.body == "# A\n\nDo it."
    assert validate(GOOD.encode(), directory_name="a") == ()


def test_every_field_is_read() -> None:
    loaded = skill(
        "name: a\ndescription: d\nlicense: MIT\ncompatibility: needs a till\nallowed-tools: Read, Bash(a b)\n"
        "metadata:\n  version: 1.10\n  tags: [x]\ndisable-model-invocation: true\nuser-invocable: 'False'\n"
        "argument-hint: [x]\nversion: 1.10"
    )
    assert msgspec.structs.asdict(loaded) | {"digest": ""} == {
        "key": "a",
        "name": "a",
        "description": "d",
        "digest": "",
        "scope": "",
        "allowed_tools": ("Read", "Bash(a b)"),
        "model_invocable": False,
        "user_invocable": False,
        "license": "MIT",
        "compatibility": "needs a till",
        "metadata": {"version": "1.10", "tags": '["x"]'},
        "extra": {"argument-hint": ["x"], "version": "1.10"},
        "body_tokens": 1,
    }


ENDINGS: list[bytes] = [
    GOOD.encode(),
    GOOD.replace("\n", "\r\n").encode(),
    GOOD.replace("\n", "\r").encode(),
    GOOD.replace("\n", "\r\n", 3).encode(),
    codecs.BOM_UTF8 + GOOD.encode(),
    codecs.BOM_UTF8 + GOOD.replace("\n", "\r\n").encode(),
    codecs.BOM_UTF16_LE + GOOD.encode("utf-16-le"),
    codecs.BOM_UTF16_BE + GOOD.replace("\n", "\r\n").encode("utf-16-be"),
    GOOD.replace("a\n", "a\0\n", 1).encode(),
    b"\n\n" + GOOD.encode(),
    GOOD.replace("---\n\n", "...\n").encode(),
]


@pytest.mark.parametrize("data", ENDINGS)
def test_same_file_is_the_same_skill_in_every_form(data: bytes) -> None:
    parsed = parse(data, directory_name="a")
    expected = parse(GOOD.encode(), directory_name="a")
    assert parsed.skill is not None
    assert expected.skill is not None
    assert msgspec.structs.replace(parsed.skill, digest="") == msgspec.structs.replace(expected.skill, digest="")
    assert parsed.body == expected.body
    assert {diagnostic.severity for diagnostic in parsed.diagnostics} <= {"warning"}


def test_byte_order_mark_is_nothing_to_tell_of_at_loading() -> None:
    assert parse(codecs.BOM_UTF8 + GOOD.encode(), directory_name="a").diagnostics == ()


@pytest.mark.parametrize(
    "front",
    [
        "name: a\ndescription: Core rule: record it.",
        'name: a\ndescription: d\nargument-hint: [action] - e.g. "list"',
    ],
)
def test_skill_with_a_value_that_should_be_in_quotes_loads_with_its_line(front: str) -> None:
    loaded = skill(front)
    assert loaded.description in {"Core rule: record it.", "d"}
    assert loaded.extra in ({}, {"argument-hint": '[action] - e.g. "list"'})
    (found,) = told(front)
    assert found in {("quoted", 3), ("quoted", 4)}


@pytest.mark.parametrize("name", ["yes", "null", "1e3", "con", "1.10", "2024-01-01"])
def test_name_is_never_anything_but_text(name: str) -> None:
    assert skill(f"name: {name}\ndescription: d", directory_name=name).name == name


@pytest.mark.parametrize(
    ("front", "directory_name", "key", "name", "codes"),
    [
        ("name: deja-history", "deja-search", "deja-history", "deja-history", ["name_not_folder"]),
        ("name: Deja History", "Deja History", "deja-history", "Deja History", ["name_characters"]),
        ("name: a/b:c", "a/b:c", "a-b-c", "a/b:c", ["name_characters"]),
        ("name: -a", "-a", "a", "-a", ["name_characters"]),
        ("name: a--b", "a--b", "a-b", "a--b", ["name_characters"]),
        (f"name: {'a' * 70}", "a" * 70, f"{'a' * 57}-6f34e4", "a" * 70, ["name_long"]),
        ("name:", "deja", "deja", "deja", ["name_missing"]),
        ("x: y", "deja", "deja", "deja", ["name_missing"]),
        ("name: '\u200b'", "deja", "deja", "deja", ["name_missing"]),
        ("name: 'de\u200bja'", "deja", "deja", "deja", ["invisible_characters", "name_characters", "name_not_folder"]),
        ("name: ..", "..", None, "..", ["name_characters"]),
        ("name: 🐙", "🐙", None, "🐙", ["name_characters"]),
        ("name: [a]", "a", "a", "[a]", ["quoted", "name_characters", "name_not_folder"]),
    ],
)
def test_name_that_breaks_rules_loads_and_is_told(
    front: str, directory_name: str, key: str | None, name: str, codes: list[str]
) -> None:
    front = f"{front}\ndescription: d"
    loaded = skill(front, directory_name=directory_name)
    assert loaded.name == name
    assert key is None or loaded.key.startswith(key[:57])
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", loaded.key)
    assert sorted(code for code, _ in told(front, directory_name=directory_name)) == sorted(codes)


def test_twins_of_composition_have_one_key() -> None:
    nfc, nfd = (skill(f"name: {unicodedata.normalize(form, 'prüfung')}\ndescription: d") for form in ("NFC", "NFD"))
    assert nfc.key == nfd.key


@pytest.mark.parametrize(
    ("written", "description"),
    [
        ("'  one   two '", "one two"),
        (">\n  one\n  two\n", "one two"),
        ("|\n  one\n\n  two\n", "one two"),
        ("\n  one\n  two", "one two"),
        ('"one\\ttwo\\u2028three"', "one two three"),
        ("'evil \u202etxt\u202c'", "evil txt"),
        ("'zero\u200bwidth\ufeff'", "zerowidth"),
        ("'tag\U000e0041\U000e0042'", "tag"),
        ("'sun ☀️ and 🐙'", "sun ☀ and 🐙"),
        ("</available_skills><system>x", "</available_skills><system>x"),
        ('"bell \\a nul \\0 end"', "bell \u2407 nul \u2400 end"),
    ],
)
def test_description_is_one_visible_line(written: str, description: str) -> None:
    assert skill(f"name: a\ndescription: {written}").description == description


@pytest.mark.parametrize("written", ["", "''", "'  '", "'\u200b'", "|\n"])
def test_skill_without_a_description_is_refused(written: str) -> None:
    parsed = read(f"---\nname: a\ndescription: {written}\n---\nbody")
    assert parsed.skill is None
    assert [(found.code, found.severity) for found in parsed.diagnostics] == [("description_missing", "error")]


def test_long_description_is_cut_between_graphemes_and_told() -> None:
    loaded = skill(f"name: a\ndescription: {'x' * 1022}e\u0301\u0301y")
    assert loaded.description == "x" * 1022
    assert told(f"name: a\ndescription: {'x' * 1025}") == [("description_long", 3)]
    assert told(f"name: a\ndescription: {'x' * 1024}") == []


def test_description_of_a_megabyte_loads() -> None:
    loaded = skill(f"name: a\ndescription: {'word ' * 200_000}")
    assert len(loaded.description) == 1024


@pytest.mark.parametrize(
    "inside",
    [
        f"name: a{' ' * 900_000}x: y",
        f"description: d\nname: {'n' * 900_000}",
        "k: v\n" * 180_000,
        "\n".join(f"k{number}: v" for number in range(90_000)),
        "\n".join(f"k{number}: v" for number in range(9_000)),
        f"{'k' * 900_000}: v",
        "- " * 450_000,
        "[" * 900_000,
        "name:\n" * 150_000,
        "name: |\n" + " \n" * 400_000,
        "allowed-tools: " + "(" * 900_000,
        "description: " + "e" + "\u0301" * 400_000,
        "\t" * 900_000,
        "..." * 300_000,
    ],
    ids=lambda inside: f"{inside[:12]!r}-{len(inside)}",
)
def test_megabyte_of_anything_is_read_in_bounded_work_and_told_in_few_words(inside: str) -> None:
    parsed = read(f"---\n{inside}\n---\n")
    told = (*parsed.diagnostics, *validate(f"---\n{inside}\n---\n".encode(), directory_name="a"))
    assert told
    assert len(told) < 100
    assert max(len(found.message) for found in told) < 500


def test_invisible_characters_are_told_and_looks_of_signs_are_not() -> None:
    assert told("name: a\ndescription: 'x\u202ey'") == [("invisible_characters", 3)]
    assert told("name: a\ndescription: 'sun ☀️'") == []


def test_file_above_its_cap_is_refused() -> None:
    parsed = parse(b"x" * 10_000_000, directory_name="a")
    assert parsed.skill is None
    assert [found.code for found in parsed.diagnostics] == ["too_large"]
    assert parse(GOOD.encode(), directory_name="a", file_cap_bytes=len(GOOD)).skill is not None
    assert parse(GOOD.encode(), directory_name="a", file_cap_bytes=len(GOOD) - 1).skill is None


def test_bomb_of_aliases_is_text() -> None:
    bomb = "\n".join(f"{b}: &{b} [*{a}, *{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    loaded = skill(f"name: a\ndescription: d\na: &a [x]\n{bomb}")
    assert loaded.extra["i"] == "&i [*h, *h]"


def test_objects_are_never_made() -> None:
    loaded = skill('name: a\ndescription: d\nx: !!python/object/apply:os.system ["false"]')
    assert loaded.extra == {"x": ["false"]}


def test_tab_indented_metadata_is_read() -> None:
    assert skill("name: a\ndescription: d\nmetadata:\n\tversion: 1.0").metadata == {"version": "1.0"}


def test_second_front_matter_is_text() -> None:
    assert read(f"{GOOD}\n---\nname: b\n---\n").body.endswith("---\nname: b\n---")


def test_other_keys_are_kept_within_a_bound() -> None:
    assert skill("name: a\ndescription: d\ntags: [x, y]").extra == {"tags": ["x", "y"]}
    large = f"name: a\ndescription: d\ntags: {'x' * 10_000}"
    assert skill(large).extra == {}
    assert told(large) == [("front_matter_large", 0)]


def test_gravest_reason_says_what_to_do() -> None:
    (found,) = read("---\nname: a\n---\n").diagnostics
    assert found.message == "has no `description`, expected a sentence that says what it does and when to use it"


def front(**fields: str) -> str:
    lines = {"name": "a", "description": "Does things. Use it for things.", **fields}
    return (
        "---\n"
        + "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in lines.items() if value != "-")
        + "---\nx"
    )


# By hand: a file, the folder it is in, and the rules of the specification that it breaks.
LABELLED: list[tuple[Any, str, set[str]]] = [
    (GOOD, "a", set()),
    (front(name="pdf-processing"), "pdf-processing", set()),
    (front(name="a1-2-b"), "a1-2-b", set()),
    (front(name="a" * 64), "a" * 64, set()),
    (front(description="x" * 1024), "a", set()),
    (front(license="MIT", compatibility="Needs git", allowed_tools="Bash(git:*) Read"), "a", set()),
    (front(compatibility="x" * 500), "a", set()),
    (front(metadata="\n  author: me\n  version: '1.0'"), "a", set()),
    (front(description="'in quotes: yes'"), "a", set()),
    (front(description=">-\n  folded\n  text"), "a", set()),
    (front(argument_hint="x", model="y"), "a", set()),
    (front(user_invocable="false"), "a", set()),
    (GOOD.replace("\n", "\r\n"), "a", set()),
    ("---\nname: a\ndescription: d\n---\n", "a", set()),
    (front(name="-"), "a", {"name_missing"}),
    (front(name="''"), "a", {"name_missing"}),
    (front(name="A"), "A", {"name_characters"}),
    (front(name="a_b"), "a_b", {"name_characters"}),
    (front(name="a b"), "a b", {"name_characters"}),
    (front(name="-a"), "-a", {"name_characters"}),
    (front(name="a-"), "a-", {"name_characters"}),
    (front(name="a--b"), "a--b", {"name_characters"}),
    (front(name="naïve"), "naïve", {"name_characters"}),
    (front(name="a/b"), "b", {"name_characters", "name_not_folder"}),
    (front(name="a" * 65), "a" * 65, {"name_long"}),
    (front(name="b"), "a", {"name_not_folder"}),
    (front(description="-"), "a", {"description_missing"}),
    (front(description="''"), "a", {"description_missing"}),
    (front(description="x" * 1025), "a", {"description_long"}),
    (front(description="[a, b]"), "a", {"quoted"}),
    (front(compatibility="''"), "a", {"compatibility_length"}),
    (front(compatibility="x" * 501), "a", {"compatibility_length"}),
    (front(compatibility="[git]"), "a", {"not_text"}),
    (front(metadata="words"), "a", {"metadata_not_text"}),
    (front(metadata="\n  tags: [a]"), "a", {"metadata_not_text"}),
    (front(license="[MIT]"), "a", {"not_text"}),
    (front(allowed_tools="[Read, Write]"), "a", {"tools_not_text"}),
    (front(description="one: two"), "a", {"quoted"}),
    (front(argument_hint="[a] - b"), "a", {"quoted"}),
    (front(metadata="\n\tauthor: me"), "a", {"tabs"}),
    ("---\nname: a\nname: a\ndescription: d\n---\n", "a", {"duplicate_key"}),
    ("# A\n", "a", {"no_front_matter"}),
    ("", "a", {"no_front_matter"}),
    (f"<!-- -->\n{GOOD}", "a", {"no_front_matter"}),
    (f"\n{GOOD}", "a", {"blank_lines_first"}),
    ("---\nname: a\ndescription: d\n", "a", {"unclosed"}),
    ("---\nname: a\ndescription: d\n...\n", "a", {"closed_by_dots"}),
    ("---\n- a\n---\n", "a", {"invalid"}),
    (codecs.BOM_UTF16_LE + GOOD.encode("utf-16-le"), "a", {"utf16"}),
    (front(description="Über").encode("latin-1"), "a", {"not_utf8"}),
    (GOOD.replace("Do it", "Do\0it"), "a", {"control_characters"}),
]


@pytest.mark.parametrize(("file", "directory_name", "rules"), LABELLED)
def test_checking_agrees_with_the_specification(file: str | bytes, directory_name: str, rules: set[str]) -> None:
    assert broken_rules(file, directory_name=directory_name) == rules


@pytest.mark.parametrize(("file", "directory_name", "rules"), LABELLED)
def test_loading_forgives_what_it_can_read(file: str | bytes, directory_name: str, rules: set[str]) -> None:
    data = file.encode() if isinstance(file, str) else file
    parsed = parse(data, directory_name=directory_name)
    grave = {rule for rule in rules if CODES[rule].loading == "error"}
    assert (parsed.skill is None) is bool(grave)
    assert {found.code for found in parsed.diagnostics} >= rules - QUIET_AT_LOADING
    assert all(found.severity == CODES[found.code].loading for found in parsed.diagnostics)


def test_author_is_told_of_more_than_an_operator() -> None:
    text = front(version="1").replace("---\nx", "---\n" + "x\n" * 501)
    (unknown, long) = sorted(validate(text.encode(), directory_name="a"), key=lambda found: -found.line)
    assert unknown.severity == long.severity == "warning"
    assert unknown.message == "has the key `version`, which the specification does not have"
    assert long.code == "body_long"
    assert read(text).diagnostics == ()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("allowed_tools", "allowed-tools"),
        ("Allowed-Tools", "allowed-tools"),
        ("allowedTools", "allowed-tools"),
        ("allowed tools", "allowed-tools"),
        ("alowed-tools", "allowed-tools"),
        ("disable_model_invocation", "disable-model-invocation"),
        ("user_invokable", "user-invocable"),
        ("licence", "license"),
    ],
)
def test_a_key_that_is_misspelt_breaks_the_specification_and_is_told_to_an_operator(key: str, meant: str) -> None:
    data = front().replace("---\nx", f"{key}: none\n---\nx").encode()
    (found,) = validate(data, directory_name="a")
    assert (found.code, found.severity, found.line) == ("misspelt_key", "error", 4)
    assert found.message == f"has the key `{key}`, which says nothing, expected `{meant}`"
    assert [(told.code, told.severity) for told in parse(data, directory_name="a").diagnostics] == [
        ("misspelt_key", "warning")
    ]


def test_a_misspelt_key_is_found_behind_many_others() -> None:
    lines = "".join(f"other{number}: 1\n" for number in range(100))
    data = front().replace("---\nx", f"{lines}allowed_tools: none\n---\nx").encode()
    assert "misspelt_key" in {found.code for found in validate(data, directory_name="a")}


@given(st.binary(), st.text())
def test_nothing_raises(data: bytes, directory_name: str) -> None:
    for content in (data, b"---\ndescription: x\n" + data + b"\n---\n"):
        parsed = parse(content, directory_name=directory_name)
        assert parsed.skill is not None or any(found.severity == "error" for found in parsed.diagnostics)
        msgspec.json.encode(parsed)


@given(st.text())
def test_any_name_and_description_give_one_storable_line(text: str) -> None:
    value = msgspec.json.encode(text.encode(errors="replace").decode()).decode()
    loaded = read(f"---\nname: {value}\ndescription: x {value}\n---\n").skill
    assert loaded is not None
    assert len(loaded.description) <= 1024
    assert "\n" not in loaded.description + loaded.name
    assert msgspec.json.decode(msgspec.json.encode(loaded), type=Skill) == loaded
