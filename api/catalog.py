"""From the model's name in a request to what serves it: the deployment, its limits, its tokenizer and
defaults.

A revision is immutable, so what was read from its files is kept; the deployment's row is read for each
request.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from api.errors import ModelNotFound
from api.files import Files
from api.store import Store
from batching.prompt.profile import FACTS_NAME, SamplingDefaults, read_defaults, read_facts
from common.errors import Conflict, PlatformError
from storage import deployments, revisions
from storage.db import Connection
from storage.errors import DeploymentNotFound
from storage.records import Build, Deployment, Revision

_KEPT_REVISIONS = 64


class ModelNotReady(Conflict):
    """The deployment exists, but its revision can't be served (any more)."""

    code = "model_not_ready"


class BrokenRevision(PlatformError):
    """A ready revision whose tokenizer files can't be read: our fault, whoever made the checkpoint."""

    code = "broken_revision"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a revision's tokenizer directory says. `stop_ids` are all of config and generation_config."""

    tokenizer_dir: Path
    context_tokens: int
    vocab_size: int
    stop_ids: tuple[int, ...]
    defaults: SamplingDefaults


@dataclass(frozen=True, slots=True)
class Target:
    """Everything a request for one model needs to know before it is dispatched."""

    deployment: Deployment
    revision: Revision
    build: Build
    facts: Facts

    @property
    def context_tokens(self) -> int:
        """What the model was trained for, or what it was compiled for when that is less."""
        return min(
            self.facts.context_tokens, int(self.build.info.get("max_context", self.facts.context_tokens))
        )

    @property
    def fingerprint(self) -> str:
        """`system_fingerprint`: changes exactly when the compiled artifact does."""
        return f"fp_{self.build.build_key[:16]}"


class Catalog:
    """`cache_dir` keeps copies of tokenizer directories for stores that aren't a local disk."""

    def __init__(self, store: Store, files: Files, cache_dir: Path) -> None:
        self._store = store
        self._files = files
        self._cache_dir = cache_dir
        self._facts: OrderedDict[str, Facts] = OrderedDict()
        self._reading = asyncio.Lock()

    async def target(self, tenant_id: str, model: str) -> Target:
        """Raises: ModelNotFound, ModelNotReady, BrokenRevision."""
        deployment, revision = await self._store.read(_find, tenant_id, model)
        if revision.build is None:
            raise ModelNotReady(
                f"model {model!r} points to revision {revision.id}, which is {revision.state}"
            )
        return Target(deployment, revision, revision.build, await self._facts_of(revision.id, revision.build))

    async def targets(self, tenant_id: str) -> tuple[Target, ...]:
        """Every model the tenant may call, by name."""
        names = await self._store.read(_names, tenant_id)
        return tuple([await self.target(tenant_id, name) for name in names])

    async def _facts_of(self, revision_id: str, build: Build) -> Facts:
        known = self._facts.get(revision_id)
        if known is not None:
            self._facts.move_to_end(revision_id)
            return known
        async with self._reading:
            facts = await self._files.run(self._read, revision_id, build)
            self._facts[revision_id] = facts
            while len(self._facts) > _KEPT_REVISIONS:
                self._facts.popitem(last=False)
            return facts

    def _read(self, revision_id: str, build: Build) -> Facts:
        try:
            folder = self._files.blobs.fetch(build.tokenizer_prefix, self._cache_dir / revision_id)
            return load_facts(folder)
        except (OSError, ValueError, KeyError, TypeError, PlatformError) as error:
            raise BrokenRevision(f"the files of revision {revision_id} can't be read") from error


def load_facts(folder: Path) -> Facts:
    """Read `candela.json` and `generation_config.json` of a tokenizer directory; the gateway needs no more of
    it.

    Raises: OSError, ValueError, KeyError, TypeError: something is missing or is not what it should be.
    """
    own = read_facts(json.loads((folder / FACTS_NAME).read_text(encoding="utf-8")))
    generation = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    return Facts(folder, own.context_length, own.vocab_size, own.stop_ids, read_defaults(generation))


def _find(conn: Connection, tenant_id: str, model: str) -> tuple[Deployment, Revision]:
    try:
        deployment = deployments.get_deployment(conn, tenant_id, model)
    except DeploymentNotFound as error:
        raise ModelNotFound(model) from error
    return deployment, revisions.load_revision(conn, deployment.revision_id)


def _names(conn: Connection, tenant_id: str) -> tuple[str, ...]:
    return tuple(d.name for d in deployments.list_deployments(conn, tenant_id))
