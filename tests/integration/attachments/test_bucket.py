"""An object store that cannot be used is told of at a start and by the doctor, before anybody sends a file."""

import socket
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.integration.attachments.house import House, tags
from tests.support.s3_server import BUCKET, CREDENTIALS, Bucket, served_bucket
from torpor.cli.doctor import examined
from torpor.errors import ConfigError, StoreUnavailable
from torpor.operations.verify import Handle, check_blobs
from torpor.records.ids import ConversationKey
from torpor.settings import read_settings
from torpor.store.open_blobs import trouble_with
from torpor.store.options import BlobOptions
from torpor.store.s3_blobs import S3Blobs
from torpor_fake_api.server import serving

NOWHERE = "http://127.0.0.1:9"
ENVIRON = {"BLOBS_ID": CREDENTIALS["access_key_id"], "BLOBS_KEY": CREDENTIALS["secret_access_key"]}


@pytest.fixture
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with served_bucket() as bucket:
        yield bucket


def table(at: Bucket, /, **changed: Any) -> str:
    told = {"kind": "s3", "bucket": BUCKET, "endpoint": at.endpoint, **changed}
    told |= {"access_key_env": "BLOBS_ID", "secret_key_env": "BLOBS_KEY"}
    return "".join(f"{name} = {value!r}\n" for name, value in told.items())


async def trouble(options: BlobOptions) -> tuple[str, bool]:
    found = await trouble_with(S3Blobs(options, credentials=CREDENTIALS))
    return (found.what, found.is_missing) if found is not None else ("", False)


async def test_it_is_told_what_is_wrong_with_a_bucket(bucket: Bucket) -> None:
    options = bucket.options(prefix="p")
    assert await trouble(options) == ("", False)
    gone = msgspec.structs.replace(options, bucket="gone")
    assert await trouble(gone) == (f"bucket 'gone' at {bucket.endpoint} does not exist", True)
    what, is_missing = await trouble(msgspec.structs.replace(options, endpoint=NOWHERE))
    assert what.startswith(f"bucket {BUCKET!r} at {NOWHERE} does not answer: ")
    assert not is_missing


async def test_a_file_in_a_bucket_that_is_gone_is_not_missing(bucket: Bucket) -> None:
    key = ConversationKey("t", "o", "c")
    there = S3Blobs(bucket.options(prefix="p"), credentials=CREDENTIALS)
    handle = await there.put(key, b"data")
    assert await there.size_bytes(key, "0" * 64) is None
    assert await there.get(key, "0" * 64) is None
    gone = S3Blobs(msgspec.structs.replace(bucket.options(prefix="p"), bucket="gone"), credentials=CREDENTIALS)
    for asked in (
        gone.get(key, handle),
        gone.get(key, handle, offset=1),
        gone.get(key, handle, size=2),
        gone.size_bytes(key, handle),
        gone.stored(key),
        gone.put(key, b"data"),
        gone.remove(key, [handle]),
    ):
        with pytest.raises(StoreUnavailable, match=r"bucket 'gone' at .* does not exist: create it"):
            await asked
    with pytest.raises(StoreUnavailable):
        await check_blobs(gone, key, [Handle(1, handle)])


async def test_a_bucket_that_does_not_answer_holds_up_nobody_who_is_cancelled(bucket: Bucket) -> None:
    key = ConversationKey("t", "o", "c")
    with anyio.fail_after(15), ExitStack() as open_ones:
        silent = open_ones.enter_context(socket.create_server(("127.0.0.1", 0)))
        options = bucket.options(prefix="p")
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        blobs = S3Blobs(msgspec.structs.replace(options, endpoint=endpoint), credentials=CREDENTIALS)
        for asked in (
            blobs.get(key, "0" * 64),
            blobs.size_bytes(key, "0" * 64),
            blobs.put(key, b"data"),
            blobs.remove(key, ["0" * 64]),
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_awaited, asked)
                connection, _ = await anyio.to_thread.run_sync(silent.accept, abandon_on_cancel=True)
                open_ones.enter_context(connection)
                tasks.cancel_scope.cancel()


async def _awaited(asked: Awaitable[object]) -> None:
    await asked


async def test_a_server_starts_without_its_store_and_not_without_its_bucket(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    async with serving(profile="strict") as api:
        house = House(tmp_path / "gone", api, blobs=table(bucket, bucket="gone"))
        with pytest.raises(ConfigError, match=r"blobs\.bucket is 'gone', expected one that is there"):
            async with house.served(monkeypatch):
                pass
        house = House(tmp_path / "down", api, blobs=table(bucket, endpoint=NOWHERE))
        with capture_logs() as logs:
            async with house.served(monkeypatch) as served:
                assert tags(await served.said("c1", "hello"))[-1] == "turn.finished"
    (warning,) = [line for line in logs if line["event"] == "blobs.not_reached"]
    assert warning["remedy"] == "look at blobs.endpoint and the network"


async def test_the_doctor_asks_the_object_store(bucket: Bucket, tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []
    async with serving(profile="strict") as api:
        for changed in ({}, {"bucket": "gone"}, {"endpoint": "elsewhere"}):
            house = House(tmp_path / str(len(told)), api, blobs=table(bucket, **changed))
            settings = read_settings(house.path, ENVIRON)
            (found,) = [each for each in await examined(settings, ENVIRON) if each.agent == "[blobs]"]
            told.append((found.state, found.detail, found.remedy))
    assert told[0] == ("ok", f"bucket {BUCKET!r} at {bucket.endpoint} answers", "")
    assert told[1][1:] == (
        f"bucket 'gone' at {bucket.endpoint} does not exist",
        "create it, or name another one in blobs.bucket",
    )
    assert told[2][0] == "wrong"
    assert "blobs.endpoint" in told[2][1]
