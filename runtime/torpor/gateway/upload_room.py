"""Whether there is room for one more upload of an owner, and when there will be. Pure."""

from collections.abc import Sequence
from math import ceil
from typing import Final

from torpor.attachment_errors import AttachmentEmpty, AttachmentTooLarge, TooManyUploads
from torpor.attachments.options import AttachmentOptions
from torpor.store.uploads import Announced

_RETRY_S: Final = 5.0
_MICROSECONDS: Final = 1_000_000
_UNITS: Final = ((3_600, "h"), (60, "min"), (1, "s"))


def check_size(announced: Announced, *, options: AttachmentOptions) -> None:
    """Raises: AttachmentEmpty. AttachmentTooLarge: there is never room for it."""
    most = min(options.upload_bytes_max, options.uploads_bytes_per_owner_max, options.uploads_kept_bytes_per_owner_max)
    if not announced.size_bytes:
        raise AttachmentEmpty(f"file {announced.name!r} has no bytes, expected some")
    if announced.size_bytes > most:
        found = f"file {announced.name!r} has {announced.size_bytes} bytes"
        raise AttachmentTooLarge(f"{found}, expected at most {most}; send a part of it")


def check_room(announced: Announced, *, others: Sequence[Announced], options: AttachmentOptions, now_us: int) -> None:
    """Args: others: of the same owner. Raises: TooManyUploads."""
    begun = [announced.size_bytes, *(each.size_bytes for each in others if not each.blob)]
    for count, what, most in (
        (len(begun), "uploads under way", options.uploads_per_owner_max),
        (sum(begun), "bytes of uploads under way", options.uploads_bytes_per_owner_max),
    ):
        if count > most:
            remedy = "finish or drop one, or wait"
            raise TooManyUploads(count, what=what, most=most, retry_after_s=_RETRY_S, remedy=remedy)
    ended = [each for each in others if each.blob]
    count = announced.size_bytes + sum(each.size_bytes for each in ended)
    if count > (most := options.uploads_kept_bytes_per_owner_max):
        wait_s = _wait_s(ended, over=count - most, expiry_s=options.upload_expiry_s, now_us=now_us)
        remedy = f"drop some, or wait {_in_words(wait_s)} until enough of them are forgotten"
        raise TooManyUploads(
            count, what="bytes of uploads that are kept", most=most, retry_after_s=wait_s, remedy=remedy
        )


def _wait_s(ended: Sequence[Announced], *, over: int, expiry_s: float, now_us: int) -> float:
    """Until so many bytes are forgotten, the oldest uploads first."""
    wait_s = 0.0
    for each in sorted(ended, key=lambda each: each.touched_us):
        if over <= 0:
            break
        over -= each.size_bytes
        wait_s = (each.touched_us - now_us) / _MICROSECONDS + expiry_s
    return float(ceil(max(wait_s, 0.0) + 1))


def _in_words(seconds: float) -> str:
    size, unit = next(each for each in _UNITS if seconds >= each[0])
    return f"about {round(seconds / size)} {unit}"
