"""Stored bytes of a build that changed are never served: real replicas, and the control loop around them."""

from __future__ import annotations

import hashlib
import os
import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.clock import wall_clock
from common.wire import StartFailed
from compiler.artifact import open_artifact
from compiler.codegen.toolchain import Toolchain, find_compiler
from scheduler.launchers import (
    BecameReady,
    Exited,
    LauncherEvent,
    ProcessLauncher,
    ProcessLauncherConfig,
    ReplicaSpec,
)
from storage import deployments
from storage.blobs import DiskBlobs
from storage.records import Build, Deployment
from storage.revisions import load_revision, move_builds
from tests.support.fake_launcher import crashed
from tests.support.serving import SERVING_INFO, deployed, published
from tests.support.stage import SCALABLE, Stage
from tests.support.tiny_program import write_tiny_artifact
from tests.support.tiny_tokenizer import write_tiny_tokenizer

ROOT = Path(__file__).parents[3]
Events = queue.Queue[LauncherEvent]
DAMAGED = StartFailed("artifact_damaged", "the compiled model is damaged (weights/0.bin): upload it again")


def flip(path: Path) -> None:
    """One bit in the middle, and no other trace, as a failing disk does it."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def spec(short_dir: Path, tmp_path: Path) -> ReplicaSpec:
    artifact, tokenizer = short_dir / "artifact", short_dir / "tokenizer"
    write_tiny_artifact(artifact, Toolchain(find_compiler(), tmp_path))
    tokenizer.mkdir()
    write_tiny_tokenizer(tokenizer)
    return ReplicaSpec("rep_0000000001", "dep_1", artifact, tokenizer, 8, 2, 4, 1 << 30)


@pytest.fixture
def events() -> Events:
    return queue.Queue()


@pytest.fixture
def launcher(short_dir: Path, events: Events) -> Iterator[ProcessLauncher]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    config = ProcessLauncherConfig(short_dir / "run", short_dir / "logs", environment)
    launcher = ProcessLauncher(config, events.put, wall_clock)
    yield launcher
    launcher.close(grace_s=5.0)


def test_a_whole_artifact_becomes_ready(launcher: ProcessLauncher, events: Events, spec: ReplicaSpec) -> None:
    launcher.launch(spec)
    assert isinstance(events.get(timeout=60), BecameReady)


def test_a_flipped_bit_in_the_weights_is_named_and_never_served(
    launcher: ProcessLauncher, events: Events, spec: ReplicaSpec
) -> None:
    weights = open_artifact(spec.artifact_dir).manifest.weights[0].file
    flip(spec.artifact_dir / weights)
    launcher.launch(spec)
    event = events.get(timeout=60)
    assert isinstance(event, Exited), event
    assert event.is_crash
    assert event.failure is not None
    assert event.failure.code == "artifact_damaged"
    assert weights in event.failure.message


def test_a_flipped_bit_in_the_kernels_has_the_same_name(
    launcher: ProcessLauncher, events: Events, spec: ReplicaSpec
) -> None:
    (kernels,) = (spec.artifact_dir / "kernels").iterdir()
    flip(kernels)
    launcher.launch(spec)
    event = events.get(timeout=60)
    assert isinstance(event, Exited), event
    assert event.failure is not None
    assert event.failure.code == "artifact_damaged"


@pytest.fixture
def chat(stage: Stage) -> Deployment:
    return deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)


def listed(blobs: DiskBlobs, build: Build) -> dict[str, object]:
    """The facts of a build whose tokenizer is listed."""
    with blobs.open(f"{build.tokenizer_prefix}/tokenizer.json") as stored:
        content = stored.read()
    digest = hashlib.sha256(content).hexdigest()
    return {**SERVING_INFO, "files": [["tokenizer", "tokenizer.json", len(content), digest]]}


def test_a_damaged_artifact_is_shown_on_its_deployment(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    stage.tick()
    stage.loop.handle(replace(crashed(stage.launcher.last, stage.clock.now), failure=DAMAGED))
    stage.tick(0.0)
    failure = stage.deployment(chat).failure
    assert failure is not None
    assert (failure.code, failure.message) == (DAMAGED.code, DAMAGED.message)


def test_a_build_that_was_made_anew_starts_at_once(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    for _ in range(20):
        stage.tick(0.5)
        stage.loop.handle(replace(crashed(stage.launcher.last, stage.clock.now), failure=DAMAGED))
    count = len(stage.launcher.specs)
    with stage.database.write() as conn:
        old = load_revision(conn, chat.revision_id).require_build()
        anew = replace(published(stage.blobs, stage.tenant, "anew", {}), build_key=old.build_key)
        assert move_builds(conn, stage.tenant.id, anew) == 1
    stage.tick(0.1)
    assert len(stage.launcher.specs) == count + 1
    assert stage.launcher.specs[-1].artifact_dir == stage.blobs.path(anew.artifact_prefix)
    assert stage.deployment(chat).failure is None


def test_a_flipped_bit_in_the_tokenizer_starts_nothing(stage: Stage, chat: Deployment) -> None:
    with stage.database.write() as conn:
        build = load_revision(conn, chat.revision_id).require_build()
        moved = replace(published(stage.blobs, stage.tenant, "listed", {}), build_key=build.build_key)
        move_builds(conn, stage.tenant.id, replace(moved, info=listed(stage.blobs, moved)))
    flip(stage.blobs.path(moved.tokenizer_prefix) / "tokenizer.json")
    stage.wake(chat, held=1)
    stage.tick()
    failure = stage.deployment(chat).failure
    assert stage.launcher.specs == []
    assert failure is not None
    assert failure.code == "artifact_damaged"
    with stage.database.read() as conn:
        assert deployments.load_deployment(conn, chat.id).failure == failure
