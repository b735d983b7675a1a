"""Which blobs a configuration asks for, and what is said when it cannot have them."""

from pathlib import Path

import pytest

from torpor.errors import ConfigError, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.store.blobs import LocalBlobs
from torpor.store.open_blobs import blob_problems, open_blobs
from torpor.store.options import BlobOptions
from torpor.store.s3_blobs import S3Blobs

KEYS = {"access_key_env": "KEY_ID", "secret_key_env": "KEY"}
ENVIRON = {"KEY_ID": "AKIA", "KEY": "not-a-secret"}
NOWHERE = BlobOptions(kind="s3", bucket="b", endpoint="http://127.0.0.1:9", deadline_s=0.5, **KEYS)


def test_by_default_they_lie_in_the_data_folder(tmp_path: Path) -> None:
    assert isinstance(open_blobs(BlobOptions(), folder=tmp_path, environ={}), LocalBlobs)


def test_an_object_store_is_opened_with_the_key_that_variables_hold(tmp_path: Path) -> None:
    assert isinstance(open_blobs(NOWHERE, folder=tmp_path, environ=ENVIRON), S3Blobs)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (BlobOptions(kind="s3"), "blobs.bucket"),
        (BlobOptions(kind="s3", bucket="b", endpoint="s3.example.org"), "blobs.endpoint"),
        (BlobOptions(kind="s3", bucket="b", access_key_env="KEY_ID"), "blobs.access_key_env"),
        (BlobOptions(kind="s3", bucket="b", access_key_env="KEY_ID", secret_key_env="MISSING"), "blobs.secret_key_env"),
    ],
)
def test_what_is_missing_for_an_object_store_is_named(tmp_path: Path, options: BlobOptions, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_blobs(options, folder=tmp_path, environ=ENVIRON)
    assert caught.value.key == key


def test_all_that_is_missing_is_named_at_once() -> None:
    options = BlobOptions(kind="s3", endpoint="s3.example.org", access_key_env="KEY_ID")

    told = [problem.key for problem in blob_problems(options, {})]

    assert told == ["blobs.bucket", "blobs.endpoint", "blobs.access_key_env", "blobs.access_key_env"]


async def test_an_object_store_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    blobs = open_blobs(NOWHERE, folder=tmp_path, environ=ENVIRON)
    with pytest.raises(StoreUnavailable, match="bucket 'b' cannot be read or written"):
        await blobs.put(ConversationKey("t", "o", "c"), b"data")
