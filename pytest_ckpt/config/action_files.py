"""The file of commands that change the storage: ``--ckpt-actions``."""

from __future__ import annotations

from pytest_ckpt.facts.options import ACTIONS, OPTIONS
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.user_files import parse_toml, read_user_text, user_path

_OPTION = f"--ckpt-{ACTIONS}"
_TABLES = {
    table: {option.name: option for option in OPTIONS if option.parent == ACTIONS and table in option.owners}
    for table in dict.fromkeys(option.owners[0] for option in OPTIONS if option.parent == ACTIONS)
}


def read_actions(word: str) -> dict[str, str | None]:
    """Return the commands of a file, by the names of their options. Raises UsageError."""
    try:
        tables = parse_toml(read_user_text(user_path(word, _OPTION)))
    except OSError as error:
        raise UsageError(f"{_OPTION} {word}: it cannot be read: {error.strerror}.", "Name a TOML file.") from None
    except ValueError as error:
        raise UsageError(f"{_OPTION} {word}: it is not TOML: {error}.", _example()) from None
    given: dict[str, str | None] = {}
    for table, entries in tables.items():
        if table not in _TABLES or not isinstance(entries, dict):
            raise UsageError(
                f"{_OPTION} {word}: there is no table '{table}'{nearest(table, _TABLES)}.",
                f"Tables: {', '.join(_TABLES)}.",
            )
        for name, value in entries.items():
            if name not in _TABLES[table]:
                raise UsageError(
                    f"{_OPTION} {word}: [{table}] has no '{name}'{nearest(name, _TABLES[table])}.",
                    f"Entries: {', '.join(_TABLES[table])}.",
                )
            given[_TABLES[table][name].ini_name] = str(value)
    if not given:
        raise UsageError(f"{_OPTION} {word}: the file has no entries.", _example())
    return given


def _example() -> str:
    option = next(option for option in OPTIONS if option.parent == ACTIONS)
    return f'Example: {option.owners[0]} = {{ {option.name} = "{option.example}" }}.'
