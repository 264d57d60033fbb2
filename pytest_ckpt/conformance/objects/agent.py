"""``python -m pytest_ckpt.conformance.objects.agent PLACE``: the second client of a check of an object store.

PLACE is a `SessionSpec` as JSON. A request names ``module:function`` of this package. The function receives the
session, the name of an object, and the details of the request.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from pytest_ckpt.conformance.agent import answer_requests
from pytest_ckpt.conformance.objects.session import Session, SessionSpec
from pytest_ckpt.facts.codec import from_plain


def main() -> int:
    """Answer requests until the connection ends; return the exit code."""
    session = Session(from_plain(SessionSpec, json.loads(sys.argv[1])))

    def function_of(action: str) -> Callable[..., Any]:
        module, _, function = action.partition(":")
        checks = importlib.import_module(f"{__package__}.{module}")
        return functools.partial(getattr(checks, function), session)

    return answer_requests(function_of)


if __name__ == "__main__":
    sys.exit(main())
