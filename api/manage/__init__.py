"""Our own REST under `/api/v1` (uploads, models, jobs, deployments, keys, usage, requests) and the health
routes.
"""

from api.manage.routes import routers

__all__ = ["routers"]
