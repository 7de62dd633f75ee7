"""What a replica process is told: its options, and the secret from its environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batching.replica.loading import ModelSource
from common.errors import InvalidInput

SECRET_VARIABLE = "CANDELA_REPLICA_SECRET"


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """One replica's limits and addresses; the launcher sets the first eight, the rest have good defaults."""

    artifact: Path
    tokenizer: Path
    socket: Path
    replica_id: str
    kv_blocks: int
    max_sequences: int
    max_batched_tokens: int
    ready_fd: int
    secret: str = field(repr=False)
    threads: int | None = None
    max_waiting: int = 1024
    max_buffered_tokens: int = 4096
    send_timeout_s: float = 60.0
    drain_s: float = 60.0
    step_timeout_s: float = 120.0

    @property
    def source(self) -> ModelSource:
        return ModelSource(self.artifact, self.tokenizer, self.kv_blocks, self.threads)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> ReplicaSettings:
    """Parse the command line. Exits with 2 when it is wrong.

    Raises: `InvalidInput` when the environment holds no secret.
    """
    options = vars(_parser().parse_args(arguments))
    secret = environment.get(SECRET_VARIABLE, "")
    if not secret:
        raise InvalidInput(f"{SECRET_VARIABLE} must hold the secret that callers show")
    return ReplicaSettings(**options, secret=secret)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m batching.replica.main", description="Serve one compiled model over a Unix socket."
    )
    add = parser.add_argument
    add("--artifact", type=Path, required=True, help="directory that the compiler wrote")
    add("--tokenizer", type=Path, required=True, help="directory of tokenizer files")
    add("--socket", type=Path, required=True, help="Unix socket to listen on; made by this process")
    add("--replica-id", required=True)
    add("--kv-blocks", type=int, required=True, help="usable KV blocks; the null block comes on top")
    add("--max-sequences", type=int, required=True, help="sequences in one step")
    add("--max-batched-tokens", type=int, required=True, help="tokens in one step")
    add("--ready-fd", type=int, required=True, help="inherited pipe that takes one line of statistics")
    defaults = ReplicaSettings.__dataclass_fields__
    for name, kind, about in (
        ("threads", int, "compute threads; all cores if absent"),
        ("max_waiting", int, "sequences that may wait for a place"),
        ("max_buffered_tokens", int, "tokens kept for a reader that does not read, before it is aborted"),
        ("send_timeout_s", float, "seconds that one write may take, before its reader is aborted"),
        ("drain_s", float, "seconds that running requests may take after SIGTERM"),
        ("step_timeout_s", float, "seconds that one step may take, before the process gives itself up"),
    ):
        add(f"--{name.replace('_', '-')}", type=kind, default=defaults[name].default, help=about)
    return parser
