"""Commits: what a commit intends, what it would change, and the gate's rules between them."""
