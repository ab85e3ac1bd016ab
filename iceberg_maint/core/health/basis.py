"""The basis of a measurement: what its numbers depend on beside the metadata of the table."""

from __future__ import annotations

from functools import lru_cache

from iceberg_maint import __version__
from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.policy.data import LayoutPolicy, Policy, RewriteDataFilesPolicy

MEASUREMENT_VERSION = 1
"""Grows with every change of how a metric is measured. Health that another version stored is measured again."""


def basis_of(policy: Policy, installation: str) -> str:
    """Returns the digest of the policy sections that a measurement reads, of the version of the measurement and
    of the installation, whose own commits are not those of another tool."""
    return _basis(policy.rewrite_data_files, policy.layout, installation)


@lru_cache(maxsize=1024)
def _basis(sizes: RewriteDataFilesPolicy, layout: LayoutPolicy, installation: str) -> str:
    return digest((__version__, MEASUREMENT_VERSION, sizes, layout, installation))[:16]
