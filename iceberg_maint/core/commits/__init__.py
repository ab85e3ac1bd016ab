"""Commits: the intended change, the actual change, and the rules of the gate that compare them."""
