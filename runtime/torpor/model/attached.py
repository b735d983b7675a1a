"""What markers in a request stand for, put in their places as it is sent. Pure.

Nothing of it is stored: the marker is what records, digests and audits hold, and the bytes that it names are what they
were, since their name is their hash.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torpor.conversation.view import View
from torpor.records.attachments import Attachment, attachment_of
from torpor.records.blocks import canonical


def sent_block(attachment: Attachment, data: bytes) -> bytes:
    """The block of the Messages API, canonical JSON."""
    if attachment.media_type == "text/plain":
        source = {"type": "text", "media_type": attachment.media_type, "data": data.decode(errors="replace")}
    else:
        encoded = base64.b64encode(data).decode("ascii")
        source = {"type": "base64", "media_type": attachment.media_type, "data": encoded}
    block: dict[str, Any] = {"type": "image" if attachment.is_picture else "document", "source": source}
    if attachment.name and not attachment.is_picture:
        block["title"] = attachment.name
    return bytes(canonical(block))


def spliced(
    pieces: Iterable[bytes | memoryview], view: View, attached: Mapping[str, bytes], *, aside: bytes
) -> Iterator[bytes | memoryview]:
    """``pieces`` of the view in order, with each marker replaced but for its closing bracket.

    Args: attached: by name of the blob.  aside: the cache mark, by identity, which stands for such a bracket.
    """
    begin, marks = 0, iter(view.marks)
    mark = next(marks, None)
    for piece in pieces:
        if piece is aside:
            begin += 1
            yield piece
            continue
        done, end = 0, begin + len(piece)
        while mark is not None and mark.begin < end:
            whole = memoryview(piece)
            first, last = mark.begin - begin, mark.begin - begin + mark.size_bytes - 1
            attachment = attachment_of(bytes(whole[first:last]) + b"}")
            yield whole[done:first]
            yield sent_block(attachment, attached[attachment.blob])[:-1]
            done = last
            mark = next(marks, None)
        yield memoryview(piece)[done:] if done else piece
        begin = end
