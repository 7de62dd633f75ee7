"""Typed errors of storage. Codes are public; `api/errors.py` owns their HTTP statuses."""

from __future__ import annotations

from common.errors import Conflict, InsufficientFunds, InvalidInput, NotFound, PermissionDenied, PlatformError


class KeyNotFound(NotFound):
    code = "api_key_not_found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"API key {key_id!r} does not exist")
        self.key_id = key_id


class UploadNotFound(NotFound):
    code = "upload_not_found"

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"upload {upload_id!r} does not exist")
        self.upload_id = upload_id


class ModelNotFound(NotFound):
    code = "model_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"model {name!r} does not exist")
        self.name = name


class RevisionNotFound(NotFound):
    code = "revision_not_found"

    def __init__(self, revision_id: str) -> None:
        super().__init__(f"revision {revision_id!r} does not exist")
        self.revision_id = revision_id


class JobNotFound(NotFound):
    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} does not exist")
        self.job_id = job_id


class DeploymentNotFound(NotFound):
    code = "deployment_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"deployment {name!r} does not exist")
        self.name = name


class ReplicaNotFound(NotFound):
    code = "replica_not_found"

    def __init__(self, replica_id: str) -> None:
        super().__init__(f"replica {replica_id!r} does not exist")
        self.replica_id = replica_id


class TenantNotFound(NotFound):
    code = "tenant_not_found"

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"tenant {tenant_id!r} does not exist")
        self.tenant_id = tenant_id


class RequestNotFound(NotFound):
    code = "request_not_found"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} does not exist")
        self.request_id = request_id


class IllegalTransition(Conflict):
    """A state machine has no arrow from the state the row is in."""

    code = "illegal_transition"

    def __init__(self, what: str, identifier: str, old: str, new: str) -> None:
        super().__init__(f"{what} {identifier} is {old}; it cannot become {new}")
        self.old = old
        self.new = new


class NameTaken(Conflict):
    code = "name_taken"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"a {what} named {name!r} exists already; choose another name or delete it first")
        self.name = name


class ModelInUse(Conflict):
    code = "model_in_use"

    def __init__(self, name: str, deployments: tuple[str, ...]) -> None:
        super().__init__(f"model {name!r} serves {', '.join(deployments)}; delete those deployments first")
        self.deployments = deployments


class RevisionNotReady(Conflict):
    code = "revision_not_ready"

    def __init__(self, revision_id: str, state: str) -> None:
        super().__init__(f"revision {revision_id} is {state}; wait until its compile job has succeeded")
        self.revision_id = revision_id
        self.state = state


class PartConflict(Conflict):
    """Other bytes for a part of an upload that was completed already."""

    code = "part_conflict"

    def __init__(self, file_id: str, number: int) -> None:
        super().__init__(f"part {number} of file {file_id} was completed with another digest")
        self.file_id = file_id
        self.number = number


class UploadIncomplete(InvalidInput):
    """`missing` lists (file name, part number), the first hundred of them."""

    code = "upload_incomplete"

    def __init__(self, missing: tuple[tuple[str, int], ...], count: int) -> None:
        first = ", ".join(f"{name} part {number}" for name, number in missing[:3])
        super().__init__(f"{count} parts have not been received: {first}{' ...' if count > 3 else ''}")
        self.missing = missing
        self.count = count


class StaleToken(PlatformError):
    """The job was claimed by another worker, cancelled or finished: this attempt must stop writing."""

    code = "stale_token"

    def __init__(self, job_id: str, token: int) -> None:
        super().__init__(f"token {token} of job {job_id} is stale; another attempt owns the job or it ended")
        self.job_id = job_id
        self.token = token


class LedgerConflict(Conflict):
    """An event id came back with another body. The first stands."""

    code = "usage_event_conflict"

    def __init__(self, event_id: str) -> None:
        super().__init__(f"usage event {event_id} was recorded with another body; the recorded one stands")
        self.event_id = event_id


class EventTimeRejected(InvalidInput):
    """An event from the future (more than 5 minutes) or from the far past (more than 35 days)."""

    code = "event_time_out_of_range"


class UnknownPriceVersion(InvalidInput):
    code = "unknown_price_version"

    def __init__(self, version: str) -> None:
        super().__init__(f"there is no price book {version!r}")
        self.version = version


class SpendCapReached(InsufficientFunds):
    """The cap leaves no room for a request's highest cost, running requests counted."""

    code = "spend_cap_reached"


class BlobExists(Conflict):
    """A conditional create lost: the key has bytes already (HTTP 412 in S3's words)."""

    code = "blob_exists"

    def __init__(self, key: str) -> None:
        super().__init__(f"blob {key!r} exists already")
        self.key = key


class BlobNotFound(NotFound):
    code = "blob_not_found"

    def __init__(self, key: str) -> None:
        super().__init__(f"blob {key!r} does not exist")
        self.key = key


class BadBlobKey(InvalidInput):
    """A key that could name something outside the store."""

    code = "bad_blob_key"


class BadSignature(PermissionDenied):
    """A signed URL that was altered, is for something else, or has expired."""

    code = "bad_signature"


class ValkeyFailed(PlatformError):
    """The embedded Valkey server did not start or did not answer."""

    code = "valkey_failed"


class DatabaseUnusable(PlatformError):
    code = "database_unusable"

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"the database {url} cannot be used ({why}); restore it, or choose another")
