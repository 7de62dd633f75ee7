"""The gateway: auth, limits, our REST, OpenAI's dialect, dispatch to replicas, settlement, the dashboard."""
