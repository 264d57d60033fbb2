"""What a client of others says went wrong, in words of ours: its own may repeat keys, tokens and names of accounts."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from pytest_ckpt.targets.objects.errors import StoreError, of_library

_NO_SUCH_RANGE = 416
# Words of s3torchconnector, which tells no more, and what S3 calls it.
_WORDS = (
    ("Forbidden", 403, "AccessDenied"),
    ("throttled", 503, "SlowDown"),
    ("AWS_ERROR_S3_TOKEN_EXPIRED", 400, "ExpiredToken"),
    ("AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED", 403, "RequestTimeTooSkewed"),
    ("bucket does not exist", 404, "NoSuchBucket"),
    ("key does not exist", 404, "NoSuchKey"),
    ("object was not found", 404, "NoSuchKey"),
)
# What a client says of an answer that it cannot read: names of headers alone, and no value.
_ANSWER = re.compile(r"""Header "([A-Za-z][A-Za-z0-9-]{1,60})" not found""")
_STATUS = re.compile(r"response_status: (\d{3})")


def in_our_words(error: BaseException, client: str, what: str, place: str) -> Exception:
    """Return an error of a client, of ``what`` it did to a ``place``, with a status and a code that are known alone.

    It is an EOFError where an object has no such part: what was saved is not what is there.
    """
    status, code = _said(error)
    if status == _NO_SUCH_RANGE or code == "InvalidRange":
        return EOFError(f"{what}: the store has no such range of the object")
    number = next((e.errno for e in _causes(error) if isinstance(e, OSError) and e.errno), None)
    if isinstance(error, FileNotFoundError):
        status, code = status or 404, code or "NoSuchKey"
    kind = type(error).__name__
    if lacking := _ANSWER.search(str(error)):
        kind = f"{kind}: the store's answer lacks the header {lacking[1]}"
    return of_library(client, status, code, kind, number or errno.EIO, what, place)


def _said(error: BaseException) -> tuple[int, str]:
    """Return status and code of a store's answer; 0 and nothing where there is none."""
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
