"""The files under deploy/, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from iceberg_maint_tests.conftest import PROJECT

DEPLOY = PROJECT / "deploy"
MANIFESTS = ("rbac.yaml", "secrets.yaml", "network-policy.yaml", "executor-pod.yaml", "cronjob.yaml")
HELM_VALUES = DEPLOY / "kubernetes" / "helm-values.yaml"
COMPOSE = DEPLOY / "compose" / "docker-compose.yml"


def document(path: Path) -> Any:
    """The one document of a YAML file."""
    return yaml.safe_load(path.read_text("utf-8"))


def manifests() -> list[dict[str, Any]]:
    """The Kubernetes objects, those of one file after those of another."""
    folder = DEPLOY / "kubernetes"
    return [d for name in MANIFESTS for d in yaml.safe_load_all((folder / name).read_text("utf-8"))]


def named(kind: str) -> set[str]:
    """The names of the objects of one kind."""
    return {m["metadata"]["name"] for m in manifests() if m["kind"] == kind and "name" in m["metadata"]}
