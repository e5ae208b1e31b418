"""The schema's messages in Google's own implementation: the peer that this project's decoder is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = Path(__file__).parents[2]
COMPILED = ROOT / "src" / "zerolayer" / "wire" / "inference.binpb"
HEALTH = COMPILED.with_name("health.binpb")

_files = descriptor_pb2.FileDescriptorSet.FromString(COMPILED.read_bytes())
_pool = descriptor_pool.DescriptorPool()
for _file in _files.file:
    _pool.Add(_file)


def message(name: str) -> Any:
    """The class of ``zerolayer.v1.<name>``."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"zerolayer.v1.{name}"))
