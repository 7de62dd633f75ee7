"""The search: which cuts, forms and schedules; measured behind a gate that every candidate passes first."""
