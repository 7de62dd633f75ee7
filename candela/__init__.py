"""candela."""
