"""`python -m candela.up.setup`: what must be there before processes that something else supervises can start.

Brings the database up to date and makes the first admin key. `candela up` does the same by itself.
"""

from __future__ import annotations

import sys
import time

from common.errors import PlatformError
from storage.db import migrate

from .admin_key import ensure_client_file
from .data_dir import DataDir
from .settings import UpSettings


def main() -> int:
    """Run once before each start of a new version; a repeat changes nothing. The exit code."""
    settings = UpSettings()
    data_dir = DataDir(settings.home)
    url = settings.database_url.get_secret_value() if settings.database_url else data_dir.database_url
    try:
        data_dir.create()
        migrate(url)
        is_new = ensure_client_file(data_dir, url, f"http://127.0.0.1:{settings.port}", time.time())
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"database is current; {'a new' if is_new else 'the'} admin key is in {data_dir.client_file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
