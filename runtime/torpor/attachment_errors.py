"""What is said to people whose files cannot be taken: one branch of the tree in ``errors``.

Each says which file, what was found in it, and what can be done.
"""

from torpor.errors import ClientError, Retry


class AttachmentRefused(ClientError):
    """The file is nothing that a model could be shown."""

    code = "attachment_refused"


class AttachmentEmpty(AttachmentRefused):
    """The file has no bytes, or nothing in it that can be seen."""

    code = "attachment_empty"


class AttachmentTooLarge(AttachmentRefused):
    """The file, or what it unpacks to, is larger than the server takes."""

    code = "attachment_too_large"


class AttachmentUnsupported(AttachmentRefused):
    """Files of this kind are neither shown to models nor turned into text."""

    code = "attachment_unsupported"


class AttachmentEncrypted(AttachmentRefused):
    """The file cannot be read without a password."""

    code = "attachment_encrypted"


class AttachmentUnreadable(AttachmentRefused):
    """The file begins like one of its kind, and is damaged."""

    code = "attachment_unreadable"


class AttachmentTooManyPages(AttachmentRefused):
    """The document has more pages than models are shown."""

    code = "attachment_too_many_pages"


class TooManyAttachments(ClientError):
    """A message has more of them, or more in them, than one request may hold."""

    code = "too_many_attachments"

    def __init__(self, found: int, *, what: str, most: int) -> None:
        super().__init__(f"the message has {found} {what}, expected at most {most}; send them in several messages")


class UnknownAttachment(ClientError):
    """There is none of that name, or it is not the client's; which of the two is not said."""

    code = "unknown_attachment"

    def __init__(self, *, is_own: bool = True) -> None:
        """Args: is_own: whether the message is for a conversation of the client's own."""
        gone = "there is no such attachment, or it was not sent within its time, or it was deleted; upload it again"
        super().__init__(gone if is_own else "files can be sent to your own conversations only, this is another's")


class UnknownUpload(ClientError):
    """Nobody began it, it was finished, or nothing came of it for too long."""

    code = "unknown_upload"

    def __init__(self, upload: str) -> None:
        super().__init__(f"upload {upload!r} is not under way, begin it first")


class UploadOutOfStep(ClientError):
    """A piece does not follow what is there; what begins the upload again tells where to go on."""

    code = "upload_out_of_step"
    retry = Retry.SAFE

    def __init__(self, upload: str, *, offset: int, received_bytes: int) -> None:
        told = f"upload {upload!r} has {received_bytes} bytes, expected {offset} before this"
        super().__init__(f"{told}; begin it again and go on from there")


class UploadDiffers(ClientError):
    """What came is not what was announced."""

    code = "upload_differs"

    def __init__(self, upload: str, *, what: str) -> None:
        super().__init__(f"upload {upload!r} {what}; upload it again from the beginning")


class TooManyUploads(ClientError):
    """The owner has as many uploads, or bytes in them, as one may."""

    code = "too_many_uploads"
    retry = Retry.SAFE

    def __init__(self, found: int, *, what: str, most: int, retry_after_s: float, remedy: str) -> None:
        super().__init__(f"this owner has {found} {what}, expected at most {most}; {remedy}")
        self.retry_after_s = retry_after_s
