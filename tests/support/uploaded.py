"""Uploads for tests: over a folder of the test's own, or over one into which nothing can be put."""

from pathlib import Path

from torpor.attachments.inspector import Inspector
from torpor.attachments.options import AttachmentOptions
from torpor.attachments.tickets import Tickets
from torpor.clock import Clock, SystemClock
from torpor.gateway.uploads import NamesBlobs, Uploads
from torpor.store.blobs import MemoryBlobs
from torpor.store.contract import ErasableBlobs
from torpor.store.in_memory import InMemoryStore
from torpor.store.uploads import LocalUploads


def uploads_in(
    folder: Path,
    *,
    blobs: ErasableBlobs | None = None,
    clock: Clock | None = None,
    options: AttachmentOptions | None = None,
    inspector: Inspector | None = None,
    records: NamesBlobs | None = None,
    in_threads: bool = True,
) -> Uploads:
    """As a server has them."""
    options = options or AttachmentOptions()
    return Uploads(
        LocalUploads(folder),
        blobs=blobs or MemoryBlobs(),
        inspector=inspector or Inspector(options),
        records=records or InMemoryStore(),
        tickets=Tickets(b"a secret of thirty-two bytes, ok"),
        clock=clock or SystemClock(),
        options=options,
        in_threads=in_threads,
    )


def no_uploads() -> Uploads:
    """Every disk is full."""
    return uploads_in(Path("/dev/null/uploads"), in_threads=False)
