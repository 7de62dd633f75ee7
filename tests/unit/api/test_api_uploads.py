"""A checkpoint over REST: refused at creation where that is possible, checked on the way, completed once."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage import keys
from storage.blobs import StoredBytes, broken, file_key
from storage.parts import MIB
from storage.records import Scope
from storage.revisions import load_revision
from tests.support.damage import flip, truncate
from tests.support.gateway import URL, Gateway
from tests.support.tiny_checkpoints import write_tiny_checkpoint
from tests.support.tiny_families import write_tiny_family


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("sharded") / "tiny", "sharded")


def header_of(path: Path) -> dict[str, Any]:
    """A safetensors file's own JSON header."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


def announcement(folder: Path, **changes: Any) -> dict[str, Any]:
    """What a client says of a checkpoint before it sends the bytes."""
    files = [
        {"name": p.name, "size_bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()}
        for p in sorted(folder.iterdir())
    ]
    headers: dict[str, Any] = {p.name: header_of(p) for p in folder.glob("*.safetensors")}
    index = folder / "model.safetensors.index.json"
    if index.exists():
        headers[index.name] = json.loads(index.read_text())
    config = json.loads((folder / "config.json").read_text())
    return {"model": "tiny", "files": files, "config": config, "weight_headers": headers, **changes}


async def send_parts(http: httpx.AsyncClient, folder: Path, upload: Mapping[str, Any]) -> None:
    """PUT every missing part to its signed URL, without a key."""
    for file in upload["files"]:
        data = (folder / file["name"]).read_bytes()
        for part in file["missing_parts"]:
            chunk = data[part["offset"] : part["offset"] + part["size_bytes"]]
            response = await http.put(part["url"], content=chunk, headers={"authorization": ""})
            assert response.status_code == 200, response.text


async def uploaded(http: httpx.AsyncClient, folder: Path, **changes: Any) -> dict[str, Any]:
    """A whole upload, completed."""
    created = (await http.post("/api/v1/uploads", json=announcement(folder, **changes))).json()
    await send_parts(http, folder, created)
    done: dict[str, Any] = (await http.post(f"/api/v1/uploads/{created['id']}/complete")).json()
    return done


async def refused(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """The error of a creation that must fail with a 400."""
    response = await http.post("/api/v1/uploads", json=body)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def with_file(body: dict[str, Any], name: str, size_bytes: int = 10) -> dict[str, Any]:
    return {**body, "files": [*body["files"], {"name": name, "size_bytes": size_bytes, "sha256": "0" * 64}]}


async def test_an_upload_becomes_a_revision_and_a_queued_job(
    gateway: Gateway, http: httpx.AsyncClient, checkpoint: Path
) -> None:
    done = await uploaded(http, checkpoint)
    job = (await http.get(f"/api/v1/jobs/{done['job_id']}")).json()
    model = (await http.get("/api/v1/models/tiny")).json()
    assert (done["state"], job["state"], job["model"]) == ("verifying", "queued", "tiny")
    assert gateway.enqueued == [done["job_id"]]
    assert model["revisions"][0]["id"] == done["revision_id"]
    assert {f["name"] for f in model["revisions"][0]["files"]} == {p.name for p in checkpoint.iterdir()}


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma2"])
async def test_an_upload_of_another_family_becomes_a_job_too(
    http: httpx.AsyncClient, name: str, tmp_path: Path
) -> None:
    done = await uploaded(http, write_tiny_family(tmp_path / name, name))
    assert (await http.get(f"/api/v1/jobs/{done['job_id']}")).json()["state"] == "queued"


async def test_the_stored_bytes_are_those_sent_and_the_parts_are_gone(
    gateway: Gateway, http: httpx.AsyncClient, checkpoint: Path
) -> None:
    done = await uploaded(http, checkpoint)
    file = next(f for f in done["files"] if f["name"] == "model.safetensors")
    blobs = gateway.services.files.blobs
    with blobs.open(file_key(done["id"], file["id"])) as stored:
        assert stored.read() == (checkpoint / "model.safetensors").read_bytes()
    assert not [key for key in blobs.keys(f"uploads/{done['id']}") if ".part" in key]


async def test_completing_again_returns_the_first_result(
    gateway: Gateway, http: httpx.AsyncClient, checkpoint: Path
) -> None:
    done = await uploaded(http, checkpoint)
    again = (await http.post(f"/api/v1/uploads/{done['id']}/complete")).json()
    assert (again["revision_id"], again["job_id"]) == (done["revision_id"], done["job_id"])


async def test_a_large_file_is_sent_in_parts_and_resumed_from_what_is_there(
    http: httpx.AsyncClient, checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "big"
    folder.mkdir()
    for path in checkpoint.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "notes.txt").write_bytes(b"n" * (12 * MIB))
    body = announcement(folder, part_size_bytes=5 * MIB)
    created = (await http.post("/api/v1/uploads", json=body)).json()
    notes = next(f for f in created["files"] if f["name"] == "notes.txt")
    first = notes["missing_parts"][0]
    await http.put(first["url"], content=b"n" * first["size_bytes"])
    resumed = (await http.get(f"/api/v1/uploads/{created['id']}")).json()
    left = next(f for f in resumed["files"] if f["name"] == "notes.txt")
    assert [p["size_bytes"] for p in notes["missing_parts"]] == [5 * MIB, 5 * MIB, 2 * MIB]
    assert (resumed["state"], [p["number"] for p in left["missing_parts"]]) == ("uploading", [2, 3])
    await send_parts(http, folder, resumed)
    assert (await http.post(f"/api/v1/uploads/{created['id']}/complete")).status_code == 200


async def test_bytes_that_this_tenant_has_stored_are_not_sent_again(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    await uploaded(http, checkpoint)
    second = (await http.post("/api/v1/uploads", json=announcement(checkpoint, model="again"))).json()
    assert [f["needs_bytes"] for f in second["files"]] == [False] * len(second["files"])
    assert (await http.post(f"/api/v1/uploads/{second['id']}/complete")).json()["job_id"]


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
async def test_damaged_bytes_are_asked_for_again_and_heal_every_revision(
    gateway: Gateway, http: httpx.AsyncClient, checkpoint: Path, damage: Callable[[Path], None]
) -> None:
    first = await uploaded(http, checkpoint)
    file = next(f for f in first["files"] if f["name"] == "model.safetensors")
    blobs, key = gateway.services.files.blobs, file_key(first["id"], file["id"])
    damage(gateway.services.settings.blobs / key)
    second = (await http.post("/api/v1/uploads", json=announcement(checkpoint, model="again"))).json()
    assert [f["name"] for f in second["files"] if f["needs_bytes"]] == ["model.safetensors"]
    await send_parts(http, checkpoint, second)
    done = (await http.post(f"/api/v1/uploads/{second['id']}/complete")).json()
    with gateway.database.read() as conn:
        revision = load_revision(conn, done["revision_id"])
    assert broken(blobs, [StoredBytes(f.blob_key, f.size_bytes, f.sha256) for f in revision.files]) == ()
    with blobs.open(key) as stored:
        assert stored.read() == (checkpoint / "model.safetensors").read_bytes()


async def test_a_path_that_leaves_its_folder_is_refused_at_creation(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    error = await refused(http, with_file(announcement(checkpoint), "../../etc/cron.d/evil"))
    assert "bad_name" in {p["code"] for p in error["problems"]}


async def test_names_that_no_file_system_holds_together_are_all_refused_at_creation(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    body = announcement(checkpoint)
    pairs = [("notes", "Notes/a.txt"), ("r/\u00e9.txt", "r/e\u0301.txt"), ("LICENSE", "license")]
    alone = ["d/" + "ä" * 128, "x/" * 600 + "x", "a\u0085b", "tab\there", "no\u00a0break"]
    for name in [*(name for pair in pairs for name in pair), *alone]:
        body = with_file(body, name)
    error = await refused(http, body)
    found = {p["where"] for p in error["problems"]}
    assert {second for _, second in pairs} <= found
    assert {name[:200] for name in alone} <= found
    assert not {first for first, _ in pairs} & found


async def test_an_empty_file_is_refused_at_creation(http: httpx.AsyncClient, checkpoint: Path) -> None:
    error = await refused(http, with_file(announcement(checkpoint), "vocab.json", 0))
    assert error["code"] == "empty_file"


@pytest.mark.pitfall("S27", "U22")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
async def test_a_pickle_is_refused_by_its_name(http: httpx.AsyncClient, checkpoint: Path, name: str) -> None:
    body = announcement(checkpoint)
    body["files"] = [f for f in body["files"] if not f["name"].endswith(".safetensors")]
    error = await refused(http, with_file({**body, "weight_headers": {}}, name))
    assert "unexpected_pickle" in {p["code"] for p in error["problems"]}


async def test_an_unknown_architecture_is_refused_at_creation(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    body = announcement(checkpoint)
    config = {**body["config"], "architectures": ["NeuralToasterForBread"], "model_type": "toaster"}
    error = await refused(http, {**body, "config": config})
    assert "unknown_architecture" in {p["code"] for p in error["problems"]}


@pytest.mark.pitfall("S25")
async def test_s25_a_missing_shard_is_refused_by_name(http: httpx.AsyncClient, sharded: Path) -> None:
    body = announcement(sharded)
    gone = next(f["name"] for f in body["files"] if "00002" in f["name"])
    body["files"] = [f for f in body["files"] if f["name"] != gone]
    body["weight_headers"].pop(gone)
    error = await refused(http, body)
    problem = next(p for p in error["problems"] if p["code"] == "missing_shard")
    assert gone in problem["message"]


async def test_a_truncated_weight_file_is_refused_from_its_header(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    body = announcement(checkpoint)
    for file in body["files"]:
        if file["name"] == "model.safetensors":
            file["size_bytes"] -= 100_000
    error = await refused(http, body)
    assert "truncated_file" in {p["code"] for p in error["problems"]}


async def test_every_problem_is_told_at_once(http: httpx.AsyncClient, checkpoint: Path) -> None:
    body = with_file(with_file(announcement(checkpoint), "../x"), "empty.json", 0)
    body["files"][0]["sha256"] = "short"
    error = await refused(http, body)
    assert {p["code"] for p in error["problems"]} >= {"bad_name", "empty_file", "bad_digest"}
    assert all(set(p) == {"code", "message", "where"} for p in error["problems"])


@pytest.mark.pitfall("U11")
async def test_u11_parts_below_the_least_size_are_refused_at_creation(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    error = await refused(http, announcement(checkpoint, part_size_bytes=100))
    assert error["code"] == "bad_part_size"


async def test_a_misspelt_field_is_an_error_and_no_silent_default(
    http: httpx.AsyncClient, checkpoint: Path
) -> None:
    response = await http.post("/api/v1/uploads", json=announcement(checkpoint, optoins={}))
    assert (response.status_code, response.json()["error"]["param"]) == (400, "optoins")


@pytest.fixture
async def created(http: httpx.AsyncClient, checkpoint: Path) -> dict[str, Any]:
    made: dict[str, Any] = (await http.post("/api/v1/uploads", json=announcement(checkpoint))).json()
    return made


def config_part(created: dict[str, Any]) -> tuple[str, int]:
    """URL and size of the only part of config.json."""
    file = next(f for f in created["files"] if f["name"] == "config.json")
    return file["missing_parts"][0]["url"], file["missing_parts"][0]["size_bytes"]


@pytest.mark.pitfall("U10")
async def test_a_part_that_differs_from_its_digest_is_refused(
    gateway: Gateway, http: httpx.AsyncClient, created: dict[str, Any]
) -> None:
    url, size = config_part(created)
    response = await http.put(url, content=b"x" * size, headers={"x-candela-sha256": "0" * 64})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "checksum_mismatch")
    assert not [key for key in gateway.services.files.blobs.keys("uploads") if ".part" in key]


@pytest.mark.pitfall("U10")
async def test_wrong_bytes_are_found_at_complete_and_can_be_replaced(
    http: httpx.AsyncClient, created: dict[str, Any], checkpoint: Path
) -> None:
    url, size = config_part(created)
    await send_parts(http, checkpoint, created)
    await http.put(url, content=b"x" * size)
    response = await http.post(f"/api/v1/uploads/{created['id']}/complete")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "checksum_mismatch", "config.json")
    await http.put(url, content=(checkpoint / "config.json").read_bytes())
    assert (await http.post(f"/api/v1/uploads/{created['id']}/complete")).status_code == 200


async def test_a_part_of_another_length_is_refused(http: httpx.AsyncClient, created: dict[str, Any]) -> None:
    url, size = config_part(created)
    short, long = await http.put(url, content=b"x"), await http.put(url, content=b"x" * (size + 1))
    assert (short.status_code, short.json()["error"]["code"]) == (400, "part_size_mismatch")
    assert long.status_code == 413


async def test_completing_without_all_parts_names_what_is_missing(
    http: httpx.AsyncClient, created: dict[str, Any]
) -> None:
    response = await http.post(f"/api/v1/uploads/{created['id']}/complete")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "upload_incomplete")


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("signature=", "signature=0"),
        lambda url: url.replace("/parts/1", "/parts/2"),
        lambda url: url.replace("expires=", "expires=9"),
    ],
)
async def test_a_part_url_that_was_altered_is_refused(
    http: httpx.AsyncClient, created: dict[str, Any], change: Any
) -> None:
    url, size = config_part(created)
    assert (await http.put(change(url), content=b"x" * size)).status_code == 403


async def test_a_part_url_without_its_signature_is_a_400(
    http: httpx.AsyncClient, created: dict[str, Any]
) -> None:
    url, size = config_part(created)
    assert (await http.put(url.partition("?")[0], content=b"x" * size)).status_code == 400


async def test_the_same_part_again_changes_nothing_even_after_complete(
    http: httpx.AsyncClient, created: dict[str, Any], checkpoint: Path
) -> None:
    url, size = config_part(created)
    await send_parts(http, checkpoint, created)
    await http.post(f"/api/v1/uploads/{created['id']}/complete")
    same = await http.put(url, content=(checkpoint / "config.json").read_bytes())
    other = await http.put(url, content=b"x" * size)
    assert (same.status_code, other.status_code) == (200, 409)


async def test_an_aborted_upload_takes_no_more_parts(
    gateway: Gateway, http: httpx.AsyncClient, created: dict[str, Any]
) -> None:
    url, size = config_part(created)
    await http.put(url, content=b"x" * size)
    gone = await http.delete(f"/api/v1/uploads/{created['id']}")
    late = await http.put(url, content=b"y" * size)
    assert (gone.json()["state"], late.status_code) == ("aborted", 409)
    assert gateway.services.files.blobs.keys(f"uploads/{created['id']}") == ()


async def test_another_tenant_sees_nothing_of_an_upload(gateway: Gateway, created: dict[str, Any]) -> None:
    with gateway.database.write() as conn:
        other = keys.create_tenant(conn, "rival", 1.0)
        _, secret = keys.create_key(conn, other.id, "k", [Scope.ADMIN], 1.0)
    async with gateway.client(secret) as client:
        found = await client.get(f"/api/v1/uploads/{created['id']}")
        listed = (await client.get("/api/v1/uploads")).json()["data"]
    assert (found.status_code, listed) == (404, [])


async def test_a_reader_sees_an_upload_without_urls_to_write_to(
    gateway: Gateway, created: dict[str, Any]
) -> None:
    async with gateway.client(gateway.secrets[Scope.READ]) as client:
        seen = (await client.get(f"/api/v1/uploads/{created['id']}")).json()
    assert [f["missing_parts"] for f in seen["files"]] == [[]] * len(seen["files"])


async def test_part_urls_lead_to_the_address_the_client_used(created: dict[str, Any]) -> None:
    assert config_part(created)[0].startswith(f"{URL}/api/v1/uploads/")


async def test_a_broker_that_is_away_only_delays_the_job(
    gateway: Gateway, http: httpx.AsyncClient, created: dict[str, Any], checkpoint: Path
) -> None:
    class Away(list[str]):
        def append(self, job_id: str) -> None:
            raise ConnectionError("no broker")

    object.__setattr__(gateway.services, "enqueue", Away().append)
    await send_parts(http, checkpoint, created)
    response = await http.post(f"/api/v1/uploads/{created['id']}/complete")
    assert response.status_code == 200
