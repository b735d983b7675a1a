"""What becomes of stored bytes on a bad disk: other ones under the same name."""

from torpor.records.ids import ConversationKey
from torpor.store.blobs import LocalBlobs, MemoryBlobs
from torpor.store.contract import Blobs
from torpor.store.s3_blobs import S3Blobs


def damage(blobs: Blobs, key: ConversationKey, handle: str, data: bytes) -> None:
    """``data`` is what is there of ``handle`` from now on."""
    match blobs:
        case MemoryBlobs():
            blobs._data[key.tenant, key.owner, handle] = data
        case LocalBlobs():
            (blobs._folder(key) / handle).write_bytes(data)
        case S3Blobs():
            blobs._obstore.put(blobs._store, blobs._path(key, handle), data)
        case _:
            raise AssertionError(f"nobody knows where {blobs!r} has its bytes")
