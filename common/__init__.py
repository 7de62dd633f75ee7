"""What every process shares: errors, wire types, ids, clock, logging. Imports nothing of ours."""
