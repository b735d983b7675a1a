"""The bytes of a file -> what a model may be shown of it, or why nothing. Synchronous, and slow.

Above: ``worker``, the process that runs it. Everything is decided by content; the name is only repeated.
"""

from torpor.attachment_errors import AttachmentEmpty, AttachmentTooLarge, AttachmentUnreadable, AttachmentUnsupported
from torpor.attachments import documents, pictures
from torpor.attachments.kinds import Kind, kind_of, may_be_text
from torpor.attachments.looked import TAKEN, Looked
from torpor.attachments.options import AttachmentOptions

_HEAD_BYTES = 4_096
_REMEDIES = {"a HEIC picture": "save it as JPEG", "an old or protected office document": "save it as a PDF"}


def looked_into(data: bytes, *, name: str, options: AttachmentOptions) -> Looked:
    """Raises: AttachmentRefused, of some kind: what was found, and what can be done."""
    if not data:
        raise AttachmentEmpty(f"file {name!r} has no bytes")
    if len(data) > options.upload_bytes_max:
        raise AttachmentTooLarge(f"file {name!r} has {len(data)} bytes, expected at most {options.upload_bytes_max}")
    kind, what = kind_of(data[:_HEAD_BYTES])
    match kind:
        case Kind.PICTURE:
            return pictures.looked_at(data, name=name, options=options)
        case Kind.PDF:
            return _pdf_or_text(data, name=name, options=options)
        case Kind.ZIP:
            return documents.office(data, name=name, options=options)
        case Kind.TEXT:
            return documents.text(data, name=name, options=options)
        case Kind.OTHER:
            expected = f"{TAKEN}; {_REMEDIES.get(what, 'send what is in it as one of these')}"
            raise AttachmentUnsupported(f"file {name!r} is {what}, expected {expected}")


def _pdf_or_text(data: bytes, *, name: str, options: AttachmentOptions) -> Looked:
    """A PDF may begin behind something else: it is one if it can be read as one."""
    try:
        return documents.pdf(data, name=name, options=options)
    except (AttachmentUnreadable, AttachmentEmpty):
        if not may_be_text(data):
            raise
    return documents.text(data, name=name, options=options)
