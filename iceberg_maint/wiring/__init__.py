"""Wiring: builds the loop's context with the real adapters."""
