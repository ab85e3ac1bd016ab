"""Reads the secrets of the configuration from the environment, and masks them in all output."""

from __future__ import annotations

import copy
import json
import re
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from iceberg_maint.config.value_text import type_name
from iceberg_maint.errors import ConfigurationError, IcebergMaintError

MASK = "***"
_SECRET_WORDS = r"secret|passw(?:or)?d|\bpwd\b|token|credential|(?:access|account)[._-]?key|authorization"  # noqa: S105
_SECRET_KEY = re.compile(_SECRET_WORDS, re.IGNORECASE)
_STEMS_OF_SECRET_WORDS = (
    "secret",
    "passw",
    "pwd",
    "token",
    "credential",
    "access",
    "account",
    "authorization",
)
"""Each secret word contains one of these stems."""
# `key=value`, `"key": "value"` and HTTP's `Authorization: Bearer value`, as messages contain them. In JSON of a message the
# quotes have backslashes. A message may be cut off before the closing quote.
_KEYED = re.compile(
    rf"(?P<key>[\w.-]*(?:{_SECRET_WORDS})[\w.-]*)"
    r"(?P<between>\\*[\"']\s*[=:]\s*|\s*=\s*|(?<=authorization):\s*(?:bearer\s+|basic\s+)?)"
    r"(?P<value>(?P<quote>[\"'])(?:[^\\]|\\[\s\S])*?(?P=quote)|(?P<escaped>\\+[\"'])[\s\S]*?(?<!\\)(?P=escaped)"
    r"|\\*[\"'][\s\S]*|[^\s,;&\"'(){}\[\]]+)",
    re.IGNORECASE,
)
# Settings about a secret that are not secrets themselves.
_ABOUT_SECRET = re.compile(
    r"(enabled|provider(\.[\w-]+)?|uri|url|endpoint|type|class|impl|in-ms|expires-at(-ms)?|seconds|duration)$",
    re.IGNORECASE,
)
# Keys and signatures of Azure within an address or a connection string.
_AZURE_SECRET = re.compile(r"AccountKey=|SharedAccessSignature=|[?&]sig=", re.IGNORECASE)
_NO_SECRET_VALUE = re.compile(r"true|false|[0-9]{1,6}|", re.IGNORECASE)


@dataclass(slots=True)
class Resolver:
    """Resolves `{env: NAME}` from `environ` and remembers the values, so that they can be masked.

    `secrets` are masked in all output, `values` in the errors of the configuration: a value in the wrong place may be a
    secret whatever its form.
    """

    environ: Mapping[str, str] = field(repr=False)
    secrets: set[str] = field(default_factory=set, repr=False)
    values: set[str] = field(default_factory=set, repr=False)

    def text(self, value: object, path: str) -> str:
        """Returns the setting's text.

        Raises ConfigurationError ICM-100 for a variable that is not set or a value that is not text,
        number or flag. Raises ICM-118 for a secret written in the file.
        """
        if isinstance(value, Mapping):
            return self._from_environment(value, path)
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, (str, int, float)):
            raise ConfigurationError(
                "ICM-100",
                f"{path} is {type_name(value)}. It must be text or {{env: NAME}}.",
                "write text or {env: NAME}.",
            )
        text = str(value)
        if "\0" in text:
            raise ConfigurationError("ICM-100", f"{path} contains a NUL character.", "remove the character.")
        refuse_inline_secret(path, text)
        return text

    def _from_environment(self, value: Mapping[object, object], path: str) -> str:
        name = value.get("env")
        if set(value) != {"env"} or not isinstance(name, str):
            keys = ", ".join(sorted(map(str, value)))
            raise ConfigurationError(
                "ICM-100",
                f"{path} has the keys {keys}. A reference must have the form {{env: NAME}}.",
                "write {env: NAME}.",
            )
        if name not in self.environ:
            raise ConfigurationError(
                "ICM-100",
                f"{path} refers to the environment variable {name}, which is not set.",
                f"set {name}.",
            )
        resolved = self.environ[name]
        self.secrets.update(secret_parts(resolved, path))
        # A check may have removed the slashes at the end before it refuses the value.
        self.values.update({resolved, resolved.rstrip("/")} - {""})
        return resolved


def refuse_inline_secret(path: str, text: str) -> None:
    """Raises ConfigurationError ICM-118 if `text`, written in the file at `path`, is a secret."""
    fix = "write {env: NAME}, and set that variable in the environment of the program."
    key = path.rsplit(".properties.", 1)[-1].rsplit("spark.conf.", 1)[-1]
    key = re.sub(r"^catalogs\.[^.]*\.", "", key)  # the name of a catalog says nothing about its settings
    about = _ABOUT_SECRET.search(key) or _NO_SECRET_VALUE.fullmatch(text)
    if (_SECRET_KEY.search(key) and not about) or _AZURE_SECRET.search(text):
        raise ConfigurationError(
            "ICM-118", f"{path} is a secret. Secrets must not be written in the file.", fix
        )
    if _password_of(text) is not None:
        raise ConfigurationError(
            "ICM-118",
            f"{path} is an address that contains a password. Secrets must not be written in the file.",
            fix,
        )


def secret_parts(value: str, path: str) -> set[str]:
    """Returns the texts to mask for a value from the environment: the password of an address, else the
    whole value.

    An address or path without a password is not a secret: masking it would make messages useless. Short
    values are masked as well, but only as whole words (see `redact`).
    """
    password = _password_of(value)
    if password is not None:
        # The password as written in the address, and as a driver or a user would write it.
        return {password, quote(password, safe=""), unquote(password)}
    plain_address = re.fullmatch(r"[a-z][a-z0-9+.-]*://\S*|/\S*", value) is not None
    named_secret = _SECRET_KEY.search(path) is not None
    return set() if not value or (plain_address and not named_secret) else {value}


def redact(text: str, secrets: Collection[str]) -> str:
    """Returns `text` with every secret replaced by `***`: the known secrets, passwords inside addresses,
    and the value of every key that names a secret."""
    forms = {form for secret in secrets for form in _forms(secret)}
    for secret in sorted(forms, key=lambda s: (-len(s), s)):
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    if "@" in text:
        text = re.sub(r"(://[^\s:/@]*):[^\s/@]+@", rf"\1:{MASK}@", text)
    # Only a name with a secret word matches, and a search for the words is fast.
    return _KEYED.sub(_masked_value, text) if _has_secret_word(text) else text


@cache
def _forms(secret: str) -> frozenset[str]:
    """The secret as it is, as Python writes it, in JSON, and in JSON within JSON."""
    plain = {secret, repr(secret)[1:-1], ascii(secret)[1:-1]}
    once = plain | {json.dumps(secret, ensure_ascii=a)[1:-1] for a in (True, False)}
    return frozenset(once | {json.dumps(s, ensure_ascii=a)[1:-1] for s in once for a in (True, False)})


def _has_secret_word(text: str) -> bool:
    """Whether a secret word is in the text. In a document of a large fleet the expression takes 80 ns per character, a
    search for the stems 3 ns. The expression also finds letters outside ASCII that count as equal, such as the long s."""
    if text.isascii():
        lower = text.lower()
        if not any(stem in lower for stem in _STEMS_OF_SECRET_WORDS):
            return False
    return _SECRET_KEY.search(text) is not None


def redact_error(error: Exception, secrets: Collection[str]) -> Exception:
    """Returns an error that may be logged with its traceback. It is the same error if neither it nor its
    causes contain a secret. Otherwise it is a new error with the same text, secrets masked, and without
    the causes."""
    formatted = "".join(traceback.format_exception(error))
    if redact(formatted, secrets) == formatted:
        return error
    if isinstance(error, IcebergMaintError):
        masked = copy.copy(error)
        masked.message, masked.fix = redact(error.message, secrets), redact(error.fix, secrets)
        return masked
    return RuntimeError(redact(f"{type(error).__name__}: {error}", secrets))


def _masked_value(match: re.Match[str]) -> str:
    value = match["value"]
    bare = value.strip("\\\"'")
    if _ABOUT_SECRET.search(match["key"]) or _NO_SECRET_VALUE.fullmatch(bare):
        return match[0]
    quote_mark = match["quote"] or match["escaped"] or ""
    return f"{match['key']}{match['between']}{quote_mark}{MASK}{quote_mark}"


def _password_of(text: str) -> str | None:
    if "://" not in text:
        return None
    try:
        parts = urlsplit(text)
        if parts.password:
            return parts.password
    except ValueError:
        return None
    for key, value in parse_qsl(parts.query):
        if _SECRET_KEY.search(key) and value:
            return value
    return None
