"""What is taken of files that people send."""

import msgspec

from torpor.records.bounds import Count, Seconds


class AttachmentOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes, pixels, seconds and counts. Hosts count pictures, pages and bytes over a whole request, history
    included."""

    upload_bytes_max: Count = 33_554_432
    """Of a file as it comes."""
    picture_pixels_max: Count = 64_000_000
    """Width times height, before anything is unpacked."""
    picture_side_max_px: Count = 1_568
    """A picture with a longer side is made smaller. Hosts refuse sides over 2,000 once a request has many pictures."""
    picture_bytes_max: Count = 3_750_000
    """Of a picture as it is sent; a larger one is packed again."""
    pdf_bytes_max: Count = 10_485_760
    """Of a PDF."""
    pdf_pages_max: Count = 100
    """Of a PDF."""
    text_bytes_max: Count = 262_144
    """Of a text in UTF-8, also of one that was taken out of a document."""
    message_attachments_max: Count = 32
    """Files in one message."""
    request_attachments_max: Count = 100
    """Files in one request; beyond it the oldest are told of, and not shown any more."""
    request_bytes_max: Count = 22_020_096
    """Their size together; hosts take requests of 32 MB, and bytes grow by a third on their way."""
    request_pages_max: Count = 100
    """Pages of the PDFs in one request."""
    read_deadline_s: Seconds = 30.0
    """For reading the files of one request."""
    inspect_deadline_s: Seconds = 30.0
    """For looking into one file; after it the process that does is killed, and the file refused if it was at work."""
    inspect_processes: Count = 2
    """Files that are looked into at once, each by a process. Of more than one, no owner has all."""
    inspect_memory_bytes: Count = 1_073_741_824
    """Address space of such a process."""
    inspect_idle_s: Seconds = 60.0
    """Without a file for this long, such a process ends."""
    uploads_per_owner_max: Count = 16
    """Uploads of one owner under way."""
    uploads_bytes_per_owner_max: Count = 134_217_728
    """What they are to come to."""
    uploads_kept_bytes_per_owner_max: Count = 1_073_741_824
    """Finished uploads of one owner that are not forgotten yet, whether a message names them or not."""
    upload_expiry_s: Seconds = 86_400.0
    """An upload to which nothing was added for this long is forgotten, and so is a finished one that no message
    names."""
    link_expiry_s: Seconds = 300.0
    """How long a link to an attachment can be followed."""
