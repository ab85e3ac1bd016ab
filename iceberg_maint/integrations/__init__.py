"""Integrations: telemetry, alerts, the audit log, frames and reports. Nothing of maintenance depends on them."""
