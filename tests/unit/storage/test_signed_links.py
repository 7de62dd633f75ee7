"""Signed links: for one blob, one method, until one deadline."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from storage.blobs import DiskBlobs, sign, signed_query, verify
from storage.errors import BadBlobKey, BadSignature
from tests.support.storage_rows import NOW

KEY = "uploads/upl_1/f.part1"
EXPIRES = int(NOW) + 60


def test_a_signed_link_is_accepted_until_it_expires():
    assert verify(KEY, "PUT", EXPIRES, sign(KEY, "PUT", EXPIRES, "secret"), "secret", NOW + 59.9) is None


def test_an_expired_link_is_refused_with_its_own_code():
    with pytest.raises(BadSignature) as caught:
        verify(KEY, "PUT", EXPIRES, sign(KEY, "PUT", EXPIRES, "secret"), "secret", NOW + 60)
    assert caught.value.code == "link_expired"


@pytest.mark.parametrize(
    ("key", "method", "expires", "secret"),
    [
        ("uploads/upl_1/f.part2", "PUT", EXPIRES, "secret"),
        (KEY, "GET", EXPIRES, "secret"),
        (KEY, "PUT", EXPIRES + 3600, "secret"),
        (KEY, "PUT", EXPIRES, "other"),
        (KEY, "DELETE", EXPIRES, "secret"),
    ],
)
def test_a_link_serves_nothing_else(key, method, expires, secret):
    with pytest.raises(BadSignature):
        verify(key, method, expires, sign(KEY, "PUT", EXPIRES, "secret"), secret, NOW)


@pytest.mark.parametrize("signature", ["", "x", "é", "0" * 64])
def test_a_made_up_signature_is_refused(signature):
    with pytest.raises(BadSignature):
        verify(KEY, "PUT", EXPIRES, signature, "secret", NOW)


def test_a_key_outside_the_store_is_not_signed():
    with pytest.raises(BadBlobKey):
        sign("../x", "GET", EXPIRES, "secret")


def test_a_store_hands_out_urls_that_verify(tmp_path):
    url = urlsplit(DiskBlobs(tmp_path, secret="secret", url_prefix="/blobs").presign("GET", KEY, EXPIRES))
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert url.path == f"/blobs/{KEY}"
    assert url.query == signed_query(KEY, "GET", EXPIRES, "secret")
    verify(KEY, "GET", int(query["expires"]), query["signature"], "secret", NOW)
