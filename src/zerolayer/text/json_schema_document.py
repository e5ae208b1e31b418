"""One JSON schema as a whole: what its references point to, and how much work it may cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from zerolayer.text.json_schema import MAX_NODES, Schema, SchemaRefused

MAX_LOOKS: Final = 30_000  # schemas looked at, most of them several times: some 50 ms
_HOPS: Final = 16  # references that lead to references


class SchemaDocument:
    """The schema ``root`` (of ``read_schema``), with an account of what is spent on it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._looks = 0
        self._parts = 0

    def look(self) -> None:
        """Counts a schema that is looked at. Raises SchemaRefused when these were too many."""
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise SchemaRefused("its conditions take too long to compare")

    def write(self, parts: int) -> None:
        """Counts parts of the schema that stands for this one. Raises SchemaRefused when these were too many."""
        self._parts += parts
        if self._parts > MAX_NODES:
            raise SchemaRefused("its conditions have too many cases")

    def resolve(self, reference: str) -> Schema:
        """What ``#/...`` points to, through further references. Raises SchemaRefused."""
        for _ in range(_HOPS):
            self.look()
            found = self._at(reference)
            if isinstance(found, bool) or found.keys() != {"$ref"}:
                return found
            reference = found["$ref"]
        raise SchemaRefused("a '$ref' in it points only to itself")

    def settled(self, schema: Schema) -> Schema:
        """The schema itself, or where it is nothing but a reference, what that points to."""
        if isinstance(schema, bool) or schema.keys() != {"$ref"}:
            return schema
        return self.resolve(schema["$ref"])

    def parts(self, schema: Schema, *keywords: str) -> Iterator[dict[str, Any]]:
        """The schema, those it refers to and those in its ``keywords``, each once."""
        waiting, seen = [schema], set[str]()
        while waiting:
            part = waiting.pop()
            self.look()
            if isinstance(part, bool):
                continue
            yield part
            for keyword in keywords:
                waiting += part.get(keyword, ())
            if "$ref" in part and part["$ref"] not in seen:
                seen.add(part["$ref"])
                waiting.append(self.resolve(part["$ref"]))

    def _at(self, reference: str) -> Schema:
        found: Any = self._root
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaRefused("a '$ref' in it points nowhere that can be followed (#/...)")
        for step in reference.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, dict | bool):
            raise SchemaRefused("a '$ref' in it points nowhere")
        return found
