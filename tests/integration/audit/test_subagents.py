"""What sub-agents wrote is verified with their conversation, is no conversation of its own, and goes."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.command_line import Command
from tests.support.doubles import calls, says, use
from tests.support.engine import KEY, Engine, running_engine
from tests.support.subagents import spawning, subagent
from torpor.operations.audit import verdict_on
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey
from torpor.records.journal import SubagentFinished
from torpor.store.blobs import LocalBlobs
from torpor.store.codec import MAX_BATCH_RECORDS
from torpor.store.contract import Cause, Store
from torpor.store.sqlite.auditing import open_to_audit
from torpor.store.sqlite.engine import open_sqlite_inline
from torpor.subagents.findings import Findings
from torpor.subagents.results import Accepted
from torpor.subagents.text import Text

DATA = ".torpor"


class Kept(Text):
    """Keeps a bundle, whatever was said."""

    def accept(self, text: str, findings: Findings) -> Accepted:
        return msgspec.structs.replace(super().accept(text, findings), kept=b"{}")


async def copied(engine: Engine, folder: Path) -> None:
    """All that was written lies in a data folder."""
    blobs = LocalBlobs(folder / "blobs", in_threads=False)
    await blobs.put(KEY, b"{}")
    async with open_sqlite_inline(folder) as store:
        lease = await store.acquire(KEY, holder="s_1", ttl_s=30, now_us=0)
        for key, held in engine.store.data.conversations.items():
            records = await engine.records(key)
            assert len(records) <= MAX_BATCH_RECORDS
            await store.append(
                key,
                fence=lease.fence,
                expected_seq=0,
                batch_id="b",
                records=records,
                dedupe={id_: msgspec.json.decode(receipt, type=Receipt) for id_, receipt in held.receipts.items()},
                due_us=None,
            ).wait()


@pytest.fixture
def torpor(tmp_path: Path) -> Command:
    """A home in whose data folder is a conversation for which two sub-agents worked."""
    anyio.run(have_two_work, tmp_path / DATA)
    return Command(tmp_path, TORPOR_TEST_DATA="")


async def have_two_work(folder: Path) -> None:
    plays = [calls(use("scout", "a", task="look"), use("scout", "b", task="look")), says("done")]
    scout = subagent("scout", *[says("here it is")] * 2, result=Kept())
    async with running_engine(*plays, tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.ask("where is it?")
        await copied(engine, folder)


def children(torpor: Command) -> list[str]:
    with closing(sqlite3.connect(torpor.directory / DATA / "torpor.db")) as db:
        found = db.execute("SELECT conversation FROM conversations WHERE conversation LIKE '%/%' ORDER BY 1").fetchall()
    return [f"{KEY.tenant}/{KEY.owner}/{name}" for (name,) in found]


def changed(torpor: Command, sql: str) -> None:
    with closing(sqlite3.connect(torpor.directory / DATA / "torpor.db", isolation_level=None)) as db:
        db.execute(sql)


def erased(torpor: Command, key: ConversationKey) -> None:
    async def erase() -> None:
        async with open_sqlite_inline(torpor.directory / DATA) as store:
            lease = await store.acquire(KEY, holder="s_1", ttl_s=30, now_us=0)
            await store.erase(msgspec.structs.replace(lease, key=key), cause=Cause.AGE, at_us=1)

    anyio.run(erase)


def test_sub_agents_are_verified_with_their_conversation_and_with_all(torpor: Command) -> None:
    both = children(torpor)
    assert len(both) == 2
    for command in (("verify", KEY.path), ("verify", "--all")):
        assert [(fact["path"], fact["difference"]) for fact in torpor.facts(*command)] == [
            (path, "") for path in (KEY.path, *both)
        ]
    assert "1 conversation and 2 sub-agents verified, none of them differ" in torpor.output("verify", "--all")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE conversations SET due_us = 1 WHERE conversation LIKE '%/%'", "a sub-agent never is"),
        (
            "INSERT INTO receipts SELECT number, 'm_9', (SELECT receipt FROM receipts) FROM conversations"
            " WHERE conversation LIKE '%/%'",
            "has a receipt, expected none",
        ),
        ("UPDATE conversations SET conversation = 'zz' WHERE conversation = 'c_1'", "it works for is not there"),
        (
            "UPDATE journal SET records = replace(records, 'here it is', 'here it was') WHERE number IN"
            " (SELECT number FROM conversations WHERE conversation LIKE '%/%')",
            "",
        ),
    ],
)
def test_what_is_wrong_with_a_sub_agents_journal_is_told(torpor: Command, sql: str, told: str) -> None:
    changed(torpor, sql)
    facts = {fact["path"]: fact["difference"] for fact in torpor.facts("verify", "--all", code=1)}
    for path in children(torpor):
        assert facts[path]
        assert told in facts[path]


def test_a_sub_agent_that_was_cut_off_in_its_turn_is_no_fault(torpor: Command) -> None:
    async def cut_off() -> None:
        async with open_sqlite_inline(torpor.directory / DATA) as store:
            await begin(store, KEY.child("cut"))

    async def begin(store: Store, key: ConversationKey) -> None:
        lease = await store.acquire(KEY, holder="s_1", ttl_s=30, now_us=0)
        whole = (await store.load(ConversationKey(*children(torpor)[0].split("/", 2)), use_snapshot=False)).tail
        await store.append(
            key,
            fence=lease.fence,
            expected_seq=0,
            batch_id="b",
            records=whole[:4],
            dedupe={},
            due_us=None,
        ).wait()

    anyio.run(cut_off)
    facts = torpor.facts("verify", KEY.path)
    assert [(fact["path"].rpartition("/")[2], fact["records"]) for fact in facts if fact["records"] == 4] == [
        ("cut", 4)
    ]


def test_one_that_goes_while_others_are_verified_is_no_fault(torpor: Command) -> None:
    path = children(torpor)[0]
    key = ConversationKey(*path.split("/", 2))
    erased(torpor, key)
    with open_to_audit(torpor.directory / DATA) as reader:
        blobs = LocalBlobs(torpor.directory / DATA / "blobs", in_threads=False)
        verdict = anyio.run(lambda: verdict_on(reader, key, blobs=blobs))
    assert (verdict.records, verdict.difference) == (0, "")


def test_those_that_are_not_kept_any_longer_are_counted_and_their_digests_stand(torpor: Command) -> None:
    gone, left = children(torpor)
    erased(torpor, ConversationKey(*gone.split("/", 2)))
    told = "; 1 sub-agent not kept any longer, its digests stand"
    assert torpor.output("verify", KEY.path).count(told) == 2
    erased(torpor, ConversationKey(*left.split("/", 2)))
    (line,) = torpor.output("verify", KEY.path).splitlines()
    assert line.endswith("; 2 sub-agents not kept any longer, their digests stand")
    assert [fact["retired"] for fact in torpor.facts("verify", KEY.path)] == [2]


@pytest.mark.parametrize(("field", "told"), [("child_seq", "whom it worked for says"), ("link", "its last link is")])
def test_a_sub_agent_that_ended_elsewhere_than_its_conversation_says_differs(
    torpor: Command, field: str, told: str
) -> None:
    with open_to_audit(torpor.directory / DATA) as reader:
        blobs, ends = LocalBlobs(torpor.directory / DATA / "blobs", in_threads=False), dict[Any, SubagentFinished]()
        anyio.run(lambda: verdict_on(reader, KEY, blobs=blobs, ends=ends))
        first, second = (ConversationKey(*path.split("/", 2)) for path in children(torpor))
        other = {"child_seq": 99, "link": "ab"}[field]
        ends[first] = msgspec.structs.replace(ends[first], **{field: other})
        wrong = anyio.run(lambda: verdict_on(reader, first, blobs=blobs, ends=ends))
        right = anyio.run(lambda: verdict_on(reader, second, blobs=blobs, ends=ends))
    assert told in wrong.difference
    assert (right.difference, ends) == ("", {})


def test_an_export_leaves_them_out_and_takes_the_bundle_along(torpor: Command, tmp_path: Path) -> None:
    lines = torpor.output("export", KEY.path).splitlines()
    header = msgspec.json.decode(lines[0])
    assert (header["conversation"], header["blobs"]) == ("c_1", 1)
    assert sum('"subagent_finished"' in line for line in lines) == 2
    file = tmp_path / "export.jsonl"
    torpor.run("export", KEY.path, "--out", str(file))
    torpor.run("import", str(file), "--data", "other")
    assert [fact["path"] for fact in torpor.facts("verify", "--all", "--data", "other")] == [KEY.path]


@pytest.mark.parametrize("command", ["verify", "export"])
def test_a_sub_agent_is_no_conversation_of_its_own(torpor: Command, command: str) -> None:
    path = children(torpor)[0]
    for name in (path, path.rpartition("/")[2]):
        assert "no conversation" in torpor.complaint(command, name)


def test_retention_tells_which_sub_agents_are_not_kept_any_longer(torpor: Command) -> None:
    both = children(torpor)
    rows = torpor.facts("retention")
    assert [(row["path"], row["reason"]) for row in rows] == [(path, "subagent") for path in both]
    told = torpor.output("retention")
    assert "what sub-agents wrote is kept for 7 days; 2 would be deleted" in told
    torpor.environ["TORPOR__SUBAGENTS__KEEP_DAYS"] = "0"
    assert torpor.facts("retention") == []
    assert "as long as their conversations; 0 would be deleted" in torpor.output("retention")
    torpor.environ |= {"TORPOR__SUBAGENTS__KEEP_DAYS": "7", "TORPOR__RETENTION__AGE_DAYS": "1"}
    assert [(row["path"], row["reason"]) for row in torpor.facts("retention")] == [(KEY.path, "age")]
    changed(torpor, "UPDATE conversations SET due_us = 1 WHERE conversation = 'c_1'")
    assert torpor.facts("retention") == []
