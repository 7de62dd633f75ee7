"""From a checked request to frames: reserve, hold and wake, choose a replica, relay, settle once."""
