"""What an object store answered to the first question -> what is wrong with it, and what can be done. Pure.

Above: the blobs in an object store, which ask at a start, and ``torpor doctor``.
"""

import re
from typing import Final

import msgspec

from torpor.store.options import BlobOptions

_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_TOLD_CHARS: Final = 200
_KEY_CODES: Final = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AuthFailure"}
)
_REGION_CODES: Final = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)


class BucketTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why no body can be stored there now."""

    what: str
    remedy: str
    is_missing: bool = False
    """The store is there and says that the bucket is not: it does not come back by itself."""


def place_of(options: BlobOptions) -> str:
    """The bucket and where it is, for people."""
    return f"bucket {options.bucket!r} at {options.endpoint or f'Amazon, region {options.region}'}"


def says_no_object(answer: str) -> bool:
    """Whether it is said that the object alone is missing; an answer without a body does not tell of what it speaks."""
    return (code := _CODE.search(answer)) is not None and code[1] == "NoSuchKey"


def trouble_in(answer: str, options: BlobOptions) -> BucketTrouble:
    """Args: answer: all of the library's words, which quote what came."""
    place = place_of(options)
    status, code = _STATUS.search(answer), _CODE.search(answer)
    told = code[1] if code else f"status {status[1]}" if status else ""
    if told == "NoSuchBucket":
        remedy = "create it, or name another one in blobs.bucket"
        return BucketTrouble(what=f"{place} does not exist", remedy=remedy, is_missing=True)
    if told in _KEY_CODES or told in {"status 401", "status 403"}:
        key = options.access_key_env or "the credentials of this machine"
        remedy = f"look at {key}, which must be allowed to list the bucket, and to read, write and delete in it"
        return BucketTrouble(what=f"{place} does not take the key ({told})", remedy=remedy)
    if told in _REGION_CODES or told == "status 301":
        return BucketTrouble(what=f"{place} is in another region ({told})", remedy="name it in blobs.region")
    if told:
        remedy = "look at blobs.endpoint, and at the store's own log"
        return BucketTrouble(what=f"{place} answers with {told}, expected a list of names", remedy=remedy)
    why = answer.partition("\n")[0].rpartition(" - ")[2].strip()[:_TOLD_CHARS]
    return BucketTrouble(what=f"{place} does not answer: {why}", remedy="look at blobs.endpoint and the network")
