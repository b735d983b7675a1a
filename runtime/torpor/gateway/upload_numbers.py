"""What uploads came to since the start, for ``/metrics``.

Above: the uploads, which tell of each as it happens.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from torpor.attachment_errors import AttachmentRefused, TooManyUploads, UploadDiffers


class UploadStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Since the start of the process."""

    begun: int
    """One that goes on where it was cut off is none."""
    finished: int
    refused: Mapping[str, int]
    """By the code of the error."""
    stored_bytes: int
    """Of finished ones, as they are sent to models."""
    collected: int
    """Blobs that were taken away since their uploads were forgotten and no message named them."""


class UploadNumbers:
    """Counts."""

    def __init__(self) -> None:
        self._begun = 0
        self._finished = 0
        self._refused = Counter[str]()
        self._stored_bytes = 0
        self._collected = 0

    def began(self) -> None:
        self._begun += 1

    def finished(self, size_bytes: int) -> None:
        self._finished += 1
        self._stored_bytes += size_bytes

    def collected(self, blobs: int) -> None:
        self._collected += blobs

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Counts what ends the block because a file is not taken; what its client mends by itself is no refusal."""
        try:
            yield
        except (AttachmentRefused, TooManyUploads, UploadDiffers) as exc:
            self._refused[exc.code] += 1
            raise

    def statistics(self) -> UploadStatistics:
        return UploadStatistics(
            begun=self._begun,
            finished=self._finished,
            refused=dict(self._refused),
            stored_bytes=self._stored_bytes,
            collected=self._collected,
        )
