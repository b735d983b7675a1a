"""Text that breaks others, from every side it can come from, leaves a conversation that goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.integration.home.houses import Home, House, kinds, living, results_in, text_of
from tests.support.doubles import calls, says, use
from tests.support.request_rules import violations
from torpor.client.failures import RequestRefused

TOOLS = '''
"""Tools that say what breaks others."""

from torpor import tool

FAMILY = "\\U0001f469\\u200d\\U0001f469\\u200d\\U0001f467"


@tool(effect="read")
def half() -> str:
    """Half a character."""
    return "before \\ud83d after"


@tool(effect="read")
def controls() -> dict[str, str]:
    """Controls, as keys too."""
    return {"nul\\x00": "\\x00\\x01\\x1b", "text": "fine"}


@tool(effect="read")
def binary() -> str:
    """A megabyte that was no text."""
    return bytes(range(256)).decode("latin-1") * 4096


@tool(effect="read")
def huge() -> str:
    """Five megabytes."""
    return "the head of it " + FAMILY * 300_000 + " the tail of it"


@tool(effect="read")
def large() -> str:
    """Two hundred kilobytes."""
    return "word " * 40_000
'''


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.module("odd.py", TOOLS)
    return home


def everything_is_sound(house: House) -> None:
    """Every request can be encoded, was valid, and holds neither half characters nor controls."""
    for body, request in zip(house.model.bodies, house.model.requests, strict=True):
        body.decode()
        assert violations(request) == []
        assert not {char for char in "".join(texts_in(request)) if char < " " and char not in "\t\n\r"}


def texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts_in(part)]
    return [text for part in value for text in texts_in(part)] if isinstance(value, list) else []


async def test_results_with_half_characters_and_controls_are_cleaned_visibly(home: Home) -> None:
    async with living(home, calls(use("half", "a"), use("controls", "b")), says("So."), says("On.")) as house:
        await house.ask("go")
        half, controls = await house.results()
        assert half == "before \ufffd after"
        assert controls == r'{"nul\u0000":"\u0000\u0001\u001b","text":"fine"}'  # escapes, which are text
        cleaned = {record["name"]: record.get("cleaned", 0) for record in await house.records("tool_finished")}
        assert cleaned == {"half": 1, "controls": 0}
        assert kinds(await house.ask("and on"))[-1] == "turn.finished"
        everything_is_sound(house)


async def test_binary_is_cut_cleaned_and_kept_whole(home: Home) -> None:
    async with living(home, calls(use("binary", "a")), says("So."), says("On.")) as house:
        await house.ask("go")
        (record,) = await house.records("tool_finished")
        assert record["cleaned"] > 100_000
        assert len(record["block"]["content"].encode()) <= 16_384
        handle = record["handle"]
        house.model.then(calls(use("read_result", "a", handle=handle, offset=500_000)), says("Read."))
        house.model.plays.rotate(2)
        await house.ask("read on")
        (page,) = await house.results()
        assert re.match(r"\[bytes 50000\d to 51\d{4}, continue with offset=51\d{4}\]\n", page)
        everything_is_sound(house)


async def test_a_result_of_megabytes_keeps_head_and_tail_and_the_conversation_goes_on(home: Home) -> None:
    async with living(home, calls(use("huge", "a")), says("So."), says("On.")) as house:
        await house.ask("go")
        (result,) = results_in(house.model.requests[1])
        text = result["content"]
        assert text.startswith("the head of it ")
        assert text.endswith(" the tail of it")
        assert "read_result" in text
        assert len(text.encode()) <= 16_384
        assert kinds(await house.ask("and on"))[-1] == "turn.finished"
        everything_is_sound(house)


async def test_thirty_large_results_at_once_fit_the_next_request(home: Home) -> None:
    many = calls(*(use("large", f"call-{number}") for number in range(30)))
    async with living(home, many, says("So."), says("On.")) as house:
        assert kinds(await house.ask("go"))[-1] == "turn.finished"
        results = results_in(house.model.requests[1])
        assert len(results) == 30
        assert all(len(result["content"].encode()) <= 16_384 for result in results)
        requested = await house.records("model_requested")
        assert all(sum(record["sections"].values()) == record["budget_tokens"] for record in requested)
        assert all(record["sections"]["headroom"] > 0 for record in requested)
        assert kinds(await house.ask("and on"))[-1] == "turn.finished"
        everything_is_sound(house)


async def raw_frames(house: House, *frames: str) -> list[dict[str, Any]]:
    """What the server answers to frames as a careless client writes them."""
    answers = []
    async with connect(house.server.url, subprotocols=[Subprotocol("torpor.v1")], proxy=None) as socket:
        await socket.send(json.dumps({"frame": "hello", "token": house.server.development_token}))
        await socket.recv()
        for frame in frames:
            await socket.send(frame)
            answers.append(json.loads(await socket.recv()))
    return answers


async def test_half_characters_in_a_frame_reach_neither_journal_nor_request(home: Home) -> None:
    send = r'{"frame":"send","conversation":"c1","message_id":"m1","text":"half \ud83d and \u0000 nul"}'
    tell = (
        r'{"frame":"context.update","ref":"1","conversation":"c1","context":{'
        r'"screen":{"text":"the \ud83d ledger\u0000"},"actions":[{"text":"wrote \ude00"}]}}'
    )
    async with living(home, says("One."), says("Two.")) as house:
        told, sent = await raw_frames(house, tell, send)
        assert (told["frame"], sent["frame"]) == ("done", "accepted")
        await house.until_event("turn.finished")
        await house.ask("and on")
        asked = [block["text"] for block in house.model.requests[0]["messages"][0]["content"]]
        assert asked[-1] == "half \ufffd and \u2400 nul"
        assert "the \ufffd ledger\u2400" in asked[0]
        assert "wrote \ufffd" in asked[0]
        everything_is_sound(house)


@pytest.mark.parametrize("text", ["", " ", "\n", "\u200b\u200d\ufeff", "\t \u2060"])
async def test_a_message_of_nothing_is_refused_and_the_next_one_is_answered(home: Home, text: str) -> None:
    async with living(home, says("One."), says("Two.")) as house:
        await house.ask("before")
        with pytest.raises(RequestRefused, match="no visible text"):
            await house.say(text)
        await house.ask("after")
        assert len(await house.records("message_received")) == 2
        everything_is_sound(house)


async def test_skills_of_every_form_are_offered_and_load_alike(home: Home) -> None:
    text = "---\nname: {name}\ndescription: {description}\n---\n\nFirst line.\nSecond line.\n"
    forms: dict[str, bytes] = {
        "plain": text.format(name="plain", description="All the same.").encode(),
        "marked": b"\xef\xbb\xbf" + text.format(name="marked", description="All the same.").encode(),
        "windows": text.format(name="windows", description="All the same.").replace("\n", "\r\n").encode(),
        "old-mac": text.format(name="old-mac", description="All the same.").replace("\n", "\r").encode(),
        "colon": text.format(name="colon", description="Core rule: record it.").encode(),
        "hint": text.format(name="hint", description='All the same.\nargument-hint: [action] - e.g. "list"').encode(),
        "nul": text.format(name="nul", description="All the\x00 same.").encode(),
    }
    for name, data in forms.items():
        folder = home.path / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_bytes(data)
    loads = calls(*(use("load_skill", f"call-{name}", name=name) for name in forms))
    async with living(home, loads, says("So.")) as house:
        await house.ask("load them all")
        index = text_of(house.model.requests[0])
        assert all(f'<skill name="{name}">' in index for name in forms)
        assert '<skill name="colon">Core rule: record it.</skill>' in index
        bodies = {text.partition(":\n\n")[2] for text in await house.results()}
        assert bodies == {"First line.\nSecond line."}
        assert len(await house.records("skill_loaded")) == len(forms)
        told = {(entry["place"], entry["code"]) for entry in house.told.of("skill.problem")}
        assert any("colon" in place for place, _ in told)
        assert not any("marked" in place or "windows" in place for place, _ in told)
        everything_is_sound(house)


async def test_skills_of_one_name_and_of_names_that_are_no_keys_are_told_apart(home: Home) -> None:
    for folder, name in (
        ("b-second", "refunds"),
        ("a-first", "refunds"),
        ("deja-search", "Deja History/2 " + "x" * 70),
    ):
        path = home.path / "skills" / folder
        path.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: About it.\n---\n\nThe text in {folder}.\n"
        (path / "SKILL.md").write_text(text)
    both = calls(use("load_skill", "a", name="refunds"), use("load_skill", "b", name="home:b-second"))
    async with living(home, both, says("So.")) as house:
        await house.ask("load both")
        index = text_of(house.model.requests[0])
        assert index.count('name="refunds"') == 1
        names = [line.split('"')[1] for line in index.splitlines() if line.startswith("<skill ")]
        assert all(name == name.lower() and name.isascii() and len(name) <= 64 for name in names)
        first, second = await house.results()
        assert "The text in a-first." in first
        assert "The text in b-second." in second
        (told,) = [entry for entry in house.told.of("skill.problem") if entry["code"] == "collision"]
        assert "b-second" in told["place"]


async def test_skills_that_link_out_of_their_folder_are_told_and_give_nothing_away(home: Home, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "SKILL.md").write_text("---\nname: secret\ndescription: A secret.\n---\n\nThe key.\n")
    home.skill("visits")
    (home.path / "skills" / "linked").symlink_to(tmp_path / "secret")
    (home.path / "skills" / "file-linked").mkdir()
    (home.path / "skills" / "file-linked" / "SKILL.md").symlink_to(tmp_path / "secret" / "SKILL.md")
    loads = calls(*(use("load_skill", f"call-{name}", name=name) for name in ("secret", "linked", "file-linked")))
    async with living(home, loads, says("So.")) as house:
        await house.ask("load them")
        assert "ecret" not in text_of(house.model.requests[0])
        assert all("is available" in text for text in await house.results())
        assert b"The key" not in b"".join(house.model.bodies)
        places = {entry["place"] for entry in house.told.of("skill.problem")}
        assert any("linked" in place for place in places)
