"""Manifests: read, decoded and aggregated."""
