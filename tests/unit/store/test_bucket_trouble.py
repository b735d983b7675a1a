"""What the library of an object store says is told in words that help."""

import pytest

from torpor.store.bucket_trouble import trouble_in
from torpor.store.options import BlobOptions

HERE = BlobOptions(kind="s3", bucket="b", endpoint="https://s3.example.org", access_key_env="BLOBS_ID")
AMAZON = BlobOptions(kind="s3", bucket="b", region="eu-west-1")
BEGIN = "Generic S3 error: Error performing list request: Error performing GET https://s3.example.org/b in 3ms - "


def answer(status: str, code: str = "") -> str:
    body = f"<?xml?>\n<Error><Code>{code}</Code><Message>secret words</Message></Error>" if code else "<html>"
    return f"{BEGIN}Server returned non-2xx status code: {status}: {body}\n\nDebug source:\nGeneric {{"


@pytest.mark.parametrize(
    ("told", "options", "what", "remedy"),
    [
        (answer("404 Not Found", "NoSuchBucket"), HERE, "'b' at https://s3.example.org does not exist", "create it"),
        (answer("403 Forbidden", "AccessDenied"), HERE, "does not take the key (AccessDenied)", "look at BLOBS_ID"),
        (answer("403 Forbidden"), AMAZON, "Amazon, region eu-west-1 does not take the key", "credentials of this"),
        (answer("301 Moved", "PermanentRedirect"), AMAZON, "is in another region", "blobs.region"),
        (answer("404 Not Found"), HERE, "answers with status 404, expected a list of names", "blobs.endpoint"),
        (answer("503 Busy", "SlowDown"), HERE, "answers with SlowDown", "blobs.endpoint"),
        (
            f"{BEGIN}HTTP error: error sending request\n\nDebug",
            HERE,
            "does not answer: HTTP error: error send",
            "network",
        ),
        ("nothing came within 5 s", HERE, "does not answer: nothing came within 5 s", "network"),
    ],
)
def test_it_is_named_with_bucket_place_and_remedy(told: str, options: BlobOptions, what: str, remedy: str) -> None:
    found = trouble_in(told, options)
    assert found.what.startswith("bucket 'b' at ")
    assert what in found.what
    assert remedy in found.remedy
    assert "secret words" not in found.what
    assert found.is_missing is ("NoSuchBucket" in told)
