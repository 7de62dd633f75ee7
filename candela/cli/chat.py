"""`candela chat`: talk to a deployment, in one question or a conversation."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from candela.client import ChatChunk, Client, ClientError, TokenUsage

from .output import AsJson, DataDirOption, print_json, talk

app = typer.Typer(add_completion=False)
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole streamed answer, and how long it took from its first to its last text."""

    text: str
    finish_reason: str | None
    usage: TokenUsage | None
    first_text_s: float | None
    total_s: float


@app.command()
def chat(
    name: Annotated[str, typer.Argument(help="The deployment's name.")],
    message: Annotated[str | None, typer.Option("--message", "-m", help="Ask this and leave.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of an answer at most.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy.")] = None,
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Talk to a deployment; without --message, line by line until end of input."""
    if as_json and message is None:
        raise typer.BadParameter("--json needs --message")
    wanted = {"max_tokens": max_tokens, "temperature": temperature}
    options = {key: value for key, value in wanted.items() if value is not None}
    history: list[Message] = [{"role": "system", "content": system}] if system else []
    with Client(data_dir=data_dir) as client:
        if message is None:
            _converse(client, name, history, options)
            return
        asked = [*history, {"role": "user", "content": message}]
        reply = _ask(client, name, asked, options, echo=not as_json)
    if as_json:
        print_json(reply)


def _converse(client: Client, name: str, history: list[Message], options: Mapping[str, Any]) -> None:
    talk.print(f"talking to {name}; end with Ctrl-D")
    for line in _lines():
        asked: list[Message] = [*history, {"role": "user", "content": line}]
        try:
            reply = _ask(client, name, asked, options, echo=True)
        except ClientError as error:  # the conversation goes on without the question that failed
            talk.print(f"error: {error}", markup=False)
            continue
        history[:] = [*asked, {"role": "assistant", "content": reply.text}]


def _lines() -> Iterator[str]:
    while True:
        if sys.stdin.isatty():
            talk.print("[bold]>[/bold] ", end="")
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _ask(
    client: Client, name: str, messages: list[Message], options: Mapping[str, Any], *, echo: bool
) -> Reply:
    began = time.perf_counter()
    texts: list[str] = []
    first_text_s: float | None = None
    last = ChatChunk("", None, None)
    reason: str | None = None
    for last in client.chat.stream(name, messages, **options):
        reason = last.finish_reason or reason
        if last.text and first_text_s is None:
            first_text_s = time.perf_counter() - began
        texts.append(last.text)
        if echo:
            print(last.text, end="", flush=True)
    if echo:
        print()
    return Reply("".join(texts), reason, last.usage, first_text_s, time.perf_counter() - began)
