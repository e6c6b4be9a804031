"""States of the repository beside each other: the same drains by each of them, in turns, on one server."""
