"""An object store on this machine that speaks the protocol of S3, with one bucket in it."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from moto.server import ThreadedMotoServer

from torpor.store.options import BlobOptions
from torpor.store.s3_blobs import S3Blobs

BUCKET: Final = "blobs-of-tests"
CREDENTIALS: Final = {"access_key_id": "AKIATESTS", "secret_access_key": "not-a-secret"}


class Bucket(NamedTuple):
    """Where it is."""

    endpoint: str

    def options(self, *, prefix: str) -> BlobOptions:
        return BlobOptions(kind="s3", bucket=BUCKET, prefix=prefix, endpoint=self.endpoint, deadline_s=20.0)

    def blobs(self, *, prefix: str) -> S3Blobs:
        return S3Blobs(self.options(prefix=prefix), credentials=CREDENTIALS)


@contextmanager
def served_bucket() -> Iterator[Bucket]:
    """Until the block ends; in a thread of this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        made = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        made.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=AKIATESTS/20260101/us-east-1/s3/aws4_request")
        urllib.request.urlopen(made, timeout=20).close()
        yield Bucket(endpoint)
    finally:
        server.stop()
