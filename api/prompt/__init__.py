"""Chat templates and tokenizing in child processes: tenants' templates run there, bounded in time and
memory.
"""
