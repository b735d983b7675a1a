"""``GET /attachments/TICKET``: an attachment for whoever has the link, while it can be followed.

Above: the server, which hands in requests below this path. Below: the uploads, which know the tickets. What is there is
what people sent: a browser is told to keep it, not to show it, and to believe nothing that it says of itself.
"""

from http import HTTPStatus
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Response

from torpor.attachment_errors import UnknownAttachment
from torpor.attachments.kinds import media_type_of
from torpor.errors import StoreError
from torpor.gateway.uploads import Uploads

_HEADERS: Final = {
    "Content-Disposition": "attachment",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
}


async def attachment_response(connection: ServerConnection, ticket: str, *, uploads: Uploads) -> Response:
    """The bytes, or why not."""
    try:
        data = await uploads.followed(ticket)
    except UnknownAttachment:
        return connection.respond(HTTPStatus.NOT_FOUND, "nothing here, or the link has ended; ask for another one\n")
    except StoreError:
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "the server's storage does not answer\n")
    response = connection.respond(HTTPStatus.OK, "")
    told = {"Content-Type": media_type_of(data), "Content-Length": str(len(data)), **_HEADERS}
    for name, value in told.items():
        if name in response.headers:
            del response.headers[name]
        response.headers[name] = value
    response.body = data
    return response
