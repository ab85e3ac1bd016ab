"""Commits through the gate. Each try uses a new operation object, and each result is classified."""
