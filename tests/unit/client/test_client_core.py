"""Configuration, errors, retries, server-sent events and job watching."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import httpx
import pytest

from candela.client import (
    ApiError,
    AsyncClient,
    Client,
    ClientConfig,
    Conflict,
    InsufficientFunds,
    JobFailed,
    NotConfigured,
    NotFound,
    Overloaded,
    PermissionDenied,
    ProtocolError,
    RateLimited,
    RetryPolicy,
    ServerError,
    StreamFailed,
    Unauthenticated,
    load_config,
    write_config,
)
from candela.client.errors import error_from_response
from candela.client.sse import ServerEvent, SseDecoder
from tests.support.fake_platform import KEY, URL, FakePlatform, error, event_stream

QUICK = RetryPolicy(attempts=3, first_s=0.0, longest_s=0.0)
JOB = {
    "id": "job_1",
    "model": "tiny",
    "revision_id": "rev_1",
    "state": "succeeded",
    "attempts": 1,
    "stage": "publish",
    "fraction": 1.0,
    "failure": None,
    "created_at": 1.0,
    "started_at": 2.0,
    "finished_at": 3.0,
}


def test_arguments_win_over_the_environment(tmp_path: Path) -> None:
    env = {"CANDELA_URL": "http://env", "CANDELA_API_KEY": "ck_env"}
    assert load_config("http://arg/", "ck_arg", env=env) == ClientConfig("http://arg", "ck_arg")
    assert load_config(env=env) == ClientConfig("http://env", "ck_env")


def test_the_data_dir_is_asked_last(tmp_path: Path) -> None:
    write_config(tmp_path / "client.json", ClientConfig("http://local:1", "ck_file"))
    assert load_config(env={"CANDELA_DATA_DIR": str(tmp_path)}) == ClientConfig("http://local:1", "ck_file")


def test_client_json_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    path.write_text("old")
    path.chmod(0o644)
    write_config(path, ClientConfig("http://local:1", "ck_file"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_stored_key_is_not_sent_to_another_address(tmp_path: Path) -> None:
    write_config(tmp_path / "client.json", ClientConfig("http://local:1", "ck_file"))
    with pytest.raises(NotConfigured, match="no API key for http://elsewhere"):
        load_config("http://elsewhere", data_dir=tmp_path, env={})


@pytest.mark.parametrize(("url", "key"), [("x:1", "ck_1"), (URL, "ключ"), (URL, "a\nb"), (URL, "ck_1 ")])
def test_what_can_not_be_an_address_or_a_key_is_told_before_anything_is_sent(url: str, key: str) -> None:
    with pytest.raises(NotConfigured, match="check CANDELA_"):
        load_config(env={"CANDELA_URL": url, "CANDELA_API_KEY": key})


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://x"}', "{"])
def test_a_broken_client_json_is_a_typed_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "client.json").write_text(text)
    with pytest.raises(NotConfigured):
        load_config(data_dir=tmp_path, env={})


def test_secrets_are_not_in_reprs() -> None:
    assert "ck_secret" not in repr(ClientConfig(URL, "ck_secret"))


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (401, Unauthenticated),
        (402, InsufficientFunds),
        (403, PermissionDenied),
        (404, NotFound),
        (409, Conflict),
        (429, RateLimited),
        (500, ServerError),
        (503, Overloaded),
        (418, ApiError),
    ],
)
def test_each_status_has_its_class(status: int, cls: type[ApiError]) -> None:
    body = json.dumps({"error": {"message": "why", "type": "t", "param": None, "code": "c"}}).encode()
    made = error_from_response(status, {"retry-after": "7", "x-request-id": "req_1"}, body)
    assert type(made) is cls
    assert (made.code, str(made), made.retry_after_s, made.request_id) == ("c", "why", 7.0, "req_1")


def test_an_answer_that_is_no_error_object_is_still_an_error() -> None:
    made = error_from_response(502, {}, b"<html>")
    assert (type(made), made.code, made.status) == (ServerError, "http_502", 502)


def test_a_get_is_repeated_after_an_outage() -> None:
    outages = [httpx.ConnectError("refused"), httpx.ReadError("reset")]

    def trouble(request: httpx.Request) -> httpx.Response:
        if outages:
            raise outages.pop()
        return httpx.Response(200, json={"data": []})

    client = Client(URL, KEY, retry=QUICK, transport=FakePlatform(before=trouble).transport())
    assert client.models.list() == ()


def test_a_refusal_is_not_repeated() -> None:
    platform = FakePlatform(before=lambda r: error(404, "model_not_found", "no such model"))
    with pytest.raises(NotFound):
        Client(URL, KEY, retry=QUICK, transport=platform.transport()).models.get("x")
    assert len(platform.requests) == 1


def test_names_cannot_leave_their_path_segment() -> None:
    platform = FakePlatform(before=lambda r: httpx.Response(204))
    Client(URL, KEY, transport=platform.transport()).models.delete("../keys/a?b")
    assert platform.requests[0].url.raw_path == b"/api/v1/models/..%2Fkeys%2Fa%3Fb"


def test_an_answer_in_another_form_is_a_protocol_error() -> None:
    platform = FakePlatform(before=lambda r: httpx.Response(200, json={"surprise": 1}))
    with pytest.raises(ProtocolError):
        Client(URL, KEY, transport=platform.transport()).models.list()


def test_a_long_retry_after_is_given_to_the_caller() -> None:
    late = Overloaded(503, "overloaded", "later", retry_after_s=60.0)
    assert RetryPolicy().delay_s(True, 1, late) is None
    assert RetryPolicy().delay_s(True, 1, Overloaded(503, "overloaded", "soon", retry_after_s=1.0)) == 1.0


def test_events_are_decoded_as_the_standard_says() -> None:
    decoder = SseDecoder()
    lines = [": comment", "id: 7", "event:progress", "data: a", "data:b", "unknown: x", "", "data: c", ""]
    events = [event for event in map(decoder.feed, lines) if event is not None]
    assert events == [ServerEvent("progress", "a\nb", "7"), ServerEvent("message", "c", "7")]


def test_a_watch_goes_on_behind_the_last_event_after_a_break() -> None:
    streams = [
        event_stream(
            (1, "state", {"state": "running"}), (2, "progress", {"stage": "search", "fraction": 0.5})
        ),
        event_stream(
            (2, "progress", {"stage": "search", "fraction": 0.5}), (3, "state", {"state": "succeeded"})
        ),
    ]
    platform = FakePlatform(before=lambda r: streams.pop(0))
    seen = list(Client(URL, KEY, transport=platform.transport()).jobs.watch("job_1"))
    assert [event.seq for event in seen] == [1, 2, 3]
    assert [r.headers["last-event-id"] for r in platform.requests] == ["0", "2"]


async def test_the_async_watch_does_the_same() -> None:
    streams = [
        event_stream((1, "state", {"state": "running"})),
        event_stream((2, "state", {"state": "cancelled"})),
    ]
    platform = FakePlatform(before=lambda r: streams.pop(0))
    async with AsyncClient(URL, KEY, transport=platform.transport()) as client:
        seen = [event.seq async for event in client.jobs.watch("job_1")]
    assert seen == [1, 2]


def test_waiting_for_a_failed_job_raises_with_its_code() -> None:
    failed = {**JOB, "state": "failed", "failure": {"code": "truncated_file", "message": "short"}}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return event_stream((1, "state", {"state": "failed"}))
        return httpx.Response(200, json=failed)

    client = Client(URL, KEY, transport=FakePlatform(before=answer).transport())
    with pytest.raises(JobFailed, match="short") as caught:
        client.jobs.wait("job_1")
    assert (caught.value.code, caught.value.state) == ("truncated_file", "failed")


def test_a_streamed_answer_ends_with_its_usage() -> None:
    chunks = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        {"choices": [{"delta": {"content": "Par"}, "finish_reason": None}], "usage": None},
        {"choices": [{"delta": {"content": "is"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
    ]
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    platform = FakePlatform(before=lambda r: httpx.Response(200, text=text))
    client = Client(URL, KEY, transport=platform.transport())
    seen = list(client.chat.stream("tiny", [{"role": "user", "content": "?"}], temperature=0))
    assert "".join(chunk.text for chunk in seen) == "Paris"
    assert seen[-1].usage is not None
    assert seen[-1].usage.completion_tokens == 2
    assert json.loads(platform.requests[0].content)["stream_options"] == {"include_usage": True}


@pytest.mark.pitfall("B4")
def test_usage_is_read_from_chunks_with_text_and_the_last_one_stands() -> None:
    chunks = [
        {"choices": [{"delta": {"content": t}}], "usage": {"prompt_tokens": 4, "completion_tokens": n}}
        for n, t in enumerate(("Par", "is"), start=1)
    ]
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    platform = FakePlatform(before=lambda r: httpx.Response(200, text=text))
    seen = list(Client(URL, KEY, transport=platform.transport()).chat.stream("tiny", []))
    assert [(c.text, c.usage.completion_tokens) for c in seen if c.usage] == [("Par", 1), ("is", 2)]


def test_an_error_frame_ends_a_stream_with_an_error() -> None:
    text = 'data: {"error": {"message": "the replica is gone", "code": "replica_lost"}}\n\ndata: [DONE]\n\n'
    platform = FakePlatform(before=lambda r: httpx.Response(200, text=text))
    with pytest.raises(StreamFailed, match="the replica is gone"):
        list(Client(URL, KEY, transport=platform.transport()).chat.stream("tiny", []))
