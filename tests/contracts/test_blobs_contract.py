"""What ``store.contract.Blobs`` promises, over every backend, on both event loops."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.support.damaged import damage
from tests.support.s3_server import Bucket, served_bucket
from tests.support.sample_records import KEY
from torpor.records.ids import ConversationKey
from torpor.store.blobs import LocalBlobs, MemoryBlobs
from torpor.store.contract import Blobs, ErasableBlobs

DATA = bytes(range(256)) * 40
OTHERS = (
    ConversationKey("acme", "Ann", "c_1"),
    ConversationKey("acme", "an", "n/c_1"),
    ConversationKey("Acme", "ann", "c_1"),
    ConversationKey("acmea", "nn", "c_1"),
    ConversationKey("acme", "á", "c_1"),
)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """In a server that speaks the protocol of S3."""
    with served_bucket() as bucket:
        yield bucket


@pytest.fixture(params=["memory", "local", "local inline", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> ErasableBlobs:
    """Blobs of each kind, empty."""
    match request.param:
        case "s3":
            bucket = request.getfixturevalue("bucket")
            assert isinstance(bucket, Bucket)
            return bucket.blobs(prefix=tmp_path.name)
        case "memory":
            return MemoryBlobs()
        case "local":
            return LocalBlobs(tmp_path / "data" / "blobs")
        case _:
            return LocalBlobs(tmp_path / "data" / "blobs", in_threads=False)


async def test_a_blob_is_found_by_the_hash_of_its_content(blobs: Blobs) -> None:
    handle = await blobs.put(KEY, DATA)
    assert handle == hashlib.sha256(DATA).hexdigest()
    assert await blobs.get(KEY, handle) == DATA


async def test_what_was_damaged_is_written_anew_when_it_is_put_again(blobs: ErasableBlobs) -> None:
    handle = await blobs.put(KEY, DATA)
    damage(blobs, KEY, handle, DATA[:-1] + b"?")
    assert await blobs.get(KEY, handle) == DATA[:-1] + b"?"
    await blobs.put(KEY, DATA)
    assert await blobs.get(KEY, handle) == DATA


async def test_what_was_put_for_another_conversation_stays_until_its_actor_has_ended(blobs: ErasableBlobs) -> None:
    other = ConversationKey(KEY.tenant, KEY.owner, "c_other")
    handle = await blobs.put(KEY, DATA)
    assert await blobs.put(other, DATA) == handle
    await blobs.remove(KEY, [handle])
    assert await blobs.get(other, handle) == DATA
    blobs.let_go(KEY)
    blobs.let_go(other)
    await blobs.remove(KEY, [handle])
    assert await blobs.get(other, handle) is None


async def test_what_is_put_again_while_it_is_taken_away_is_there(blobs: ErasableBlobs) -> None:
    other = ConversationKey(KEY.tenant, KEY.owner, "c_other")
    handle = await blobs.put(KEY, DATA)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(blobs.remove, KEY, [handle])
        tasks.start_soon(blobs.put, other, DATA)
    assert await blobs.get(other, handle) == DATA


async def test_what_is_let_go_of_while_somebody_decides_stays(blobs: ErasableBlobs) -> None:
    other = ConversationKey(KEY.tenant, KEY.owner, "c_other")
    handle = await blobs.put(other, DATA)
    with blobs.deciding():
        blobs.let_go(other)
        await blobs.remove(KEY, [handle])
    assert await blobs.get(other, handle) == DATA
    await blobs.remove(KEY, [handle])
    assert await blobs.get(other, handle) is None


async def test_what_a_sub_agent_put_is_its_conversations_own(blobs: ErasableBlobs) -> None:
    child = KEY.child("a")
    handle = await blobs.put(child, DATA)
    await blobs.remove(KEY, [handle])
    assert await blobs.get(KEY, handle) is None


async def test_what_its_conversation_put_is_not_a_sub_agents_own(blobs: ErasableBlobs) -> None:
    child = KEY.child("a")
    handle = await blobs.put(KEY, DATA)
    await blobs.remove(child, [handle])
    assert await blobs.get(KEY, handle) == DATA
    blobs.let_go(child)
    await blobs.remove(child, [handle])
    assert await blobs.get(KEY, handle) == DATA
    blobs.let_go(KEY)
    await blobs.remove(child, [handle])
    assert await blobs.get(KEY, handle) is None


async def test_with_a_conversation_is_let_go_of_what_its_sub_agents_put(blobs: ErasableBlobs) -> None:
    other, near = (msgspec.structs.replace(KEY, conversation=name) for name in ("c_other", f"{KEY.conversation}0"))
    handle = await blobs.put(KEY.child("a").child("b"), DATA)
    await blobs.put(near, DATA)
    blobs.let_go(KEY)
    await blobs.remove(other, [handle])
    assert await blobs.get(other, handle) == DATA, "its name only begins like the other one's"
    blobs.let_go(near)
    await blobs.remove(other, [handle])
    assert await blobs.get(other, handle) is None


@pytest.mark.parametrize("offset", [len(DATA), len(DATA) + 1, 2**53 - 1])
async def test_behind_the_end_there_is_nothing(blobs: Blobs, offset: int) -> None:
    handle = await blobs.put(KEY, DATA)
    assert await blobs.get(KEY, handle, offset=offset, size=10) == b""


async def test_an_empty_blob_is_a_blob(blobs: Blobs) -> None:
    assert await blobs.get(KEY, await blobs.put(KEY, b"")) == b""


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [
        (0, 3, DATA[:3]),
        (5, None, DATA[5:]),
        (5, 7, DATA[5:12]),
        (len(DATA) - 2, 99, DATA[-2:]),
        (len(DATA), 5, b""),
        (len(DATA) + 5, None, b""),
        (3, 0, b""),
    ],
)
async def test_a_part_of_a_blob_is_read(blobs: Blobs, offset: int, size: int | None, expected: bytes) -> None:
    handle = await blobs.put(KEY, DATA)
    assert await blobs.get(KEY, handle, offset=offset, size=size) == expected


async def test_the_size_of_a_blob_is_told_without_its_bytes(blobs: ErasableBlobs) -> None:
    for data in (DATA, b""):
        assert await blobs.size_bytes(KEY, await blobs.put(KEY, data)) == len(data)
    for stranger, handle in ((KEY, "0" * 64), (KEY, "../x"), (OTHERS[0], hashlib.sha256(DATA).hexdigest())):
        assert await blobs.size_bytes(stranger, handle) is None


async def test_equal_data_of_one_owner_has_one_handle_in_all_conversations(blobs: Blobs) -> None:
    first = await blobs.put(KEY, DATA)
    other = ConversationKey(KEY.tenant, KEY.owner, "c_2")
    assert await blobs.put(other, DATA) == first
    assert await blobs.get(other, first) == DATA


@pytest.mark.parametrize("stranger", OTHERS, ids=lambda key: key.path)
async def test_another_owner_does_not_find_a_blob_even_by_its_handle(blobs: Blobs, stranger: ConversationKey) -> None:
    handle = await blobs.put(KEY, DATA)
    assert await blobs.get(stranger, handle) is None
    await blobs.put(stranger, DATA)
    assert await blobs.get(stranger, handle) == DATA


@pytest.mark.parametrize("handle", ["", "..", "../blobs", "0" * 64, "0" * 63, "A" * 64, "/etc/passwd", "0" * 64 + "\n"])
async def test_what_is_no_known_handle_is_not_found(blobs: Blobs, handle: str) -> None:
    await blobs.put(KEY, DATA)
    assert await blobs.get(KEY, handle) is None


async def test_puts_of_one_content_at_once_all_succeed(blobs: Blobs) -> None:
    handles: list[str] = []

    async def put() -> None:
        handles.append(await blobs.put(KEY, DATA))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(put)
    assert handles == [hashlib.sha256(DATA).hexdigest()] * 20
    assert await blobs.get(KEY, handles[0]) == DATA
