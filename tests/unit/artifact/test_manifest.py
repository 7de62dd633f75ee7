"""The manifest's text, and what its values must mean together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.artifact import (
    ArtifactError,
    Bucket,
    Buffer,
    BufferKind,
    DimRange,
    FileEntry,
    KernelLaunch,
    LevelProgram,
    Manifest,
    Weight,
    WeightLayout,
    decode_manifest,
    encode_manifest,
    open_artifact,
)
from compiler.artifact.check import check_manifest
from compiler.ir.dtype import DType

Json = dict[str, object]


@pytest.fixture
def manifest(artifact: Path) -> Manifest:
    return open_artifact(artifact).manifest


def redigested(manifest: Manifest, change: Callable[[dict[str, object]], object]) -> bytes:
    """The manifest's text after a change to its body, with a digest that fits."""
    document = json.loads(encode_manifest(manifest))
    change(document["body"])
    canonical = json.dumps(document["body"], sort_keys=True, separators=(",", ":")).encode()
    document["digest"] = hashlib.sha256(canonical).hexdigest()
    return json.dumps(document).encode()


def test_a_manifest_reads_back_as_it_was(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_equal_manifests_have_equal_bytes(manifest: Manifest) -> None:
    shuffled = replace(manifest, files=dict(reversed(manifest.files.items())))
    assert encode_manifest(shuffled) == encode_manifest(manifest)


def test_geometry_says_what_a_token_costs(manifest: Manifest) -> None:
    kv = replace(manifest.model.kv, layers=30, kv_heads=3, head_dim=64, dtype=DType.BF16)
    assert kv.bytes_per_token() == 2 * 30 * 3 * 64 * 2


def first_launch(body: dict[str, object]) -> dict[str, object]:
    return body["programs"][0]["buckets"][0]["launches"][0]


CHANGES: dict[str, Callable[[dict[str, object]], object]] = {
    "a field is missing": lambda body: body.pop("model"),
    "a field is unknown": lambda body: body.update(extra=1),
    "a text is a number": lambda body: body.update(target=3),
    "a list is an object": lambda body: body.update(weights={}),
    "an object is a list": lambda body: body.update(files=[]),
    "a number is negative": lambda body: body["weights"][0].update(offset=-64),
    "a number is a fraction": lambda body: body["weights"][0].update(offset=64.0),
    "a number is a truth value": lambda body: body["weights"][0].update(offset=True),
    "a number is huge": lambda body: body["weights"][0].update(offset=1 << 70),
    "a truth value is a number": lambda body: body["programs"][0]["buckets"][0]["launches"][0].update(
        stage_end=1
    ),
    "a text is long": lambda body: body.update(target="x" * 5000),
    "a dtype is unheard of": lambda body: body["weights"][0].update(dtype="f8"),
    "a layout is no text": lambda body: body["weights"][0].update(layout=None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_reading_is_strict_about_types(
    manifest: Manifest, change: Callable[[dict[str, object]], object]
) -> None:
    with pytest.raises(ArtifactError):
        decode_manifest(redigested(manifest, change))


TEXTS = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b"\xff\xfe",
    "no object": b"[]",
    "deep nesting": b"[" * 100_000,
    "a key twice": b'{"format": 1, "format": 2}',
    "not a number": b'{"format": NaN}',
    "another format": b'{"format": "x", "version": 1, "digest": "", "body": {}}',
    "another version": b'{"format": "candela-artifact", "version": 2, "digest": "", "body": {}}',
    "no body": b'{"format": "candela-artifact", "version": 1, "digest": ""}',
    "a wrong digest": b'{"format": "candela-artifact", "version": 1, "digest": "00", "body": {}}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(ArtifactError):
        decode_manifest(text)


def with_weight(manifest: Manifest, **change: object) -> Manifest:
    return replace(manifest, weights=(replace(manifest.weights[0], **change), *manifest.weights[1:]))


def with_program(manifest: Manifest, **change: object) -> Manifest:
    return replace(manifest, programs=(replace(manifest.programs[0], **change),))


def with_buffer(
    manifest: Manifest, *shape: str, kind: BufferKind = BufferKind.ARENA, offset: int = 0
) -> Manifest:
    buffer = Buffer("extra", kind, DType.F32, shape, offset)
    return with_program(manifest, buffers=(*manifest.programs[0].buffers, buffer))


def with_launch(manifest: Manifest, kernel: str, *args: str) -> Manifest:
    bucket = Bucket((), (KernelLaunch(kernel, args, True),))
    return with_program(manifest, buckets=(bucket,))


def with_file(manifest: Manifest, path: str, digest: str = "0" * 64) -> Manifest:
    return replace(manifest, files={**manifest.files, path: FileEntry(digest, 10)})


def with_ranges(manifest: Manifest, *ranges: tuple[int, int]) -> Manifest:
    launches = manifest.programs[0].buckets[0].launches
    return with_program(manifest, buckets=tuple(Bucket((DimRange("T", *r),), launches) for r in ranges))


CONTRADICTIONS: dict[str, Callable[[Manifest], Manifest]] = {
    "a path leaves the artifact": lambda m: with_file(m, "weights/../../etc/passwd"),
    "a path is absolute": lambda m: with_file(m, "/etc/passwd"),
    "a path goes deeper": lambda m: with_file(m, "weights/a/b"),
    "a path is hidden": lambda m: with_file(m, "weights/.x"),
    "a digest is none": lambda m: with_file(m, "weights/x", "zz"),
    "a weight ends beyond its file": lambda m: with_weight(m, offset=1 << 20),
    "a weight is misaligned": lambda m: with_weight(m, offset=4),
    "a weight has other bytes than its shape": lambda m: with_weight(m, shape=(70, 6)),
    "a weight lies in no file": lambda m: with_weight(m, file="weights/none"),
    "a weight lies in the kernels": lambda m: with_weight(m, file="kernels/portable.so"),
    "a packed weight is no matrix": lambda m: with_weight(m, layout=WeightLayout.PACKED_F32_64, shape=(350,)),
    "a packed weight has another dtype": lambda m: with_weight(m, layout=WeightLayout.PACKED_BF16_64),
    "a weight appears twice": lambda m: replace(m, weights=m.weights * 2),
    "there is no program": lambda m: replace(m, programs=()),
    "a level appears twice": lambda m: replace(m, programs=m.programs * 2),
    "the kernels are not there": lambda m: with_program(m, level="x86-64-v3"),
    "a buffer has a weight's name": lambda m: replace(m, weights=(replace(m.weights[0], name="rows"),)),
    "a size has an unknown symbol": lambda m: with_buffer(m, "Q"),
    "a size is no size": lambda m: with_buffer(m, "__import__('os')"),
    "a size may be negative": lambda m: with_buffer(m, "T - 2"),
    "a size is endless": lambda m: with_buffer(m, "*".join(["T"] * 200)),
    "a size is beyond any memory": lambda m: with_buffer(m, "1000000000", "1000000000"),
    "a shape has too many axes": lambda m: with_buffer(m, *["T"] * 20),
    "a size has too many digits": lambda m: with_buffer(m, "9" * 100, "9" * 100),
    "an offset is misaligned": lambda m: with_buffer(m, "T", offset=4),
    "a cache has an offset": lambda m: with_buffer(m, "T", kind=BufferKind.CACHE, offset=64),
    "a buffer appears twice": lambda m: with_program(m, buffers=m.programs[0].buffers * 2),
    "a kernel gets what is not declared": lambda m: with_launch(m, "k_rows", "nothing"),
    "a kernel's name is no symbol": lambda m: with_launch(m, "k; rm", "tokens"),
    "a token count has no bucket": lambda m: with_ranges(m, (1, 3), (5, 12)),
    "the largest token count has no bucket": lambda m: with_ranges(m, (1, 11)),
    "there is no bucket": lambda m: with_program(m, buckets=()),
    "a range is empty": lambda m: with_ranges(m, (1, 12), (3, 2)),
    "a dim is empty": lambda m: replace(m, dims=(DimRange("T", 3, 2),)),
    "a dim is no name": lambda m: replace(m, dims=(*m.dims, DimRange("T*T", 1, 2))),
    "a dim appears twice": lambda m: replace(m, dims=m.dims * 2),
    "there are no tokens": lambda m: replace(m, dims=m.dims[1:]),
    "the model wants more tokens": lambda m: replace(m, model=replace(m.model, max_batched_tokens=13)),
    "the model wants more context": lambda m: replace(m, model=replace(m.model, max_context=65)),
    "the model has no vocabulary": lambda m: replace(m, model=replace(m.model, vocab_size=0)),
}


@pytest.mark.parametrize("change", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_manifest_that_contradicts_itself_is_refused(
    manifest: Manifest, change: Callable[[Manifest], Manifest]
) -> None:
    changed = change(manifest)
    with pytest.raises(ArtifactError):
        check_manifest(changed)


def accepts(manifest: Manifest) -> bool:
    try:
        check_manifest(manifest)
    except ArtifactError:
        return False
    return True


def test_a_whole_manifest_is_accepted(manifest: Manifest) -> None:
    assert accepts(manifest)


def test_overlapping_buckets_are_accepted(manifest: Manifest) -> None:
    assert accepts(with_ranges(manifest, (5, 12), (1, 6)))


def test_names_used_are_those_of_all_launches(manifest: Manifest) -> None:
    program: LevelProgram = manifest.programs[0]
    assert {"tokens", "table", "head", "logits"} <= program.names_used()


def test_weights_remember_their_own_shape(manifest: Manifest) -> None:
    head: Weight = manifest.weights[1]
    assert (head.shape, head.dtype, head.layout) == ((70, 5), DType.BF16, WeightLayout.PACKED_BF16_64)
