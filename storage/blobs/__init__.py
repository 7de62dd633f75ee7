"""Blobs behind one port: immutable bytes by key, on disk here, on S3 later."""

from storage.blobs.check import broken
from storage.blobs.disk import DiskBlobs
from storage.blobs.names import build_prefix, check_key, file_key, part_key
from storage.blobs.port import BlobStore, BlobWriter, StoredBytes
from storage.blobs.publish import Publication, find_publication, publish
from storage.blobs.signing import sign, signed_query, verify

__all__ = [
    "BlobStore",
    "BlobWriter",
    "DiskBlobs",
    "Publication",
    "StoredBytes",
    "broken",
    "build_prefix",
    "check_key",
    "file_key",
    "find_publication",
    "part_key",
    "publish",
    "sign",
    "signed_query",
    "verify",
]
