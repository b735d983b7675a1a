"""What the client raises beside the errors everybody knows."""

from torpor.errors import ClientError, Retry
from torpor.records.frames import ErrorFrame


class RequestRefused(ClientError):
    """The server answered with ``error``; ``code`` is the server's own, see docs/protocol.md."""

    code = "request_refused"

    def __init__(self, frame: ErrorFrame) -> None:
        super().__init__(frame.message)
        self.code = frame.code  # type: ignore[misc]  # here the instance knows it, everywhere else the class
        self.retry_after_s = frame.retry_after_s
        self.conversation = frame.conversation
        self.message_id = frame.message_id


class ConnectionLost(ClientError):
    """The connection ended before the answer to a request that must not be repeated unasked."""

    code = "connection_lost"
    retry = Retry.UNKNOWN_OUTCOME

    def __init__(self, request: str) -> None:
        super().__init__(f"connection was lost before {request!r} was answered, it may have happened")
        self.request = request


class FileDiffers(ClientError):
    """The bytes of an attachment are not those that its name stands for: they were damaged where they are stored."""

    code = "file_differs"

    def __init__(self, blob: str, *, size_bytes: int) -> None:
        super().__init__(f"{size_bytes} bytes came for attachment {blob!r}, and they have another digest")
        self.blob = blob


class ServerRefused(ClientError):
    """The server does not talk to this client, and trying again would not change that."""

    code = "refused"


class CertificateUntrusted(ServerRefused):
    """Nobody vouches for the certificate of the server who is known here."""

    code = "certificate_untrusted"

    def __init__(self, url: str, *, why: str) -> None:
        super().__init__(f"certificate of {url!r} is not trusted: {why}")


class CertificateOfOther(ServerRefused):
    """The certificate of the server is for another name than the address has."""

    code = "certificate_of_other"

    def __init__(self, url: str, *, why: str) -> None:
        super().__init__(f"certificate of {url!r} is for another name: {why}")


class OtherPerson(ClientError):
    """A newer token is not of the person that this client speaks for; the one before stays."""

    code = "other_person"

    def __init__(self, *, found: str, expected: str) -> None:
        super().__init__(f"token is of {found}, expected one of {expected}; somebody else needs a client of their own")


class NoToken(ClientError):
    """The function that gives this client its tokens gave none; its own error is the cause."""

    code = "no_token"

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"no token was given: {str(cause) or type(cause).__name__}")
        self.__cause__ = cause


class ClientClosed(ClientError):
    """The client was closed while something waited for an answer."""

    code = "closed"

    def __init__(self) -> None:
        super().__init__("client is closed")
