"""Dynamic batching of plain models: calls of one shape that arrive together run as one batch.

This package will own the request queue, the shape buckets and the deadline rule for models that map tensors
to tensors. Token generation is `batching.engine`'s.
"""
