"""Files from a client to a strict host: what it is sent, what the journal keeps, and what becomes of those it refuses.

Cases ATT-01 and CTX-02.
"""

import base64
import gc
import hashlib
import json
import sqlite3
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from websockets.http11 import Response

from tests.integration.attachments.house import House, tags
from tests.support import files_people_send as files
from tests.support.request_rules import violations
from tests.support.s3_server import CREDENTIALS, served_bucket
from torpor.cli.main import torpor as command
from torpor.client.failures import FileDiffers, RequestRefused
from torpor.records.events import ContextReplacedEvent, MessageReceivedEvent, ModelFailedEvent
from torpor.records.ids import ConversationKey
from torpor_fake_api.server import FakeApi, serving

JOURNAL_BESIDE_TEXT_MAX_BYTES = 20_000
NOISE = files.noise(300, 200)
_FRAMES = 6
"""Of each trace, so that it reaches from a library's own to ours."""


@pytest.fixture
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(profile="strict") as api:
        yield api


def sent_files(body: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block for block in blocks if block["type"] in {"image", "document"}]


def kept_of_files() -> int:
    """Bytes that are held of what was made where files are read and requests put together."""
    gc.collect()
    rooms = ("store/blobs.py", "model/attached.py", "model/anthropic_wire.py")
    filters = [tracemalloc.Filter(True, f"*/torpor/{room}", all_frames=True) for room in rooms]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)


def journal_bytes(house: House) -> int:
    with sqlite3.connect(house.data / "torpor.db") as db:
        return int(db.execute("SELECT sum(length(records)) FROM journal").fetchone()[0])


async def test_twenty_pictures_and_three_pdfs_reach_the_host_and_no_journal(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = [files.picture(2_100, 300, seed=number) if number % 5 == 0 else NOISE for number in range(20)]
    pdfs = [files.pdf(4, seed=number) for number in range(3)]
    house = House(tmp_path / "home", api)
    async with house.served(monkeypatch) as served:
        tickets = [
            (await served.uploaded(data, name=f"file {number}"))["attachment"]
            for number, data in enumerate((*pictures, *pdfs))
        ]
        await served.said("c0", "hello")  # which loads what asks models
        tracemalloc.start(_FRAMES)
        events = await served.said("c1", "what is on them?", *tickets)
        kept = kept_of_files()
        tracemalloc.stop()
        assert tags(events)[-1] == "turn.finished"
        assert "turn.finished" in tags(await served.said("c1", "and on the first one?"))

    for body in api.bodies:
        assert violations(body) == []
    found = sent_files(api.bodies[1])
    assert [block["type"] for block in found] == ["image"] * 20 + ["document"] * 3
    assert [base64.b64decode(block["source"]["data"]) for block in found[20:]] == pdfs
    assert base64.b64decode(found[1]["source"]["data"]) == NOISE
    assert sent_files(api.bodies[-1]) == found
    sent = sum(len(block["source"]["data"]) for block in found)
    assert kept < len(NOISE), f"{kept} bytes are held after the call, {sent} were sent"
    assert journal_bytes(house) < JOURNAL_BESIDE_TEXT_MAX_BYTES < sent
    await anyio.to_thread.run_sync(verified, house)
    assert "8 blobs" in capsys.readouterr().out


def verified(house: House) -> None:
    command(["verify", "--all", "--data", str(house.data)], standalone_mode=False)


async def test_att_01_files_that_no_host_takes_are_refused_and_the_conversation_goes_on(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api)
    async with house.served(monkeypatch) as served:
        for name, data, code in (
            ("film.mp4", files.MP4, "attachment_unsupported"),
            ("locked.pdf", files.pdf(password="secret"), "attachment_encrypted"),
            ("long.pdf", files.pdf(200), "attachment_too_many_pages"),
        ):
            with pytest.raises(RequestRefused) as refused:
                await served.uploaded(data, name=name)
            assert refused.value.code == code
            assert name in str(refused.value)
        with pytest.raises(RequestRefused, match="expected at most 33554432"):
            await served.uploaded(bytes(40 * 1024 * 1024), name="huge.png")
        with pytest.raises(RequestRefused) as empty:
            await served.uploaded(b"", name="empty.png")
        assert empty.value.code == "attachment_empty"
        named_wrong = await served.uploaded(files.picture(), name="photo.jpg")
        assert named_wrong["media_type"] == "image/png"
        letter = await served.uploaded(files.docx("Dear Ann,", "it rains."), name="letter.docx")
        events = await served.said("c1", "", named_wrong["attachment"], letter["attachment"])

    assert tags(events)[-1] == "turn.finished"
    (message,) = [event for event in events if isinstance(event, MessageReceivedEvent)]
    assert [(each.name, each.media_type) for each in message.attachments] == [
        ("photo.jpg", "image/png"),
        ("letter.docx", "text/plain"),
    ]
    assert [block["type"] for block in sent_files(api.bodies[0])] == ["image", "document"]
    assert sent_files(api.bodies[0])[1]["source"]["data"] == "Dear Ann,\nit rains."
    assert violations(api.bodies[0]) == []


async def test_ctx_02_a_picture_over_the_limit_is_made_smaller_before_it_can_spoil_anything(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api)
    async with house.served(monkeypatch) as served:
        row = await served.uploaded(files.picture(9_000, 100), name="wide.png")
        assert row["note"] == "9000 x 100 pixels became 1568 x 17"
        assert tags(await served.said("c1", "look", row["attachment"]))[-1] == "turn.finished"
        assert tags(await served.said("c1", "plain text"))[-1] == "turn.finished"
    assert [violations(body) for body in api.bodies] == [[], []]


async def test_ctx_02_a_picture_that_the_host_refuses_is_taken_out_and_the_turn_is_asked_again_once(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api, picture_side_max_px=9_000)  # as if the host had become stricter
    async with house.served(monkeypatch) as served:
        fine = await served.uploaded(files.picture(), name="fine.png")
        wide = await served.uploaded(files.picture(8_500, 10), name="wide.png")
        events = await served.said("c1", "look", fine["attachment"], wide["attachment"])
        later = await served.said("c1", "plain text")

    assert tags(events)[-1] == tags(later)[-1] == "turn.finished"
    (failed,) = [event for event in events if isinstance(event, ModelFailedEvent)]
    assert failed.code == "attachment_not_taken"
    (replaced,) = [event for event in events if isinstance(event, ContextReplacedEvent)]
    assert replaced.reason.value == "withdrawn"
    bodies = [request.body for request in api.requests]
    assert [len(sent_files(body)) for body in bodies] == [2, 1, 1]
    told = json.dumps(bodies[1]["messages"])
    assert "[Attachment wide.png (image/png): the model's host did not take it" in told
    assert [violations(body) == [] for body in bodies] == [False, True, True]
    await anyio.to_thread.run_sync(verified, house)


async def test_a_file_whose_bytes_are_gone_is_told_to_the_model_as_that(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api)
    async with house.served(monkeypatch) as served:
        row = await served.uploaded(files.picture(), name="scan.png")
        await served.said("c1", "look", row["attachment"])
        for blob in (house.data / "blobs").rglob(row["blob"]):
            blob.unlink()
        events = await served.said("c1", "again")
    assert tags(events)[-1] == "turn.finished"
    last = api.bodies[-1]
    assert sent_files(last) == []
    assert "scan.png (image/png): its bytes are no longer stored" in json.dumps(last["messages"])
    assert violations(last) == []


async def test_a_file_whose_bytes_were_damaged_is_told_to_the_model_and_is_whole_when_it_is_sent_again(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api)
    data = files.noise(320, 320)
    async with house.served(monkeypatch) as served:
        row = await served.uploaded(data, name="scan.png")
        await served.said("c1", "look", row["attachment"])
        assert base64.b64decode(sent_files(api.bodies[-1])[0]["source"]["data"]) == data
        (blob,) = (house.data / "blobs").rglob(row["blob"])
        blob.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
        events = await served.said("c1", "again")
        with pytest.raises(FileDiffers):
            await served.client.fetch("c1", row["blob"])
        assert (await served.uploaded(data, name="scan.png"))["blob"] == row["blob"]
        assert tags(await served.said("c1", "once more", row["attachment"]))[-1] == "turn.finished"
    (failed,) = [event for event in events if isinstance(event, ModelFailedEvent)]
    assert (failed.code, tags(events)[-1]) == ("attachment_damaged", "turn.finished")
    assert sent_files(api.bodies[1]) == []
    assert "scan.png (image/png): its bytes were damaged where they are stored" in json.dumps(api.bodies[1]["messages"])
    assert [base64.b64decode(each["source"]["data"]) for each in sent_files(api.bodies[2])] == [data]
    assert violations(api.bodies[2]) == []


async def test_what_one_sent_comes_back_to_its_owner_and_by_a_link_to_whoever_has_it(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api)
    data = files.noise(500, 500)
    async with house.served(monkeypatch) as served:
        client = served.client
        row = await served.uploaded(data, name="scan.png")
        with pytest.raises(RequestRefused) as not_sent:
            await client.fetch("c1", row["blob"])
        await served.said("c1", "look", row["attachment"])
        assert await client.fetch("c1", row["blob"]) == data
        with pytest.raises(RequestRefused) as elsewhere:
            await client.fetch("c2", row["blob"])
        assert not_sent.value.code == elsewhere.value.code == "unknown_conversation"
        address = served.server.url.replace("ws:", "http:") + await client.link("c1", row["blob"])
        gc.disable()  # nothing may wait for it
        try:
            found, headers = await anyio.to_thread.run_sync(got, address)
            with anyio.fail_after(10):
                while held_in_answers(data):  # noqa: ASYNC110 - the gateway has no event for it
                    await anyio.sleep(0.01)
        finally:
            gc.enable()
        assert found == data
        assert headers["Content-Type"] == "image/png"
        assert headers["Content-Disposition"] == 'attachment; filename="attachment.png"'
        for wrong in (f"{address}x", address[:-3] + "AAA"):
            with pytest.raises(urllib.error.HTTPError, match="404") as nothing:
                await anyio.to_thread.run_sync(got, wrong)
            nothing.value.close()
        next((house.data / "blobs").rglob(row["blob"])).unlink()
        with pytest.raises(RequestRefused) as gone:
            await client.link("c1", row["blob"])
        assert gone.value.code == "unknown_attachment"


def held_in_answers(data: bytes) -> bool:
    return any(isinstance(each, Response) and each.body == data for each in gc.get_objects())


def got(address: str) -> tuple[bytes, Any]:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read(), answer.headers


async def test_bytes_go_with_the_last_conversation_that_has_them(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api)
    async with house.served(monkeypatch) as served:
        client = served.client
        row = await served.uploaded(files.picture(), name="scan.png")
        for name in ("c1", "c2"):
            await served.said(name, "look", row["attachment"])
        await served.said("c1", "and?")
        await client.fork("c1", "c3")
        waiting = await served.uploaded(files.picture(seed=9), name="later.png")
        for name, left in (("c1", True), ("c2", True), ("c3", False)):
            await client.delete(name)
            assert bool([*(house.data / "blobs").rglob(row["blob"])]) is left, name
        assert "scan.png" not in "".join(path.read_text() for path in (house.data / "uploads").rglob("*.json"))
        assert tags(await served.said("c4", "look", waiting["attachment"]))[-1] == "turn.finished"
        assert len(sent_files(api.bodies[-1])) == 1
        with pytest.raises(RequestRefused) as gone:
            await client.send("c5", "look", attachments=[row["attachment"]])
        assert gone.value.code == "unknown_attachment"
        used, twin = [await served.uploaded(files.picture(seed=5), name=name) for name in ("used.png", "twin.png")]
        await served.said("c5", "look", used["attachment"])
        await client.delete("c5")
        assert tags(await served.said("c6", "look", twin["attachment"]))[-1] == "turn.finished"
        assert len(sent_files(api.bodies[-1])) == 1
        await client.forget("developer")
        with pytest.raises(RequestRefused) as forgotten:
            await client.send("c7", "look", attachments=[twin["attachment"]])
        assert forgotten.value.code == "unknown_attachment"
        assert [path for path in (house.data / "blobs").rglob("*") if path.is_file()] == []
        assert [path for path in (house.data / "uploads").rglob("*") if path.is_file()] == []


async def test_an_export_has_the_bytes_and_an_import_brings_them_back(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house = House(tmp_path / "home", api)
    async with house.served(monkeypatch) as served:
        row = await served.uploaded(files.picture(), name="scan.png")
        await served.said("c1", "look", row["attachment"])
    out, other = tmp_path / "c1.jsonl", tmp_path / "other"
    for arguments in (
        ["export", "developer/c1", "--out", str(out), "--data", str(house.data)],
        ["import", str(out), "--data", str(other)],
        ["verify", "--all", "--data", str(other)],
    ):
        await anyio.to_thread.run_sync(lambda given: command(given, standalone_mode=False), arguments)
    assert "verified: " in capsys.readouterr().out
    (blob,) = [path for path in (other / "blobs").rglob("*") if path.is_file()]
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == row["blob"]


async def test_bytes_may_lie_in_an_object_store(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOBS_ID", CREDENTIALS["access_key_id"])
    monkeypatch.setenv("BLOBS_KEY", CREDENTIALS["secret_access_key"])
    with served_bucket() as bucket:
        options = bucket.options(prefix=tmp_path.name)
        told = {"kind": "s3", "bucket": options.bucket, "prefix": options.prefix, "endpoint": options.endpoint}
        told |= {"access_key_env": "BLOBS_ID", "secret_key_env": "BLOBS_KEY"}
        table = "".join(f'{name} = "{value}"\n' for name, value in told.items())
        house, blobs = House(tmp_path / "home", api, blobs=table), bucket.blobs(prefix=tmp_path.name)
        owner = ConversationKey("default", "developer", "")
        async with house.served(monkeypatch) as served:
            row = await served.uploaded(files.picture(), name="scan.png")
            assert tags(await served.said("c1", "look", row["attachment"]))[-1] == "turn.finished"
            assert await blobs.stored(owner) == (row["blob"],)
            verify = ["verify", "c1", "--home", str(house.path), "--data", str(house.data)]
            await anyio.to_thread.run_sync(lambda: command(verify, standalone_mode=False))
            assert ", 1 blob" in capsys.readouterr().out
            await served.client.delete("c1")
            assert await blobs.stored(owner) == ()
    assert [block["type"] for block in sent_files(api.bodies[0])] == ["image"]
    assert not (house.data / "blobs").exists()


async def test_the_oldest_files_make_room_and_the_model_is_told(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "home", api, request_attachments_max=2)
    async with house.served(monkeypatch) as served:
        for number in range(3):
            row = await served.uploaded(files.picture(seed=number), name=f"scan {number}")
            assert tags(await served.said("c1", "look", row["attachment"]))[-1] == "turn.finished"
    last = api.bodies[-1]
    assert len(sent_files(last)) == 2
    assert "[Attachment scan 0 (image/png): it was shown before" in json.dumps(last["messages"])
    assert violations(last) == []
