"""Uploads through both clients against a platform in memory."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from candela.client import (
    AsyncClient,
    BadRequest,
    CheckpointUnusable,
    Client,
    ConnectionFailed,
    Phase,
    RetryPolicy,
    UploadFailed,
    UploadProgress,
    UploadRefused,
)
from tests.support.fake_platform import KEY, PART_BYTES, URL, FakePlatform, error

PATIENT = RetryPolicy(attempts=3, first_s=0.0, longest_s=0.0)
WEIGHTS = bytes(range(256)) * 20


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [len(WEIGHTS)], "data_offsets": [0, len(WEIGHTS)]}}
    ).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + WEIGHTS)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "README.md").write_text("not sent")
    return tmp_path


def client_of(platform: FakePlatform) -> Client:
    return Client(URL, KEY, retry=PATIENT, transport=platform.transport())


def test_every_byte_of_the_chosen_files_arrives(checkpoint: Path) -> None:
    platform = FakePlatform()
    upload = client_of(platform).uploads.create(checkpoint, "tiny")
    assert upload.job_id == "job_1"
    assert platform.received("model.safetensors") == (checkpoint / "model.safetensors").read_bytes()
    assert {f["name"] for f in platform.upload["files"]} == {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
    }


def test_config_and_weight_headers_are_sent_for_triage(checkpoint: Path) -> None:
    platform = FakePlatform()
    client_of(platform).uploads.create(checkpoint, "tiny", options={"dtype": "f32"})
    assert platform.upload["config"] == {"model_type": "llama"}
    assert platform.upload["weight_headers"]["model.safetensors"]["w"]["dtype"] == "U8"
    assert platform.upload["options"] == {"dtype": "f32"}


async def test_the_async_client_sends_the_same(checkpoint: Path) -> None:
    platform = FakePlatform()
    async with AsyncClient(URL, KEY, transport=platform.transport()) as client:
        upload = await client.uploads.create(checkpoint, "tiny")
    assert upload.job_id == "job_1"
    assert platform.received("model.safetensors") == (checkpoint / "model.safetensors").read_bytes()


def test_the_key_is_not_sent_to_a_signed_address(checkpoint: Path) -> None:
    platform = FakePlatform()
    client_of(platform).uploads.create(checkpoint, "tiny")
    puts = [r for r in platform.requests if r.method == "PUT"]
    assert puts
    assert all("authorization" not in r.headers for r in puts)
    assert all(r.url.query == b"s=x" for r in puts)
    assert platform.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_part_that_fails_once_is_sent_again(checkpoint: Path) -> None:
    failed: list[str] = []

    def trouble(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT" and not failed:
            failed.append(str(request.url))
            raise httpx.ReadError("reset")
        return None

    platform = FakePlatform(before=trouble)
    client_of(platform).uploads.create(checkpoint, "tiny")
    assert failed
    assert platform.received("model.safetensors") == (checkpoint / "model.safetensors").read_bytes()


def test_resuming_sends_only_what_is_missing(checkpoint: Path) -> None:
    platform = FakePlatform()
    client_of(platform).uploads.create(checkpoint, "tiny")
    weights = next(f["id"] for f in platform.upload["files"] if f["name"] == "model.safetensors")
    del platform.parts[weights, 2]
    platform.requests.clear()
    client_of(platform).uploads.resume(checkpoint, "upl_1")
    assert [r.url.path for r in platform.requests if r.method == "PUT"] == [f"/parts/{weights}/2"]


def test_parts_told_in_portions_are_all_sent(checkpoint: Path) -> None:
    platform = FakePlatform(portion=1)
    client_of(platform).uploads.create(checkpoint, "tiny")
    assert len(platform.received("model.safetensors")) > 5 * PART_BYTES


def test_resuming_with_other_bytes_is_refused(checkpoint: Path) -> None:
    platform = FakePlatform()
    client_of(platform).uploads.create(checkpoint, "tiny")
    (checkpoint / "tokenizer.json").write_text('{"other": 1}')
    with pytest.raises(UploadFailed, match=r"differ from upload upl_1: tokenizer\.json"):
        client_of(platform).uploads.resume(checkpoint, "upl_1")


def test_an_upload_that_makes_no_headway_is_given_up_with_its_id(checkpoint: Path) -> None:
    platform = FakePlatform(before=lambda r: error(503, "overloaded", "later") if r.method == "PUT" else None)
    with pytest.raises(UploadFailed, match="no headway") as caught:
        client_of(platform).uploads.create(checkpoint, "tiny")
    assert caught.value.upload_id == "upl_1"


def test_a_checksum_mismatch_is_told_at_once(checkpoint: Path) -> None:
    platform = FakePlatform(
        before=lambda r: error(400, "checksum_mismatch", "differs") if r.method == "PUT" else None
    )
    with pytest.raises(BadRequest) as caught:
        client_of(platform).uploads.create(checkpoint, "tiny")
    assert caught.value.code == "checksum_mismatch"


def test_a_stale_signature_is_renewed(checkpoint: Path) -> None:
    stale = [True] * 3

    def trouble(request: httpx.Request) -> httpx.Response | None:
        return (
            error(403, "permission_denied", "expired")
            if request.method == "PUT" and stale and stale.pop()
            else None
        )

    platform = FakePlatform(before=trouble)
    assert client_of(platform).uploads.create(checkpoint, "tiny").job_id == "job_1"


def test_a_refusal_carries_every_problem(checkpoint: Path) -> None:
    problems = [
        {"code": "missing_tensor", "message": "a", "where": "w"},
        {"code": "bad_name", "message": "b", "where": "n"},
    ]
    platform = FakePlatform(before=lambda r: error(400, "missing_tensor", "a; b", problems))
    with pytest.raises(UploadRefused) as caught:
        client_of(platform).uploads.create(checkpoint, "tiny")
    assert [p.code for p in caught.value.problems] == ["missing_tensor", "bad_name"]


def test_files_that_cannot_be_read_as_a_checkpoint_are_refused_before_sending(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"")
    (checkpoint / "config.json").write_text("{")
    platform = FakePlatform()
    with pytest.raises(CheckpointUnusable) as caught:
        client_of(platform).uploads.create(checkpoint, "tiny")
    assert {p.code for p in caught.value.problems} == {"truncated_file", "bad_config"}
    assert platform.requests == []


def test_pickles_are_left_out_beside_safetensors(checkpoint: Path) -> None:
    (checkpoint / "pytorch_model.bin").write_bytes(b"\x80\x02}")
    platform = FakePlatform()
    client_of(platform).uploads.create(checkpoint, "tiny")
    assert "pytorch_model.bin" not in {f["name"] for f in platform.upload["files"]}


def test_pickles_alone_are_named_to_the_platform(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    platform = FakePlatform()
    client_of(platform).uploads.create(checkpoint, "tiny")
    assert "pytorch_model.bin" in {f["name"] for f in platform.upload["files"]}


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointUnusable, match="holds no weights"):
        client_of(FakePlatform()).uploads.create(tmp_path, "tiny")


def test_progress_ends_at_the_total_in_both_phases(checkpoint: Path) -> None:
    seen: list[UploadProgress] = []
    client_of(FakePlatform()).uploads.create(checkpoint, "tiny", on_progress=seen.append)
    last = {p.phase: p for p in seen}
    assert last[Phase.HASHING].done_bytes == last[Phase.HASHING].total_bytes
    assert last[Phase.SENDING].done_bytes == last[Phase.SENDING].total_bytes
    assert last[Phase.SENDING].total_bytes == last[Phase.HASHING].total_bytes


def test_a_post_with_unknown_outcome_is_not_repeated(checkpoint: Path) -> None:
    def trouble(request: httpx.Request) -> httpx.Response | None:
        raise httpx.ReadTimeout("no answer")

    platform = FakePlatform(before=trouble)
    with pytest.raises(ConnectionFailed):
        client_of(platform).uploads.create(checkpoint, "tiny")
    assert platform.count("POST", "/api/v1/uploads") == 1
