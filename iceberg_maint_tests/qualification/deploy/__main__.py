"""The files under deploy/ against the schemas of Kubernetes, Compose, Dagster's run launcher and Dagster's chart.

    python -m iceberg_maint_tests.qualification.deploy --tools FOLDER [--chart FOLDER --helm helm]

FOLDER gets the schema of Compose, which is in a Go module. The chart of Dagster is in no package registry:
`helm pull dagster/dagster --untar` gets it. A step without its program or without `--chart` is named as not run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from iceberg_maint_tests.qualification.deploy.files import COMPOSE, DEPLOY, HELM_VALUES, document, manifests

COMPOSE_GO = "github.com/compose-spec/compose-go/v2@v2.9.0"
KUBERNETES = "1.34"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make qualify SUITE=deploy")
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--chart", type=Path, help="the folder of Dagster's chart")
    parser.add_argument("--helm", default="helm")
    given = parser.parse_args(arguments)
    tools = given.tools.absolute()
    steps = {
        "Kubernetes objects": lambda: kubernetes(manifests()),
        "kustomization": kustomization,
        "docker-compose": lambda: compose(tools),
        "run launcher": run_launcher,
    }
    if given.chart is not None:
        steps["chart of Dagster"] = lambda: chart(given.chart, given.helm)
    programs = {"kustomization": "kubectl", "docker-compose": "go"}
    failed = 0
    for name, step in steps.items():
        if (program := programs.get(name)) is not None and shutil.which(program) is None:
            sys.stdout.write(f"--   {name}: not run, missing {program}\n")
            continue
        wrong = step()
        failed += bool(wrong)
        sys.stdout.write(
            f"{'FAIL' if wrong else 'ok  '} {name}{''.join(f'{chr(10)}     {w}' for w in wrong)}\n"
        )
    if given.chart is None:
        sys.stdout.write("--   chart of Dagster: not run, no --chart\n")
    return int(failed > 0)


def kubernetes(objects: Iterable[dict[str, Any]]) -> list[str]:
    """What the strict schemas of Kubernetes have against these objects."""
    import kubernetes_validate

    wrong = []
    for thing in objects:
        name = f"{thing['kind']} {thing['metadata'].get('name', '')}"
        try:
            kubernetes_validate.validate(thing, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as why:
            wrong.append(f"{name}: {'/'.join(map(str, why.path))}: {why.message[:300]}")
        except kubernetes_validate.SchemaNotFoundError:
            wrong.append(f"{name}: no schema for {thing['apiVersion']}")
    return wrong


def kustomization() -> list[str]:
    """What is wrong with the objects that kubectl makes of the kustomization."""
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        return made.stderr.splitlines()
    return kubernetes(yaml.safe_load_all(made.stdout))


def compose(tools: Path) -> list[str]:
    """What Compose's own schema has against the file."""
    import jsonschema

    tools.mkdir(parents=True, exist_ok=True)
    if not (tools / "go.mod").exists():
        subprocess.run(["go", "mod", "init", "tools"], check=True, cwd=tools, capture_output=True)
    got = subprocess.run(
        ["go", "mod", "download", "-json", COMPOSE_GO], check=True, cwd=tools, capture_output=True
    )
    schema = json.loads(
        (Path(json.loads(got.stdout)["Dir"]) / "schema" / "compose-spec.json").read_text("utf-8")
    )
    return _errors(jsonschema.Draft7Validator(schema), document(COMPOSE))


def run_launcher() -> list[str]:
    """What Dagster's run launcher has against the configuration that the chart makes of the values."""
    from dagster import Field, Shape
    from dagster._config import process_config
    from dagster_k8s import K8sRunLauncher

    values = document(HELM_VALUES)["runLauncher"]["config"]["k8sRunLauncher"]
    config = {
        "service_account_name": "dagster",
        "instance_config_map": "dagster-instance",
        "postgres_password_secret": "dagster-postgresql",
        "dagster_home": "/opt/dagster/dagster_home",
        "job_image": "{repository}:{tag}".format(**values["image"]),
        "image_pull_policy": values["imagePullPolicy"],
        "env_secrets": [s["name"] for s in values["envSecrets"]],
        "volumes": values["volumes"],
        "volume_mounts": values["volumeMounts"],
        "labels": values["labels"],
        "resources": values["resources"],
        "fail_pod_on_run_failure": values["failPodOnRunFailure"],
        "run_k8s_config": {_snake(k): v for k, v in values["runK8sConfig"].items()},
    }
    shape = K8sRunLauncher.config_type()
    result = process_config(shape if isinstance(shape, (Field, Shape)) else Shape(shape), config)
    return [] if result.success else [e.message for e in result.errors or ()]


def chart(folder: Path, helm: str) -> list[str]:
    """What the chart's schema has against the values, and with helm, Kubernetes against what the chart makes of them."""
    import jsonschema
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    def retrieve(_uri: str) -> Resource[Any]:
        # The chart names the definitions of an old version at an address; those here are from the package.
        folder = next(_schemas().glob(f"v{KUBERNETES}*-local"))
        definitions = json.loads((folder / "_definitions.json").read_text("utf-8"))
        return DRAFT7.create_resource({**definitions, "definitions": definitions["$defs"]})

    schema = json.loads((folder / "values.schema.json").read_text("utf-8"))
    values = _merged(document(folder / "values.yaml"), document(HELM_VALUES))
    registry: Registry[Any] = Registry(retrieve=retrieve)  # type: ignore[call-arg]
    wrong = _errors(jsonschema.Draft7Validator(schema, registry=registry), values)
    if shutil.which(helm) is None:
        return wrong
    command = [
        helm,
        "template",
        "dagster",
        str(folder),
        "--namespace",
        "iceberg-maint",
        "-f",
        str(HELM_VALUES),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        return wrong + made.stderr.splitlines()
    objects = [o for o in yaml.safe_load_all(made.stdout) if o]
    settings = [o for o in objects if o["kind"] == "ConfigMap" and "dagster.yaml" in o.get("data", {})]
    return wrong + kubernetes(objects) + ([] if settings else ["the chart made no dagster.yaml"])


def _schemas() -> Path:
    import kubernetes_validate

    return Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


def _merged(defaults: Any, values: Any) -> Any:
    """As helm merges: mappings by key, everything else replaced."""
    if not (isinstance(defaults, dict) and isinstance(values, dict)):
        return values
    return {
        k: _merged(defaults.get(k), values[k]) if k in values else defaults[k] for k in {**defaults, **values}
    }


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _errors(validator: Any, value: Any) -> list[str]:
    return [f"{'/'.join(map(str, e.path))}: {e.message[:300]}" for e in validator.iter_errors(value)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
