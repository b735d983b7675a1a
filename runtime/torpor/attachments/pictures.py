"""Pictures as models may be shown them: looked into whole, made smaller, in a format that hosts take.

Above: ``ingest``, in the process that looks into files. Below: Pillow. How much a picture unpacks to is known from its
first bytes, and nothing is unpacked before that was looked at.
"""

import io
import warnings
from typing import Any, Final

from PIL import Image, ImageOps, UnidentifiedImageError

from torpor.attachment_errors import AttachmentTooLarge, AttachmentUnreadable
from torpor.attachments.looked import Looked
from torpor.attachments.options import AttachmentOptions

SENT: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
"""Formats that hosts take, as Pillow calls them."""
_READ: Final = (*SENT, "BMP", "TIFF", "AVIF")
_PIXELS_PER_TOKEN: Final = 750
_QUALITIES: Final = (90, 80, 65, 50)
_DAMAGED: Final = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError)
"""What Pillow raises of a file that is not what it says."""


def looked_at(data: bytes, *, name: str, options: AttachmentOptions) -> Looked:
    """Raises: AttachmentTooLarge, AttachmentUnreadable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it has to say of sizes and of damages is asked below
        Image.MAX_IMAGE_PIXELS = None
        try:
            picture = Image.open(io.BytesIO(data), formats=_READ)
            _check_size(picture, name=name, options=options)
            return _fitted(picture, data, options=options)
        except UnidentifiedImageError as exc:
            raise AttachmentUnreadable(f"picture {name!r} cannot be read, expected a whole one") from exc
        except _DAMAGED as exc:
            what = f"picture {name!r} is damaged, expected a whole one; save it again"
            raise AttachmentUnreadable(what) from exc


def _check_size(picture: Image.Image, *, name: str, options: AttachmentOptions) -> None:
    width, height = picture.size
    if width * height > options.picture_pixels_max:
        found = f"picture {name!r} has {width} x {height} pixels"
        raise AttachmentTooLarge(f"{found}, expected at most {options.picture_pixels_max} in all; make it smaller")
    if not width or not height:
        raise AttachmentUnreadable(f"picture {name!r} has no pixels")


def _fitted(picture: Image.Image, data: bytes, *, options: AttachmentOptions) -> Looked:
    width, height = picture.size
    side_max = options.picture_side_max_px
    media_type, is_large = SENT.get(picture.format or ""), max(width, height) > side_max
    if picture.format == "JPEG" and is_large:
        picture.draft(None, (side_max, side_max))  # unpacks a part of it only
    picture.load()
    tokens = -(-width * height // _PIXELS_PER_TOKEN)
    if media_type and not is_large and len(data) <= options.picture_bytes_max:
        return Looked(media_type, tokens, None)
    made: Any = ImageOps.exif_transpose(picture)
    made.thumbnail((side_max, side_max), Image.Resampling.LANCZOS)
    packed, media_type = _packed(made, bytes_max=options.picture_bytes_max)
    while len(packed) > options.picture_bytes_max and min(made.size) > 1:
        made = made.reduce(2)
        packed, media_type = _packed(made, bytes_max=options.picture_bytes_max)
    tokens = -(-made.width * made.height // _PIXELS_PER_TOKEN)
    is_smaller = made.size not in {(width, height), (height, width)}
    note = f"{width} x {height} pixels became {made.width} x {made.height}" if is_smaller else f"packed as {media_type}"
    return Looked(media_type, tokens, packed, note=note)


def _packed(picture: Image.Image, *, bytes_max: int) -> tuple[bytes, str]:
    """Without loss if that is small enough, as a drawing is and a photograph is not."""
    has_alpha = picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info
    plain = picture.convert("RGBA" if has_alpha else "RGB")
    packed = _written(plain, "PNG", optimize=False)
    if len(packed) <= bytes_max // 4:
        return packed, "image/png"
    if has_alpha:
        ground = Image.new("RGB", plain.size, "white")
        ground.paste(plain, mask=plain.getchannel("A"))
        plain = ground
    for quality in _QUALITIES:
        packed = _written(plain, "JPEG", quality=quality)
        if len(packed) <= bytes_max:
            break
    return packed, "image/jpeg"


def _written(picture: Image.Image, kind: str, **how: Any) -> bytes:
    to = io.BytesIO()
    picture.save(to, kind, **how)
    return to.getvalue()
