"""Four questions at which long-running agents fail, asked of a real server by a real client."""

import random
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.effects_checker import deeds_of, lines_of
from tests.support.journal_checker import Account, account_of, read_journals
from tests.support.kill_run import make_home
from tests.support.server_process import Fault, ServerProcess, server_process
from tests.support.speaker import CANCELLED, Speaker, path_of
from torpor.client.torpor_client import TorporClient
from torpor.records.frames import Cursor

DEADLINE_S = 120.0
CONVERSATION = "c1"
PATH = path_of(CONVERSATION)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a home whose tools keep a book of what they did."""
    make_home(tmp_path / "home")
    return tmp_path


@asynccontextmanager
async def speaking(folder: Path, server: ServerProcess) -> AsyncIterator[Speaker]:
    """Somebody who says things to ``server`` and hears everything."""
    with anyio.fail_after(DEADLINE_S):
        await server.until("ready")
        async with TorporClient(server.url, server.token) as client, anyio.create_task_group() as tasks:
            speaker = Speaker(client, CONVERSATION, home=folder / "home")
            tasks.start_soon(speaker.heard.follow, Cursor(event=0))
            yield speaker
            tasks.cancel_scope.cancel()


def account(folder: Path) -> Account:
    """What the journal of a server that has ended says."""
    return account_of(read_journals(folder / "data" / "torpor.db")[PATH])


def last_request(folder: Path) -> list[dict[str, Any]]:
    """The messages of the last request that the model was given."""
    started = [line for line in lines_of(folder / "home" / "model.jsonl") if line["what"] == "started"]
    messages: list[dict[str, Any]] = started[-1]["body"]["messages"]
    return messages


async def test_a_payment_that_ran_when_its_turn_was_cancelled_is_told_as_unknown(folder: Path) -> None:
    async with server_process(folder) as server, speaking(folder, server) as speaker:
        payment = await speaker.paying(ends=(CANCELLED,))
        await speaker.cancel(payment)
        hello = await speaker.say()
        await speaker.answered(hello)
        speaker.release(payment)
        assert await server.stop()

    asked, (result, note, said) = last_request(folder)[-2]["content"], last_request(folder)[-1]["content"]
    assert asked[-1] == {
        "type": "tool_use",
        "id": result["tool_use_id"],
        "name": "pay_slowly",
        "input": {"amount": 6, "mark": payment},
    }
    assert result["is_error"]
    assert result["content"].startswith("Outcome unknown: pay_slowly was started")
    assert note["text"] == "[The previous turn was ended early by the user.]"
    assert said["text"].endswith(f"[{hello}]")
    turns = account(folder).turns
    assert (turns[1].end, turns[2].end, turns[2].answered) == ("cancelled", "finished", {payment, hello})


async def test_ten_messages_at_once_are_all_kept_in_one_order_and_each_answered(folder: Path) -> None:
    async with server_process(folder) as server, speaking(folder, server) as speaker:
        messages: list[str] = []

        async def say() -> None:
            messages.append(await speaker.say())

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(say)
        await speaker.answered(*messages)
        assert await server.stop()

    found = account(folder)
    assert sorted(found.messages) == sorted(messages)
    order = list(found.messages)
    assert [turn.messages for turn in found.turns.values()] == [[message] for message in order]
    assert [turn.answered for turn in found.turns.values()] == [{message} for message in order]


@pytest.mark.parametrize(
    ("tool", "outcome"), [("pay_keyed", "succeeded"), ("pay_probed", "succeeded"), ("pay_blindly", "unknown")]
)
async def test_a_payment_whose_process_was_killed_right_after_it_is_never_made_twice(
    folder: Path, tool: str, outcome: str
) -> None:
    fault = Fault(point=f"tool.end:{tool}")
    async with server_process(folder, fault=fault) as server, speaking(folder, server) as speaker:
        await speaker.say(tool)
        assert await server.until("held")
        await server.kill()
    async with server_process(folder) as server:
        with anyio.fail_after(DEADLINE_S):
            assert await server.until("idle")
            assert await server.stop()

    (call,) = account(folder).calls.values()
    assert call.started is not None
    did = deeds_of(lines_of(folder / "home" / "book.jsonl"))[call.started["idempotency_key"]]
    assert len(did.effects) == 1
    assert call.outcome == outcome
    assert did.effects[0] in call.result or call.result.startswith(f"Outcome unknown: {tool} was started")
    assert last_request(folder)[-1]["content"][0]["content"] == call.result
    assert account(folder).turns[1].end == "finished"


async def test_four_hundred_turns_of_three_kilobytes_take_at_most_three_times_their_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "home" / "config" / "torpor.toml").unlink()  # this is about the defaults
    chance = random.Random(3)
    text_bytes, shares = 0, dict[int, float]()
    async with server_process(folder, model="obedient-unlogged") as server, speaking(folder, server) as speaker:
        for number in range(1, 401):
            # The answer repeats the message, so a turn has twice as much text.
            words = "".join(chance.choices(string.ascii_letters + "     ", k=chance.randint(500, 2500)))
            text_bytes += 2 * len(words)
            await speaker.answered(await speaker.say("echo", words=words))
            await speaker.client.hibernate(PATH, deadline_s=5.0)
            if number % 100 == 0:
                shares[number] = stored_bytes(folder / "data") / text_bytes
        assert await server.stop()
    with capsys.disabled():
        figures = ", ".join(f"{share:.2f} after {number} turns" for number, share in shares.items())
        print(f"\n{text_bytes} bytes of text; stored is {figures} times the text")
    assert len(account(folder).turns) == 400
    assert max(shares.values()) <= 3


def stored_bytes(data: Path) -> int:
    """Database, write-ahead log and blobs, as they lie on the disk."""
    files = [*data.glob("torpor.db*"), *(data / "blobs").rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())
