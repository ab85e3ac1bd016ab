"""Removal: which files may be removed, and which clocks must agree first."""
