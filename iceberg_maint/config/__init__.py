"""Configuration: YAML and table properties in, policy with the provenance of every value out."""

from iceberg_maint.config.catalogs import CatalogConfig
from iceberg_maint.config.load import (
    CONFIG_VARIABLE,
    HOME_VARIABLE,
    Config,
    SparkConfig,
    load_config,
    parse_overrides,
)
from iceberg_maint.config.locations import JarConfig
from iceberg_maint.config.policy_layers import EffectivePolicy
from iceberg_maint.config.secrets import redact, redact_error
from iceberg_maint.config.sections import TelemetryConfig

__all__ = [
    "CONFIG_VARIABLE",
    "HOME_VARIABLE",
    "CatalogConfig",
    "Config",
    "EffectivePolicy",
    "JarConfig",
    "SparkConfig",
    "TelemetryConfig",
    "load_config",
    "parse_overrides",
    "redact",
    "redact_error",
]
