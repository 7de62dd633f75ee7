"""Published builds: storing one, and finding one that makes a compile unnecessary.

Beside `artifact` and `tokenizer` each publication holds `build/facts.json`: what the compile reported, which
job made it and how long that took.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from storage.blobs import BlobStore, Publication, broken, build_prefix, find_publication, publish
from storage.records import Build
from worker.workspace import Workspace

log = structlog.get_logger()

_FACTS = "facts.json"
_MANIFEST = "manifest.json"
_POINTER = "publication.json"


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """`info` is the compile's own report. Only `job_id` is charged for its `compile_s`."""

    job_id: str
    compile_s: int
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PublishedBuild:
    """A build that replicas can load. `is_own`: this very call published it."""

    build: Build
    facts: BuildFacts
    is_own: bool


def publish_build(
    blobs: BlobStore, tenant_id: str, build_key: str, attempt: str, space: Workspace, facts: BuildFacts
) -> PublishedBuild:
    """Store what the compile left in `space.out`; the build that was published first stands."""
    facts_dir = space.root / "build"
    facts_dir.mkdir()
    (facts_dir / _FACTS).write_text(json.dumps(asdict(facts)))
    directories = {
        "artifact": space.out / "artifact",
        "tokenizer": space.out / "tokenizer",
        "build": facts_dir,
    }
    publication = publish(blobs, tenant_id, build_key, attempt, directories)
    return _published(blobs, publication)


def find_build(blobs: BlobStore, tenant_id: str, build_key: str) -> PublishedBuild | None:
    """The build of a key, or None. A pointer to a build that was deleted or damaged meanwhile is removed.

    Reads all of it: a damaged one would be found by every compile of an equal checkpoint, for ever.
    """
    publication = find_publication(blobs, tenant_id, build_key)
    if publication is None:
        return None
    lost = broken(blobs, publication.files)
    if not lost:
        return _published(blobs, publication)
    log.warning("build_dropped", build_key=build_key, broken=[file.key for file in lost])
    blobs.delete(f"{build_prefix(tenant_id, build_key)}/{_POINTER}")
    return None


def _listed(publication: Publication) -> list[tuple[str, str, int, str]]:
    """Folder, name, size and sha256 of the files that no manifest lists: itself, and the tokenizer's."""
    found = []
    for file in publication.files:
        folder, _, name = file.key.removeprefix(f"{publication.prefix}/").partition("/")
        if folder == "tokenizer" or (folder, name) == ("artifact", _MANIFEST):
            found.append((folder, name, file.size_bytes, file.sha256))
    return found


def _published(blobs: BlobStore, publication: Publication) -> PublishedBuild:
    with blobs.open(f"{publication.directory('build')}/{_FACTS}") as file:
        facts = BuildFacts(**json.load(file))
    build = Build(
        publication.build_key,
        publication.directory("artifact"),
        publication.directory("tokenizer"),
        {**facts.info, "files": _listed(publication)},
    )
    return PublishedBuild(build, facts, publication.is_winner)
