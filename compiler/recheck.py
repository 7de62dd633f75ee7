"""Checks an artifact's receipt again: its files, what each kernel's digest says, and, given the checkpoint,
that graph, weights and answers are those of the checkpoint.

Nothing of the artifact runs before its digests hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler.artifact import Artifact, ArtifactError, open_artifact
from compiler.artifact.manifest import RECEIPT_FILE, Weight, kernels_path
from compiler.artifact.receipt import Receipt, array_digest, decode_receipt, text_digest
from compiler.artifact.signing import TrustedKey, check_signature
from compiler.checkpoint import inspect_directory
from compiler.codegen.layout import pack_chunks
from compiler.ir.text import print_graph
from compiler.lower.precision import narrow_operands
from compiler.model import CheckpointWeights, build_graph, opened_weights
from compiler.options import CompileOptions, has_tiles
from compiler.prove import TOLERANCE, achieved_error
from compiler.runtime.cpu import host_features, level_named
from compiler.search.arrange import arrange
from compiler.search.cuts import starting_cuts


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: what, whether it holds, and a sentence with the figures."""

    check: str
    is_ok: bool
    detail: str


def recheck(
    root: Path,
    *,
    checkpoint: Path | None = None,
    trusted: TrustedKey | None = None,
    on_progress: Callable[[str], None] = lambda message: None,
) -> list[Finding]:
    """Every check that can be made of the artifact in `root`, in order; the first that fails ends the list.

    Raises:
        ArtifactError: it is no artifact, or its manifest is damaged.
        CheckpointError: the checkpoint cannot be read.
    """
    findings: list[Finding] = []
    for finding in _findings(root, checkpoint, trusted, on_progress):
        findings.append(finding)
        if not finding.is_ok:
            break
    return findings


def _findings(
    root: Path, checkpoint: Path | None, trusted: TrustedKey | None, on_progress: Callable[[str], None]
) -> Iterator[Finding]:
    artifact = open_artifact(root)
    if trusted is not None:
        yield _held("signature", lambda: check_signature(root, trusted))
    on_progress("comparing digests of files")
    yield _held("files", lambda: _files(artifact))
    receipt = _receipt(artifact)
    if receipt is None:
        yield Finding("receipt", False, "the artifact holds none; compile it again to get one")
        return
    yield _kernels(artifact, receipt)
    if checkpoint is not None:
        yield from _against_checkpoint(artifact, receipt, checkpoint, on_progress)


def _held(check: str, run: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, run())
    except ArtifactError as error:
        return Finding(check, False, str(error))


def _files(artifact: Artifact) -> str:
    artifact.verify()
    files = artifact.manifest.files
    return f"{len(files)} files, {sum(f.size for f in files.values())} bytes"


def _receipt(artifact: Artifact) -> Receipt | None:
    if RECEIPT_FILE not in artifact.manifest.files:
        return None
    return decode_receipt(artifact.file(RECEIPT_FILE, verify=True).read_bytes())


def _kernels(artifact: Artifact, receipt: Receipt) -> Finding:
    """The shared object of each level is the one that was proven, and holds the kernels attested."""
    for program in artifact.manifest.programs:
        level = receipt.levels.get(program.level)
        if level is None:
            return Finding("kernels", False, f"the receipt says nothing of level {program.level}")
        if level.object != artifact.manifest.files[kernels_path(program.level)].sha256:
            return Finding("kernels", False, f"the shared object of {program.level} is not the one proven")
        launched = {launch.kernel for bucket in program.buckets for launch in bucket.launches}
        if launched != set(level.sources):
            strange = sorted(launched ^ set(level.sources))[:3]
            return Finding("kernels", False, f"attested and launched kernels differ: {', '.join(strange)}")
    count = sum(len(level.sources) for level in receipt.levels.values())
    return Finding("kernels", True, f"{count} kernels of {', '.join(receipt.levels)}, as proven")


def _against_checkpoint(
    artifact: Artifact, receipt: Receipt, checkpoint: Path, on_progress: Callable[[str], None]
) -> Iterator[Finding]:
    info = inspect_directory(checkpoint)
    options = options_of(receipt)
    lying = build_graph(info.config, options)
    graph = lying.graph
    is_same = text_digest(print_graph(graph)) == receipt.graph
    detail = f"{len(graph.nodes)} nodes" if is_same else "the checkpoint's graph is another one"
    yield Finding("graph", is_same, detail)
    with opened_weights(info, lying, options) as weights:
        on_progress("comparing weights")
        yield _weights(artifact, receipt, weights)
        for program in artifact.manifest.programs:
            level = level_named(program.level)
            if level.required & ~host_features():
                yield Finding(f"error on {level.name}", True, "not run: this CPU lacks what it needs")
                continue
            on_progress(f"running {level.name} beside its definitions")
            used = narrow_operands(graph) if has_tiles(level, options) else graph
            arranged = arrange(used, starting_cuts(used))
            attested = receipt.levels[level.name]
            error = achieved_error(artifact.root, arranged, weights.read_buffer, level.name)
            is_ok = error <= TOLERANCE[options.dtype]
            detail = f"{error:.3e}, attested {attested.error} of {attested.tolerance}"
            yield Finding(f"error on {level.name}", is_ok, detail)


def options_of(receipt: Receipt) -> CompileOptions:
    """The options that a receipt attests, as far as they decide what is computed."""
    told = receipt.options
    return CompileOptions(
        dtype=told["dtype"],
        budget=told["budget"],
        target=told["target"],
        max_context=int(told["max_context"]),
        seed=int(told["seed"]),
        max_batched_tokens=int(told["max_batched_tokens"]),
        max_sequences=int(told["max_sequences"]),
    )


def _weights(artifact: Artifact, receipt: Receipt, weights: CheckpointWeights) -> Finding:
    """The checkpoint's values are those attested, and the artifact's bytes are these values, packed."""
    digests: dict[str, str] = {}
    for stored in artifact.manifest.weights:
        name = stored.name.removeprefix("w:").partition("#")[0]
        values = weights.read(name)
        if name not in digests:
            digests[name] = array_digest(values)
            if digests[name] != receipt.weights.get(name):
                return Finding("weights", False, f"{name} of the checkpoint is not what was compiled")
        packed = hashlib.sha256()
        for chunk in pack_chunks(values, stored.layout):
            packed.update(chunk.data)
        if packed.hexdigest() != _stored_digest(artifact, stored):
            return Finding("weights", False, f"{name} is not stored as it was read")
    return Finding("weights", True, f"{len(digests)} weights, {len(artifact.manifest.weights)} as stored")


def _stored_digest(artifact: Artifact, stored: Weight) -> str:
    digest = hashlib.sha256()
    with (artifact.root / stored.file).open("rb") as file:
        file.seek(stored.offset)
        digest.update(file.read(stored.nbytes))
    return digest.hexdigest()
