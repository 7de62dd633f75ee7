"""What an artifact attests, checked again: a changed byte is found, with new digests or without."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from compiler.artifact import ArtifactError, FileEntry, Manifest, encode_manifest, kernels_path, open_artifact
from compiler.artifact.receipt import decode_receipt, encode_receipt, file_digest
from compiler.artifact.signing import BadKey, TrustedKey, check_signature, sign
from compiler.pipeline import CompileOptions, compile_checkpoint
from compiler.recheck import Finding, recheck
from compiler.runtime import StepBatch, load_program
from compiler.runtime.cpu import PORTABLE, best_level, host_features
from tests.support.paged_steps import Chunk, PagedBatches
from tests.support.tiny_checkpoints import write_tiny_checkpoint

OPTIONS = CompileOptions(
    budget="none", dtype="f32", max_context=96, max_batched_tokens=64, max_sequences=4, threads=2
)
BEST = best_level(host_features()).name
STEP_INPUTS = ("tokens", "positions", "sequence", "slots", "block_tables", "logit_rows")
LEVELS = (PORTABLE.name, BEST)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("hf"), "gqa")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    out = tmp_path_factory.mktemp("out") / "artifact"
    compile_checkpoint(checkpoint, out, replace(OPTIONS, level=",".join(LEVELS)))
    return out


@pytest.fixture
def copy(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "copy"))


def pem_of(key: Ed25519PrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key pair in the forms that the documented commands write."""
    folder, key = tmp_path_factory.mktemp("keys"), Ed25519PrivateKey.generate()
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(pem_of(key))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def failed(findings: list[Finding]) -> Finding:
    assert all(f.is_ok for f in findings[:-1])
    assert not findings[-1].is_ok, findings
    return findings[-1]


def rewritten(root: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Replace the manifest by one that is as good in itself."""
    (root / "manifest.json").write_bytes(encode_manifest(change(open_artifact(root).manifest)))


def listed_anew(root: Path, path: str) -> Callable[[Manifest], Manifest]:
    """The manifest with the size and digest that `path` has now."""
    entry = FileEntry(file_digest(root / path), (root / path).stat().st_size)
    return lambda manifest: replace(manifest, files={**manifest.files, path: entry})


def test_everything_that_was_attested_holds(compiled: Path, checkpoint: Path) -> None:
    found = recheck(compiled, checkpoint=checkpoint)
    assert [f.check for f in found] == [
        "files",
        "kernels",
        "graph",
        "weights",
        *(f"error on {level}" for level in LEVELS),
    ]
    assert all(f.is_ok for f in found)


def test_a_receipt_tells_the_seed_and_the_error(compiled: Path) -> None:
    receipt = decode_receipt((compiled / "receipt.json").read_bytes())
    assert receipt.options["seed"] == "0"
    assert receipt.options["budget"] == "none"
    assert set(receipt.levels) == set(LEVELS)
    for level in receipt.levels.values():
        assert 0 < float(level.error) <= float(level.tolerance)


def test_a_changed_byte_is_found_in_its_file(copy: Path) -> None:
    (path, *_) = sorted((copy / "weights").iterdir())
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert path.name in failed(recheck(copy)).detail


def test_changed_weights_with_new_digests_are_found_by_the_checkpoint(copy: Path, checkpoint: Path) -> None:
    weight = open_artifact(copy).manifest.weights[0]
    path = copy / weight.file
    data = bytearray(path.read_bytes())
    data[weight.offset] ^= 1
    path.write_bytes(data)
    rewritten(copy, listed_anew(copy, weight.file))
    assert all(f.is_ok for f in recheck(copy))
    last = failed(recheck(copy, checkpoint=checkpoint))
    assert last.check == "weights"
    assert "not stored as it was read" in last.detail


def test_other_kernels_with_new_digests_are_not_those_proven(copy: Path) -> None:
    shutil.copy(copy / kernels_path(PORTABLE.name), copy / kernels_path(BEST))
    rewritten(copy, listed_anew(copy, kernels_path(BEST)))
    last = failed(recheck(copy))
    assert (last.check, BEST in last.detail) == ("kernels", True)


def test_a_receipt_of_other_kernels_is_refused(copy: Path) -> None:
    place = copy / "receipt.json"
    receipt = decode_receipt(place.read_bytes())
    level = receipt.levels[BEST]
    sources = dict(list(level.sources.items())[1:])
    place.write_bytes(
        encode_receipt(replace(receipt, levels={**receipt.levels, BEST: replace(level, sources=sources)}))
    )
    rewritten(copy, listed_anew(copy, "receipt.json"))
    assert "differ" in failed(recheck(copy)).detail


def test_an_artifact_without_a_receipt_says_what_to_do(copy: Path) -> None:
    rewritten(
        copy,
        lambda m: replace(m, files={p: f for p, f in m.files.items() if p != "receipt.json"}),
    )
    assert "compile it again" in failed(recheck(copy)).detail


@pytest.mark.parametrize(("variant", "check"), [("plain", "graph"), ("gqa", "weights")])
def test_another_checkpoint_is_told_apart(compiled: Path, tmp_path: Path, variant: str, check: str) -> None:
    other = write_tiny_checkpoint(tmp_path / "hf", variant)
    if check == "weights":
        path = other / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-2] + b"\x80\x3f")  # the last value, as bf16, becomes one
    assert failed(recheck(compiled, checkpoint=other)).check == check


# Signatures


def test_a_signature_covers_every_file(copy: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    trusted = TrustedKey.read(public)
    assert failed(recheck(copy, trusted=trusted)).check == "signature"
    sign(copy, private)
    assert all(f.is_ok for f in recheck(copy, trusted=trusted))
    (path, *_) = sorted((copy / "weights").iterdir())
    path.write_bytes(b"x" + path.read_bytes()[1:])
    rewritten(copy, listed_anew(copy, f"weights/{path.name}"))
    with pytest.raises(ArtifactError, match="changed since"):
        check_signature(copy, trusted)


def test_a_signed_artifact_loads_as_before(copy: Path, keys: tuple[Path, Path]) -> None:
    sign(copy, keys[0])
    program = load_program(copy, kv_blocks=2, verify=True)
    assert program.level == BEST
    program.close()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b'{"format": "candela-signature"}', b"[" * 100_000, b"\xff" * 64]
)
def test_a_damaged_signature_is_refused(copy: Path, keys: tuple[Path, Path], data: bytes) -> None:
    (copy / "signature.json").write_bytes(data)
    with pytest.raises(ArtifactError):
        check_signature(copy, TrustedKey.read(keys[1]))


def test_keys_of_another_kind_are_refused(copy: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    private, public = keys
    other = tmp_path / "rsa.pem"
    other.write_bytes(pem_of(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    for path in (other, public):
        with pytest.raises(BadKey, match="key"):
            sign(copy, path)
    with pytest.raises(BadKey, match="public key"):
        TrustedKey.read(private)


# Levels


def test_levels_share_the_weights_that_lie_alike(compiled: Path) -> None:
    manifest = open_artifact(compiled).manifest
    assert [p.level for p in manifest.programs] == list(LEVELS)
    names = [p.names_used() & {w.name for w in manifest.weights} for p in manifest.programs]
    assert names[0] & names[1]
    assert len({w.name for w in manifest.weights}) == len(manifest.weights)


def test_each_level_answers_and_the_best_is_chosen(compiled: Path) -> None:
    logits = []
    for level in (None, *LEVELS):
        program = load_program(compiled, kv_blocks=16, threads=2, level=level)
        assert program.level == (level or BEST)
        batches = PagedBatches([[5, 9, 2, 7, 1]], blocks=16, seed=0)
        arrays = batches.arrays([Chunk(0, 0, 5)])
        logits.append(program.step(StepBatch(*(arrays[name] for name in STEP_INPUTS))).copy())
        program.close()
    best, portable, named = logits
    assert np.array_equal(best, named)
    assert np.allclose(best, portable, rtol=1e-4, atol=1e-5)
