"""``GET /attachments/TICKET``: an attachment for whoever has the link, while it can be followed.

Above: the server, which hands in requests below this path. Below: the uploads, which know the tickets, and the
downloads, which give the bytes away. What is there is what people sent: a browser is told to keep it, not to show it,
and to believe nothing that it says of itself.
"""

import hashlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from math import ceil
from typing import Final

import structlog
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response
from websockets.protocol import State

from torpor.attachment_errors import UnknownAttachment
from torpor.attachments.kinds import media_type_of
from torpor.errors import StoreError
from torpor.gateway.downloads import Damaged, Downloads, NoPlace
from torpor.gateway.metered import Metered
from torpor.gateway.options import GatewayOptions
from torpor.gateway.ranges import has_it, wanted_part
from torpor.gateway.uploads import Uploads
from torpor.records.ids import ConversationKey

_READ_BYTES: Final = 262_144
"""Of a blob at once: what is held for one client."""
_HEAD_BYTES: Final = 1_024
"""Enough to see what a file is."""
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
}
_ENDINGS: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
    "text/plain": "txt",
}
"""Of a neutral name to save a file by: whoever has the link is not told what its sender calls it."""
_log = structlog.get_logger()


class AttachmentRoute:
    """See the module docstring."""

    def __init__(self, uploads: Uploads, *, downloads: Downloads, options: GatewayOptions) -> None:
        self._uploads = uploads
        self._downloads = downloads
        self._options = options

    async def answer(self, connection: ServerConnection, request: Request, *, ticket: str) -> Response:
        """What has to be answered still: after a file, the connection has ended."""
        try:
            key, blob = self._uploads.followed(ticket)
            with self._downloads.place(key):
                return await self._answer(connection, request, key=key, blob=blob)
        except UnknownAttachment:
            return connection.respond(
                HTTPStatus.NOT_FOUND, "nothing here, or the link has ended; ask for another one\n"
            )
        except NoPlace:
            text = "too many files are fetched at once, try again later\n"
            response = connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, text)
            response.headers["Retry-After"] = f"{ceil(self._options.downloads_retry_s)}"
            return response
        except StoreError as exc:
            self._downloads.unreadable()
            _log.warning("gateway.download_unreadable", why=str(exc))
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "the server's storage does not answer\n")

    async def _answer(
        self, connection: ServerConnection, request: Request, *, key: ConversationKey, blob: str
    ) -> Response:
        size_bytes = await self._uploads.size_bytes(key, blob)
        headers = {"ETag": f'"{blob}"', "Accept-Ranges": "bytes", **_HEADERS}
        if has_it(request.headers.get_all("If-None-Match"), etag=headers["ETag"]):
            return _response(connection, HTTPStatus.NOT_MODIFIED, headers)
        part = None
        if request.method == "GET":
            part = wanted_part(
                request.headers.get_all("Range"),
                conditions=request.headers.get_all("If-Range"),
                etag=headers["ETag"],
                size_bytes=size_bytes,
            )
        if part is not None and not part:
            headers["Content-Range"] = f"bytes */{size_bytes}"
            return _response(connection, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {**headers, "Content-Length": "0"})
        status, given = HTTPStatus.OK, range(size_bytes)
        if part is not None:
            status, given = HTTPStatus.PARTIAL_CONTENT, part
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size_bytes}"
        head = await self._uploads.piece(key, blob, offset=0, size_bytes=_HEAD_BYTES)
        media_type = media_type_of(head)
        headers |= {"Content-Type": media_type, "Content-Length": str(len(given))}
        ending = _ENDINGS.get(media_type.partition(";")[0], "bin")
        headers["Content-Disposition"] = f'attachment; filename="attachment.{ending}"'
        response = _response(connection, status, headers)
        if request.method == "GET" and connection.state is State.CONNECTING:
            assert isinstance(connection, Metered)
            body = self._body(key, blob, part=given, is_whole=len(given) == size_bytes)
            await self._downloads.give(connection, response.serialize(), body)
        return response

    async def _body(self, key: ConversationKey, blob: str, *, part: range, is_whole: bool) -> AsyncGenerator[bytes]:
        """The end of a whole that is not what it is called is not given away.

        Raises: UnknownAttachment, StoreError. Damaged.
        """
        digest = hashlib.sha256()
        while part:
            try:
                data = await self._uploads.piece(key, blob, offset=part.start, size_bytes=min(_READ_BYTES, len(part)))
            except StoreError as exc:
                _log.warning("gateway.download_unreadable", blob=blob, why=str(exc))
                raise
            part = part[len(data) :]
            if is_whole:
                digest.update(data)
            if not data or (is_whole and not part and digest.hexdigest() != blob):
                _log.warning("gateway.download_damaged", blob=blob)
                raise Damaged
            yield data


def _response(connection: ServerConnection, status: HTTPStatus, headers: dict[str, str]) -> Response:
    """Without a body, and with nothing said of one but by ``headers``."""
    response = connection.respond(status, "")
    for name in ("Content-Type", "Content-Length"):
        del response.headers[name]
    for name, value in headers.items():
        response.headers[name] = value
    return response
