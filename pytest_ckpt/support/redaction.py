"""Masks secrets in the files of a run. All rules for recognizing secrets are here.

A secret is the user part of a URL, or the value of a named field whose name suggests a secret. Named fields are
environment variables, options and query fields. A secret is masked in all files of the run, including messages of a
launcher or a library.

Numbers, field names and words of this package are never changed, because a change would destroy evidence. Some values
are therefore masked only where a secret is expected, such as after ``--password``. These are short values, and values
that are a part of such a word.
"""

from __future__ import annotations

import functools
import re
import shlex
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HIDDEN = "***"
# Masking shorter values everywhere would destroy other text, so they are masked only where they are given.
_SHORTEST, _SHORTEST_NUMBER = 8, 6
# Longer texts rarely occur twice.
_SHORT_TEXT = 120

_TELLING = re.compile(
    r"password|passwd|passphrase|passcode|secret|credential|authorization|api_?key|access_?key|token$|key$",
    re.IGNORECASE,
)
_TELLING_PARTS = frozenset({"pass", "pwd", "auth", "sig", "signature", "token", "key"})
_NOT_SECRET = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})

_URL = re.compile(r"(?P<before>\b[a-zA-Z][\w+.-]*://)(?P<value>[^\s/@'\"]*|[^\s/@'\"]*:(?!\d+/)[^\s@'\"]*)(?P<after>@)")
# user:password@host without a scheme; a list of Lustre's nids (10.0.0.1@o2ib:10.0.0.2@o2ib:/fs) does not match.
_LOGIN = re.compile(r"(?P<before>(?<![^\s'\"=,;(]))(?P<value>[^\s/:@'\"=,;(]+:[^\s/@'\"]+)(?P<after>@(?=[\w\[]))")
_OPTION = re.compile(
    r"(?P<before>(?<![\w-])-{1,2}(?P<name>[\w-]+)(?:=|\s+))(?P<value>(?!-)'[^']*'|(?!-)\"[^\"]*\"|(?!-)[^\s'\"]+)"
)
_ASSIGNED = re.compile(r"(?P<before>(?<![\w-])(?P<name>[\w.-]+)(?:=|:\s))(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;&'\"]+)")
_BEARER = re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)(?P<value>[\w.~+/=-]{6,})")
_USER = re.compile(r"(?P<before>(?<!\S)(?:-u|--user)[=\s]\s*)(?P<value>[^\s:]+:\S+)")
_SSHPASS = re.compile(r"(?P<before>\bsshpass\s+-p\s*)(?P<value>\S+)")
_PATTERNS = (_URL, _LOGIN, _BEARER, _OPTION, _ASSIGNED, _USER, _SSHPASS)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Masks the given secrets, the longest first. Also masks logins, and values after names that suggest a secret.

    A given secret that consists of digits is masked only as a whole word.
    """

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str], texts: Iterable[str], file_vocabulary: Iterable[str] = ()) -> Redactor:
        """Return a redactor for the secrets of an environment, and for secrets in ``texts``, such as commands.

        ``file_vocabulary`` are the words of the run's own files. A secret that is a part of one of these words is
        masked only where it was given, for example after ``--password``. If such a secret were masked everywhere, the
        files would be unreadable.
        """
        found = {value for name, value in environment.items() if name not in _NOT_SECRET and may_be_secret(name)}
        found |= {secret for text in texts for secret in _secrets_in(text)}
        words = "\n".join(file_vocabulary)
        long = {s for s in found if _is_long(s) and s != HIDDEN and s not in words}
        return cls(tuple(sorted(long, key=lambda s: (-len(s), s))))

    def text(self, text: str) -> str:
        """Return a text with all secrets masked."""
        return _known(self, text) if len(text) <= _SHORT_TEXT else self._cleaned(text)

    def _cleaned(self, text: str) -> str:
        for secret in self.secrets:
            if secret in text:
                whole = rf"(?<![\w.]){re.escape(secret)}(?![\w.])"
                text = re.sub(whole, HIDDEN, text) if secret.isdigit() else text.replace(secret, HIDDEN)
        for pattern in _PATTERNS:
            text = pattern.sub(_hide, text)
        return text

    def plain(self, value: Any) -> Any:
        """Return a value of plain JSON types with all secrets masked.

        In a list, the item after an option such as ``--password`` is masked.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self.plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            before = [None, *value]
            return [
                HIDDEN if _awaits(last, item) else self.plain(item) for last, item in zip(before, value, strict=False)
            ]
        return value


@functools.lru_cache(maxsize=4096)
def _known(redactor: Redactor, text: str) -> str:
    """Return a short text with all secrets masked.

    Results are cached, because messages of ranks repeat the same text.
    """
    return redactor._cleaned(text)


def may_be_secret(name: str) -> bool:
    """Return whether a variable, option or field with this name probably contains a secret."""
    return bool(_TELLING.search(name)) or bool(_TELLING_PARTS & set(re.split(r"[\W_]+", name.lower())))


def _secrets_in(text: str) -> Iterator[str]:
    """Yield the secrets in a command, URL or option, including a quoted command within a command."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            if _is_secret(match):
                value = match["value"].strip("'\"")
                yield value
                if pattern in (_URL, _LOGIN, _USER):
                    yield from value.split(":", 1)[1:]
                    yield urllib.parse.unquote(value.partition(":")[2])
    try:
        words = shlex.split(text)
    except ValueError:
        return
    for last, word in zip(["", *words], words, strict=False):
        if _awaits(last, word):
            yield word
        name, is_option, value = word.partition("=")
        if is_option and may_be_secret(name.lstrip("-")):
            yield value
        if word != text:
            yield from _secrets_in(word)


def _awaits(last: Any, item: Any) -> bool:
    """Return whether ``last`` is an option that expects a secret, and ``item`` is the value of this option."""
    if not isinstance(last, str) or not isinstance(item, str) or not last.startswith("-") or "=" in last:
        return False
    return may_be_secret(last.lstrip("-")) and not item.startswith("-") and " " not in last


def _is_secret(match: re.Match[str]) -> bool:
    named = match.groupdict()
    if HIDDEN in match["value"] or not match["value"]:
        return False
    return "name" not in named or may_be_secret(named["name"])


def _hide(match: re.Match[str]) -> str:
    if not _is_secret(match):
        return match[0]
    return match["before"] + HIDDEN + (match.groupdict().get("after") or "")


def _is_long(secret: str) -> bool:
    return len(secret) >= (_SHORTEST_NUMBER if secret.isdigit() else _SHORTEST)
