"""Converts errors of a store, a connection or a client library to OSErrors with remedies.

The messages contain no identities (names of accounts and keys). The text of a library is not repeated, because it may
contain keys, tokens and account names.
"""

from __future__ import annotations

import errno
import http.client
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator

from pytest_ckpt.support.errors import UsageError

_CODES = {
    "AccessDenied": errno.EACCES,
    "AuthenticationFailed": errno.EACCES,
    "BlobNotFound": errno.ENOENT,
    "ContainerNotFound": errno.ENOENT,
    "NoSuchKey": errno.ENOENT,
    "NoSuchBucket": errno.ENOENT,
    "NoSuchUpload": errno.ENOENT,
    "PreconditionFailed": errno.EEXIST,
    "ConditionalRequestConflict": errno.EEXIST,
    "SlowDown": errno.EBUSY,
    "ServiceUnavailable": errno.EBUSY,
    "QuotaExceeded": errno.EDQUOT,
    "InsufficientStorage": errno.ENOSPC,
    "XMinioStorageFull": errno.ENOSPC,
    "EntityTooLarge": errno.EFBIG,
}
_STATUSES = {
    401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 409: errno.EEXIST, 412: errno.EEXIST, 429: errno.EBUSY,
    503: errno.EBUSY, 507: errno.ENOSPC,
}  # fmt: skip
_PASSING_STATUSES = frozenset({429, 500, 502, 503, 504})
_PASSING_CODES = frozenset({"SlowDown", "InternalError", "RequestTimeout", "ServiceUnavailable"})
# The answer to a HEAD request has only a status.
_BARE = {403: "the store forbids it", 404: "it is not there", 412: "it is there", 503: "the store is busy"}
# Names of accounts, keys and signatures in messages.
_IDENTITIES = (
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w"), "***"),
    (re.compile(r"\barn:[\w-]+:\S+"), "arn:***"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), "***"),
    (re.compile(r"(?i)(x-amz-(?:signature|credential|security-token)=)[^&\s]+"), r"\1***"),
    (re.compile(r"(?i)([?&]sig=)[^&\s]+"), r"\1***"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "***"),
)

_TLS_CUT = ("SSLEOFError", "SSLZeroReturnError", "SSLSyscallError")

_LOOK = "Look at what the store itself logs about it."
_KEYS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to credentials of this store."
_ACCOUNT = (
    "Set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_STORAGE_CONNECTION_STRING, "
    "to the values of this storage account."
)
_GOOGLE = (
    "Install the extra: pip install 'pytest-ckpt[gcs]', and set GOOGLE_APPLICATION_CREDENTIALS, or log in by: gcloud "
    "auth application-default login"
)
_REGION = "Set AWS_REGION to the region of the bucket."
_REMEDIES = {
    "NoSuchBucket": "Make the bucket, or name another one in --ckpt-target.",
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": "Set AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to the secret of this access key.",
    "ExpiredToken": "Get new credentials: the session token has expired.",
    "InvalidToken": "Unset AWS_SESSION_TOKEN, or get new credentials.",
    "RequestTimeTooSkewed": "Set the clock of this host by NTP: signed requests are refused after 15 minutes.",
    "AccessDenied": "Give these credentials the permissions to put, get, list and delete objects below the prefix, and "
    "to list and abort multipart uploads.",
    "NoGoogleCredentials": _GOOGLE,
    "NoAccount": _ACCOUNT,
    "AuthenticationFailed": _ACCOUNT,
    "ContainerNotFound": "Make the container, or name another one in --ckpt-target.",
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
}


class StoreError(OSError):
    """An error that a store reported, or a missing answer of a store.

    ``code`` is the store's own error code, or empty. If ``may_pass`` is true, the same request may succeed later.
    """

    code = ""
    status = 0
    may_pass = False

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        if self.code in _REMEDIES:
            return _REMEDIES[self.code]
        return _REMEDIES["AccessDenied"] if self.errno == errno.EACCES else _LOOK


class StoreFileNotFoundError(StoreError, FileNotFoundError):
    """The object, upload or bucket does not exist."""


class StoreFileExistsError(StoreError, FileExistsError):
    """The object already exists."""


class CutError(http.client.HTTPException):
    """A connection ended before the end of a body. The text states received and expected bytes, and the offset."""

    def __init__(self, received: int, promised: int, offset: int) -> None:
        super().__init__(
            f"the connection was cut: {received:,} of {promised:,} bytes were received, from byte {offset:,} on"
        )


def is_cut(error: Exception) -> bool:
    """Return whether an error means that a connection was closed."""
    return isinstance(error, ConnectionError | http.client.HTTPException) or type(error).__name__ in _TLS_CUT


def of_answer(status: int, data: bytes, action: str, place: str, hidden: Iterable[str] = ()) -> StoreError:
    """Return a StoreError for an error that a store reported.

    Texts in ``hidden``, such as the client's keys, are removed from the message.
    """
    fields = fields_of(data)
    code, message = fields.get("Code", ""), fields.get("Message", "")
    for secret in filter(None, hidden):
        message = message.replace(secret, "***")
    number = _CODES.get(code) or _STATUSES.get(status, errno.EIO)
    words = ": ".join(filter(None, (code, message))) or _BARE.get(status, f"status {status}")
    made = _store_error(number, f"{action}: {words}", place, code)
    made.status = status
    made.may_pass = status in _PASSING_STATUSES or code in _PASSING_CODES
    return made


def of_connection(error: Exception, action: str, place: str) -> StoreError:
    """Return a StoreError for a failed connection. Except for TLS, failures count as temporary (``may_pass``)."""
    if isinstance(error, TimeoutError):
        made = _store_error(errno.ETIMEDOUT, f"{action}: the endpoint did not answer in time", place)
    elif isinstance(error, ConnectionRefusedError):
        made = _store_error(errno.ECONNREFUSED, f"{action}: no server answers at the endpoint", place)
    elif type(error).__module__ == "ssl" and type(error).__name__ not in _TLS_CUT:
        made = _store_error(errno.EPROTO, f"{action}: TLS failed: {error}", place)
    elif is_cut(error):
        words = str(error) if isinstance(error, CutError) else "the connection was cut"
        made = _store_error(errno.ECONNRESET, f"{action}: {words}", place)
    else:
        assert isinstance(error, OSError)
        unknown = isinstance(error.errno, int) and error.errno < 0
        text = "the name of the endpoint is not known" if unknown else error.strerror or str(error)
        made = _store_error(errno.EHOSTUNREACH if unknown else error.errno or errno.EIO, f"{action}: {text}", place)
    made.may_pass = made.errno != errno.EPROTO
    return made


def of_library(library: str, status: int, code: str, kind: str, number: int, action: str, place: str) -> StoreError:
    """Return a StoreError for an error of a third-party library, with status and code if these are known.

    If neither status nor code is known, the text contains ``kind``. If neither determines an errno, the errno is
    ``number``. The library's own text is omitted, because it may contain identities (names of accounts and keys).
    """
    known = code if code in _CODES or code in _REMEDIES or code in _PASSING_CODES else ""
    words = ", ".join(filter(None, (f"status {status}" if status else "", known))) or kind
    made = _store_error(
        _CODES.get(known) or _STATUSES.get(status, number), f"{action}: {library} met {words}", place, known
    )
    made.status = status
    return made


def of_credentials(text: str, place: str, code: str = "InvalidAccessKeyId") -> StoreError:
    """Return an error for missing credentials, with the remedy for ``code``."""
    return _store_error(errno.EACCES, f"credentials are missing: {text}", place, code)


def fields_of(data: bytes) -> dict[str, str]:
    """Return {name: text} of the fields in an answer of a store.

    For XML, these are the top-level elements. For a JSON error, these are its code and message. For other answers, the
    result is empty.
    """
    if data.lstrip()[:1] == b"{":
        return _fields_of_json(data)
    try:
        top = ET.fromstring(data) if data.lstrip()[:1] == b"<" else None
    except ET.ParseError:
        top = None
    return {} if top is None else fields_in(top)


def _fields_of_json(data: bytes) -> dict[str, str]:
    """Return {S3's name of the field: text} for code and message of Google's JSON error; empty for other JSON."""
    try:
        error = json.loads(data)["error"]
        reasons = error.get("errors") or [{}]
        return {"Code": str(reasons[0].get("reason", "")), "Message": str(error.get("message", ""))}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def fields_in(top: ET.Element) -> dict[str, str]:
    """Return {name of a child: text} for the direct children of an element."""
    return {local_name(child): child.text or "" for child in top}


def local_name(element: ET.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _store_error(number: int, text: str, place: str, code: str = "") -> StoreError:
    kinds = {errno.ENOENT: StoreFileNotFoundError, errno.EEXIST: StoreFileExistsError}
    error = kinds.get(number, StoreError)(number, without_identities(text), place)
    error.code = code
    return error


def without_identities(text: str) -> str:
    """Return a store's message in which names of accounts, keys and signatures are masked."""
    for pattern, instead in _IDENTITIES:
        text = pattern.sub(instead, text)
    return " ".join(text.split())


def refusal(action: str, error: OSError, remedy: str = "") -> UsageError:
    """Return the UsageError for an ``error`` of the store that prevents the start of a run."""
    message = (error.strerror or str(error)).rstrip(".")
    return UsageError(f"{action}: {message}.", remedy or (error.remedy if isinstance(error, StoreError) else _LOOK))


_NO_SUCH_RANGE = 416
# Messages of s3torchconnector, which gives no details, with the S3 code of each.
_WORDS = (
    ("Forbidden", 403, "AccessDenied"),
    ("throttled", 503, "SlowDown"),
    ("AWS_ERROR_S3_TOKEN_EXPIRED", 400, "ExpiredToken"),
    ("AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED", 403, "RequestTimeTooSkewed"),
    ("bucket does not exist", 404, "NoSuchBucket"),
    ("key does not exist", 404, "NoSuchKey"),
    ("object was not found", 404, "NoSuchKey"),
)
# A client's message about an unreadable answer; it contains only names of headers.
_ANSWER = re.compile(r"""Header "([A-Za-z][A-Za-z0-9-]{1,60})" not found""")
_STATUS = re.compile(r"response_status: (\d{3})")


def translate_error(error: BaseException, client: str, action: str, place: str) -> Exception:
    """Return an error of a client library as a StoreError, with the store's status and code if these are known.

    ``action`` is the operation, and ``place`` is the object of this operation. If the stored object is too short for
    the requested range, the result is an EOFError, because the stored object differs from the saved object.
    """
    status, code = _answer_of(error)
    if status == _NO_SUCH_RANGE or code == "InvalidRange":
        return EOFError(f"{action}: the store has no such range of the object")
    number = next((e.errno for e in _causes(error) if isinstance(e, OSError) and e.errno), None)
    if isinstance(error, FileNotFoundError):
        status, code = status or 404, code or "NoSuchKey"
    kind = type(error).__name__
    if lacking := _ANSWER.search(str(error)):
        kind = f"{kind}: the store's answer lacks the header {lacking[1]}"
    return of_library(client, status, code, kind, number or errno.EIO, action, place)


def _answer_of(error: BaseException) -> tuple[int, str]:
    """Return (status, code) of the store's answer that caused an error; (0, "") if no answer caused it."""
    for each in _causes(error):
        if isinstance(each, StoreError):
            return each.status, each.code
        answer = getattr(each, "response", None)
        if isinstance(answer, dict):
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return int(status), str(answer.get("Error", {}).get("Code", ""))
    text = str(error)
    if found := _STATUS.search(text):
        return int(found[1]), ""
    return next(((status, code) for words, status, code in _WORDS if words in text), (0, ""))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
