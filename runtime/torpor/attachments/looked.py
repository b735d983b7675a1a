"""What comes of looking into a file; and what is said of one that is refused. Pure."""

from typing import Final, NamedTuple

from torpor.attachment_errors import (
    AttachmentEmpty,
    AttachmentEncrypted,
    AttachmentRefused,
    AttachmentTooLarge,
    AttachmentTooManyPages,
    AttachmentUnreadable,
    AttachmentUnsupported,
)

REFUSALS: Final[dict[str, type[AttachmentRefused]]] = {
    kind.code: kind
    for kind in (
        AttachmentRefused,
        AttachmentEmpty,
        AttachmentEncrypted,
        AttachmentTooLarge,
        AttachmentTooManyPages,
        AttachmentUnreadable,
        AttachmentUnsupported,
    )
}
"""By code, since a refusal comes out of another process."""

TAKEN: Final = "a picture, a PDF, a text, a .docx or an .odt"
"""What is said to be expected in place of anything else."""


class Looked(NamedTuple):
    """A file that can be shown to a model."""

    media_type: str
    """Of what is sent."""
    tokens: int
    data: bytes | None
    """In the file's place; None when the file is sent as it is."""
    pages: int = 0
    note: str = ""
    """What was changed, for the client; empty for nothing."""
