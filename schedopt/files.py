"""Reading and writing the JSON files at both ends; every way a file can be broken ends here.

A file is read as strict JSON: UTF-8, no NaN or infinity, no key twice, no absurd size or depth.
`Document` is the base of every file format: unknown fields are refused with a hint, and all
faults of a file are reported together.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from schedopt.errors import Fault, InputError, did_you_mean

__all__ = [
    "Document",
    "Part",
    "check_writable",
    "dumps",
    "parse_json",
    "read_json",
    "read_text",
    "sha256",
    "write_text",
]

MAX_FILE_BYTES = 512 * 2**20
MAX_DEPTH = 64
MOST_ALIKE = 8
"""More faults of one kind in one field are counted, not listed."""

_ROWS = "rows: [[0, 1, …]]"


class Part(BaseModel):
    """A piece of a document: immutable, exact types, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Document(Part):
    """A file format. Subclasses start with literal ``format`` and ``version`` fields."""

    FORMAT: ClassVar[str]

    @classmethod
    def parse(cls, data: object, source: str) -> Self:
        """Validate parsed JSON.

        Raises
        ------
        InputError
            With every fault of the document.
        """
        faults = []
        if isinstance(data, dict):  # code may leave these out, a file may not
            faults = [
                Fault(x, "nothing", "this field") for x in ("format", "version") if x not in data
            ]
        try:
            document = cls.model_validate(data)
        except ValidationError as error:
            faults += [fault for details in error.errors() for fault in _faults(cls, details)]
        if faults:
            raise InputError(source, _grouped(faults))
        return document

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file of this format; ``-`` is standard input."""
        return cls.parse(read_json(path), str(path))

    def text(self) -> str:
        """Return the document as JSON text, the same bytes for equal documents."""
        return dumps(self.model_dump(mode="json", exclude_none=True))

    def write(self, path: Path | str) -> None:
        """Write the document, whole or not at all; ``-`` is standard output."""
        write_text(path, self.text())

    def digest(self) -> str:
        """Return the sha256 of the document's text."""
        return sha256(self.text())


def sha256(text: str | bytes) -> str:
    """Return the hexadecimal sha256 of a text."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def dumps(data: object) -> str:
    """Write JSON: one line per top-level field, and one per element of its lists of objects."""
    if not isinstance(data, Mapping):
        return json.dumps(data, allow_nan=False) + "\n"
    fields = [f" {json.dumps(key)}: {_field(value)}" for key, value in data.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _field(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in value)
        return f"[\n  {rows}\n ]"
    return json.dumps(value, allow_nan=False)


def read_json(path: Path | str) -> object:
    """Read strict JSON from a file or, for ``-``, from standard input.

    Raises
    ------
    InputError
        When the file is missing, too large, not UTF-8 or not strict JSON.
    """
    source = str(path)
    return parse_json(_read_bytes(source, "a JSON file"), source)


def parse_json(raw: bytes, source: str) -> object:
    """Read strict JSON from bytes; see `read_json`."""
    text = _decode(raw, source, "JSON")
    _refuse_depth(text, source)
    try:
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, source),
            parse_constant=lambda name: _not_json(name, text, source),
            parse_float=lambda digits: _finite(digits, text, source),
            parse_int=lambda digits: _integer(digits, text, source),
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        near = text[error.pos : error.pos + 20].replace("\n", " ")
        found = f"{near!r}" if near.strip() else "the end of the file"
        cut_off = not near.strip() or error.msg.startswith("Unterminated string")
        hint = "The file looks cut off." if cut_off else ""
        raise InputError(source, Fault(place, found, f"JSON ({error.msg})", hint)) from None


def read_text(path: Path | str, what: str) -> str:
    """Read UTF-8 text from a file or, for ``-``, from standard input.

    Parameters
    ----------
    what : str
        What it should hold, for the error of an empty file.

    Raises
    ------
    InputError
        When the file is missing, empty, too large or not UTF-8.
    """
    source = str(path)
    return _decode(_read_bytes(source, what), source, what)


def check_writable(path: Path | str) -> None:
    """Refuse a place that can't be written before an hour is spent on what goes there.

    Raises
    ------
    InputError
        As `write_text` would.
    """
    if str(path) == "-":
        return
    target = Path(path)
    try:
        if _special(target):
            return
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=_followed(target).parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from None


def _special(target: Path) -> bool:
    """Whether a path is a device or a pipe, to be written to and never replaced."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _followed(target: Path) -> Path:
    """Follow links; unlike `Path.resolve`, leave those that lead nowhere."""
    return Path(os.path.realpath(target))


def _unwritable(path: Path | str, error: OSError) -> InputError:
    found = error.strerror or str(error)
    return InputError(str(path), Fault("", found, "a place that can be written"))


def write_text(path: Path | str, text: str) -> None:
    """Write a text file whole or not at all; ``-`` is standard output.

    A link is followed, and a device or pipe is written to: neither is replaced.

    Raises
    ------
    InputError
        When the place can't be written.
    """
    if str(path) == "-":
        sys.stdout.write(text)
        return
    target = Path(path)
    try:
        if _special(target):
            target.write_text(text, encoding="utf-8")
            return
        target = _followed(target)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise _unwritable(path, error) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read_bytes(source: str, what: str) -> bytes:
    small = f"{what} of at most {MAX_FILE_BYTES >> 20} MiB"
    try:
        if source == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(source).open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                if size > MAX_FILE_BYTES:
                    raise InputError(source, Fault("", f"{size} bytes", small))
                raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        found = "no such file" if missing else error.strerror or str(error)
        raise InputError(source, Fault("", found, what)) from None
    except ValueError as error:  # a NUL in the name
        raise InputError(source, Fault("", str(error), what)) from None
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(source, Fault("", f"more than {MAX_FILE_BYTES} bytes", small))
    return raw


def _decode(raw: bytes, source: str, what: str) -> str:
    if not raw.strip():
        raise InputError(source, Fault("", "an empty file", what))
    try:
        text = raw.decode("utf-8-sig")
        at = raw.find(b"\0")  # what other encodings are full of
    except UnicodeDecodeError as error:
        at = error.start
    if at < 0:
        return text
    hint = "Is it compressed, or saved in another encoding?"
    fault = Fault(f"byte {at}", f"byte 0x{raw[at]:02x}", "UTF-8 text", hint)
    raise InputError(source, fault)


def _refuse_depth(text: str, source: str) -> None:
    """Refuse absurd nesting before the recursive parser meets it (strings may only over-count)."""
    depth = 0
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    for match in re.finditer(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, match.start()) + 1
                fault = Fault(f"line {line}", f"nesting deeper than {MAX_DEPTH}", "a flat document")
                raise InputError(source, fault)
        elif token in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        hint = "Which one is right? Delete the other."
        raise InputError(source, Fault(twice, "the same key twice", "each key once", hint))
    return result


def _not_json(name: str, text: str, source: str) -> NoReturn:
    hint = "Leave out what was not measured."
    raise InputError(source, Fault(_position(name, text), name, "a finite number", hint))


def _finite(digits: str, text: str, source: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        place = _position(digits, text)
        raise InputError(source, Fault(place, digits[:20], "a finite number"))
    return value


def _integer(digits: str, text: str, source: str) -> int:
    if len(digits) > 40:
        place = _position(digits, text)
        raise InputError(source, Fault(place, f"{digits[:20]}…", "an integer up to 2^62"))
    return int(digits)


def _position(token: str, text: str) -> str:
    """Say where a token first stands outside strings, and of which key it is the value."""
    key = ""
    for match in re.finditer(r'"((?:[^"\\]|\\.)*+)"(\s*:)?|[^\s,:\[\]{}"]+', text):
        if match[2]:
            key = f" ({match[1]})"
        if match[0] == token:
            before = text[: match.start()]
            line, column = before.count("\n") + 1, match.start() - before.rfind("\n")
            return f"line {line}, column {column}{key}"
    return ""


def _faults(document: type[BaseModel], details: ErrorDetails) -> list[Fault]:
    """Turn one pydantic error into words for the person who wrote the file."""
    place, kind = _place(details["loc"]), details["type"]
    if kind == "extra_forbidden":
        name = str(details["loc"][-1])
        hint = did_you_mean(name, _known_fields(document, details["loc"]))
        return [Fault(place, "an unknown field", "only documented fields", hint)]
    if kind == "missing":
        return [Fault(place, "nothing", "this field")]
    if kind == "value_error":
        error = cast(ValueError, details.get("ctx", {}).get("error"))
        if all(isinstance(argument, Fault) for argument in error.args):
            return [replace(fault, place=_joined(place, fault.place)) for fault in error.args]
        return [Fault(place, _short(details["input"]), str(error))]
    expected = details["msg"].removeprefix("Input should be ")
    if kind == "dict_type":
        expected = "an object"
    if kind == "model_type":
        expected = _example(document, details.get("ctx", {})["class_name"])
    if kind == "list_type" and isinstance(details["loc"][-1], int):
        found, expected = "a list of something else", "a list of rows"
        return [Fault(_place(details["loc"][:-1]), found, expected, _ROWS)]
    return [Fault(place, _short(details["input"]), expected)]


def _grouped(faults: list[Fault]) -> list[Fault]:
    """Let one fault stand for many of the same kind in the same field, and say how many."""
    kinds: dict[str, list[Fault]] = {}
    for fault in dict.fromkeys(faults):
        kind = re.sub(r"\d+", "#", f"{fault.place}: {fault.expected}")
        kinds.setdefault(kind, []).append(fault)
    result = []
    for same in kinds.values():
        if len(same) <= MOST_ALIKE:
            result += same
        else:
            more = f"So are {len(same) - 1} more of this field."
            hint = f"{same[0].hint} {more}".strip()
            result.append(replace(same[0], hint=hint))
    return result


def _place(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.startswith("<"):  # the tag of a union
            text += f".{part}" if text else part
    return text


def _joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer and inner else outer or inner


@cache
def _schema(document: type[BaseModel]) -> dict[str, Any]:
    return document.model_json_schema()


def _example(document: type[BaseModel], name: str) -> str:
    """Show what an object of a format looks like, or name the fields it can't lack."""
    schema = _schema(document)
    part = schema.get("$defs", {}).get(name, schema)
    if part.get("examples"):
        example = part["examples"][0]  # its keys sorted; people write them in another order
        ordered = {key: example[key] for key in part["properties"] if key in example}
        return f"an object such as {json.dumps(ordered)}"
    return f"an object with {', '.join(part.get('required', []))}"


def _short(value: object) -> str:
    """Show a value from a file as it stands there, or how large it is."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _known_fields(document: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Collect the names that may stand at the level of an unknown field."""
    schema = _schema(document)
    names: set[str] = set(schema.get("properties", {}))
    if len(loc) > 1:
        for part in schema.get("$defs", {}).values():
            names |= set(part.get("properties", {}))
    return names
