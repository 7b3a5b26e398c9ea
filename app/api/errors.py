"""Errors of requests, in OpenAI's form of an error."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

_KINDS = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "server_error",
}


class ApiError(Exception):
    """The message is a sentence that says what to do. param: the field of the request that it is about. code: one of
    OpenAI's, for programs."""

    def __init__(
        self, message: str, status: int = HTTPStatus.BAD_REQUEST, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        kind = _KINDS.get(HTTPStatus(self.status), "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
