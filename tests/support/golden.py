"""Golden journals: conversations as an engine once wrote them, with the digest of each request that they made.

``python -m tests.support.golden`` writes those that are missing, as this engine writes them; a file that is there
stays, since what it is for is to be old. What conversations hold since then is a new name in ``MAKERS``. A file is what
``torpor export`` writes; the digests stand beside it, a line for each request, made by a rebuild that shares nothing
with the engine.
"""

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from tests.support import rebuild
from tests.support.clinic_day import PATH, live, opened
from tests.support.damaged import damage
from tests.support.doubles import PlayedModel, calls, fails, places_of, reads, says, use
from tests.support.engine import KEY, Engine, receipt_of, running_engine
from tests.support.histories import told
from tests.support.marked import attachment
from torpor.attachments.options import AttachmentOptions
from torpor.conversation.budget import Profile
from torpor.conversation.live_context import LiveContextOptions
from torpor.operations.export import FORMAT, VERSION, BlobLine, ExportHeader, exported
from torpor.provider_errors import AttachmentNotTaken
from torpor.records.attachments import Attachment
from torpor.records.commands import SendMessage
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.blobs import LocalBlobs, MemoryBlobs
from torpor.store.contract import Head
from torpor.store.job_contract import StoredJob
from torpor.store.sqlite.auditing import open_to_audit
from torpor.toolhost.contract import ToolContext
from torpor.turn.attached import AttachedFiles
from torpor.turn.live_context import LiveContextJobs, LiveModel, LiveModelOptions
from torpor.turn.prepare import Surroundings

GOLDEN: Final = Path(__file__).parents[1] / "golden"
SUMMARY: Final = json.dumps(
    {
        "facts": ["the user counts to fourteen"],
        "decisions": ["to go on counting"],
        "open": [{"kind": "correction", "text": "the deadline is Friday", "turn": 1}],
    }
)
_SMALL: Final = Profile(budget_tokens=6_000, headroom_tokens=500)
"""Full after about eight turns of a thousand characters."""


def digests_of(lines: Sequence[bytes]) -> str:
    """A line for each request of an export: its record, its call, the sha256 of its body."""
    records = [record for record in map(json.loads, lines[1:]) if "kind" in record]
    return "".join(
        f"{request.seq} {request.call} {hashlib.sha256(request.body).hexdigest()}\n"
        for request in rebuild.rebuilt(records)
    )


async def clinic_day() -> bytes:
    """Thinking, parallel tools, context, skill, policies, a long result, steering, a cut reply, a refusal."""
    pieces: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        async with opened(home) as day:
            await live(day)
        blobs = LocalBlobs(home / ".torpor" / "blobs", in_threads=False)
        with open_to_audit(home / ".torpor") as reader:
            key = ConversationKey(*PATH.split("/"))
            verdict = await exported(lambda: reader.stored(key), blobs, write=pieces.append)
    assert verdict is not None
    assert not verdict.difference
    return b"".join(pieces)


async def odd_history() -> bytes:
    """Whatever may come between any two records: crashes, late results, other models, preambles and flags."""
    return _export(told(random.Random(2026).randbytes(700)).journal)


async def to_and_fro() -> bytes:
    """Likewise; preambles and flags that were there a short while ago are back by their digests."""
    return _export(told(random.Random(2027).randbytes(500)).journal)


async def managed() -> bytes:
    """Likewise; it is named and archived, and messages and turns are taken back; it goes on as a fork."""
    return _export(told(random.Random(2028).randbytes(700)).journal)


async def with_children() -> bytes:
    """Likewise; sub-agents work for calls, and some of them end behind their turn."""
    return _export(told(random.Random(2032).randbytes(700)).journal)


async def with_research() -> bytes:
    """Likewise; some of them are there for research, which clients hear of by that word."""
    return _export(told(random.Random(2092).randbytes(500)).journal)


async def folded() -> bytes:
    """A summary more than once, and long results that were shortened."""

    async def look(arguments: dict[str, Any], context: ToolContext) -> str:
        return "a very long result " * 700

    plays = [calls(*(use("look_long", name) for name in "abcd")), says("seen")]
    summariser = PlayedModel([says(SUMMARY)] * 99)
    tools = [reads("look_long", look)]
    async with running_engine(*plays, profile=_SMALL, summariser=summariser, tools=tools) as engine:
        await engine.ask("look at all four")
        for number in range(14):
            await engine.ask(f"{number} {'x' * 1_000}")
        return _export(await engine.records())


async def live_context() -> bytes:
    """None, then one, then another one in its place."""
    model = LiveModel(
        LiveModelOptions(), model=PlayedModel([says("Afraid of Friday."), says("Relieved.")]), name="small"
    )
    async with running_engine(live=model) as engine:
        for number in range(40):
            await engine.ask(f"question {number}")
            if number in {0, 32}:
                await _make_live(engine, model)
        return _export(await engine.records())


async def with_attachments() -> bytes:
    """Files of each kind; those of which the bytes are gone or damaged, which a host refuses, or that find no room."""
    blobs, bodies = MemoryBlobs(), [*(b"scan %d" % number for number in range(5)), b"%PDF-", b"words"]
    for body in bodies:
        await blobs.put(KEY, body)
    files = [attachment(body, name=body.decode()) for body in bodies[:5]]
    files.append(attachment(bodies[5], media_type="application/pdf", name="letter", pages=2))
    files.append(attachment(bodies[6], media_type="text/plain", name="", tokens=2))
    known = AttachedFiles(blobs, AttachmentOptions(request_attachments_max=4))
    refused = AttachmentNotTaken("could not process image", at=(6, 0), is_of_picture=True)
    plays = [says("seen"), calls(use("look", "a")), says("and that"), fails(refused), says("not that one")]
    async with running_engine(*plays, surroundings=Surroundings(attached=known)) as engine:
        await _attach(engine, "what is it?", *files[:1])
        await _attach(engine, "and these?", files[5])
        await _attach(engine, "this one?", files[1])
        blobs._data.pop((KEY.tenant, KEY.owner, files[0].blob))
        damage(blobs, KEY, files[5].blob, b"%PDF!")
        await engine.ask("and now?")
        await _attach(engine, "", *files[1:4])
        await _attach(engine, "the rest", files[4], files[6])
        await engine.ask("thank you")
        return _export(await engine.records(), bodies)


async def _attach(engine: Engine, text: str, *files: Attachment) -> None:
    id_ = MessageId(f"f_{len(await engine.records())}")
    command = SendMessage(message_id=id_, principal=KEY.owner, text=text, attachments=files)
    await receipt_of(engine.supervisor.post(KEY, command))
    await engine.rested()


async def _make_live(engine: Engine, model: LiveModel) -> None:
    """Do the job that was ordered last."""
    jobs = LiveContextJobs(
        {"clerk": model},
        store=engine.store,
        tell=engine.supervisor.deliver,
        places=places_of(1),
        options=LiveContextOptions(),
        attempts_max=1,
    )
    (*_, job) = await engine.store.jobs(KEY)
    stored = StoredJob(key=KEY, id=job.id, kind=job.kind, payload=job.payload, due_us=0, added_us=0, attempts=1)
    await jobs.run(stored, attempt=1)


MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "clinic-day": clinic_day,
    "odd-history": odd_history,
    "to-and-fro": to_and_fro,
    "managed": managed,
    "children": with_children,
    "research": with_research,
    "folded": folded,
    "live-context": live_context,
    "attachments": with_attachments,
}


def _export(records: Sequence[JournalRecord], bodies: Sequence[bytes] = ()) -> bytes:
    blobs = [BlobLine(blob=hashlib.sha256(body).hexdigest(), data=body) for body in bodies]
    lines = b"".join(msgspec.json.encode(line) + b"\n" for line in (*records, *blobs))
    header = ExportHeader(
        format=FORMAT,
        version=VERSION,
        tenant="acme",
        owner="ann",
        conversation="c_1",
        head=Head(seq=len(records), event=max(record.event for record in records), batch_id="golden"),
        records=len(records),
        blobs=len(blobs),
        digest=hashlib.sha256(lines).hexdigest(),
    )
    return msgspec.json.encode(header) + b"\n" + lines


def main() -> None:
    """Write what is missing."""
    for name, make in MAKERS.items():
        file = GOLDEN / f"{name}.jsonl"
        if not file.exists():
            whole: bytes = anyio.run(make)
            file.write_bytes(whole)
            file.with_suffix(".requests").write_text(digests_of(whole.splitlines()))


if __name__ == "__main__":
    main()
