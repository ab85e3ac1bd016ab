"""The files under deploy/ fit each other, the program and Dagster. `make qualify SUITE=deploy` checks them by their schemas."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config_schema

from iceberg_maint.cli.run import run as run_command
from iceberg_maint.config import load_config
from iceberg_maint.defs.names import INSTANCE, home_file
from iceberg_maint.engines.spark.session.settings import spark_conf
from iceberg_maint.wiring.spark_session import spark_settings
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.qualification.deploy.files import (
    COMPOSE,
    DEPLOY,
    HELM_VALUES,
    document,
    manifests,
    named,
)

pytestmark = pytest.mark.slow

SECRETS = {
    "ICEBERG_MAINT_LEDGER": "postgresql+psycopg2://iceberg:pass-word@postgres:5432/ledger",
    "CATALOG_CREDENTIAL": "id:the-secret",
    "S3_KEY_ID": "key-of-the-store",
    "S3_SECRET": "secret-of-the-store",
}
POD = {"POD_IP": "10.1.2.3", "POD_NAME": "dagster-run-1", "POD_NAMESPACE": "iceberg-maint"}
CATALOGS = "catalogs: {lake: {type: rest, uri: 'https://c.example.com'}}\n"


def conf_of(text: str, folder: Path) -> dict[str, str]:
    """Spark's settings by the program's own reader."""
    config = folder / "iceberg_maint.yaml"
    config.write_text(text, "utf-8")
    return spark_conf(spark_settings(load_config(config, {**SECRETS, **POD})))


@pytest.mark.parametrize("folder", ["compose", "kubernetes"])
def test_configuration_is_accepted_by_the_program(folder: str, tmp_path: Path) -> None:
    conf = conf_of((DEPLOY / folder / "iceberg_maint.yaml").read_text("utf-8"), tmp_path)
    assert conf["spark.sql.catalog.lake.s3.secret-access-key"] == "secret-of-the-store"


@pytest.mark.parametrize(
    ("name", "master"),
    [
        ("kubernetes", "k8s://https://kubernetes.default.svc"),
        ("yarn", "yarn"),
        ("standalone", "spark://spark-master.example.com:7077"),
    ],
)
def test_spark_section_is_accepted_and_sized_alike(name: str, master: str, tmp_path: Path) -> None:
    conf = conf_of(CATALOGS + (DEPLOY / "spark" / f"{name}.yaml").read_text("utf-8"), tmp_path)
    assert conf["spark.master"] == master
    # 1 GiB for each task of the strategy columnar.
    assert conf["spark.executor.pyspark.memory"] == f"{conf['spark.executor.cores']}g"
    assert "spark.pyspark.python" in conf


def test_kubernetes_configuration_has_the_settings_of_the_spark_section() -> None:
    section = document(DEPLOY / "spark" / "kubernetes.yaml")["spark"]
    assert document(DEPLOY / "kubernetes" / "iceberg_maint.yaml")["spark"] == section


def test_dagster_settings_of_compose_are_those_of_the_project_on_postgresql() -> None:
    settings, usual = document(DEPLOY / "compose" / "dagster.yaml"), yaml.safe_load(home_file(INSTANCE))
    assert validate_config(dagster_instance_config_schema(), settings).success
    assert settings.pop("storage") == {"postgres": {"postgres_url": {"env": "DAGSTER_STORAGE"}}}
    runs = usual["concurrency"]["runs"]
    runs["max_concurrent_runs"] = runs["tag_concurrency_limits"][0]["limit"] = 2
    assert settings == usual


def test_image_copies_only_files_that_exist_and_what_it_runs_is_installed() -> None:
    text = (DEPLOY / "image" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    copies = [shlex.split(line)[1:-1] for line in text.splitlines() if line.startswith("COPY ")]
    sources = [source for copy in copies for source in copy]
    assert [s for s in sources if not (PROJECT / s).exists()] == []
    locks = set(re.findall(r"-r (\S+)", text))
    assert locks == {"requirements/build.txt", "requirements/runtime.txt", "requirements/kubernetes.txt"}
    assert "dagster-k8s==" in (PROJECT / "requirements" / "kubernetes.txt").read_text("utf-8")
    assert (
        subprocess.run(["bash", "-n", str(DEPLOY / "image" / "entrypoint.sh")], check=False).returncode == 0
    )


def test_folders_that_the_image_s_user_writes_are_its_own() -> None:
    text = (DEPLOY / "image" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    own = re.search(r"install -d -o iceberg -g iceberg (.+)", text)[1].split()
    # A named volume takes its owner from the folder of the image. A ConfigMap is read-only.
    assert {'"$DAGSTER_HOME/storage"', '"$ICEBERG_MAINT_HOME"'} <= set(own)
    home = re.search(r"ICEBERG_MAINT_HOME=(\S+)", text)[1]
    (mount,) = document(HELM_VALUES)["runLauncher"]["config"]["k8sRunLauncher"]["volumeMounts"]
    assert mount["readOnly"]
    assert not home.startswith(mount["mountPath"])
    volumes = document(COMPOSE)["x-program"]["volumes"]
    assert "dagster:/opt/dagster/dagster_home/storage" in volumes


@pytest.mark.parametrize("folder", ["compose", "kubernetes"])
def test_jar_of_the_store_is_in_the_image(folder: str) -> None:
    (jar,) = document(DEPLOY / folder / "iceberg_maint.yaml")["spark"]["jars"]
    text = (DEPLOY / "image" / "Dockerfile").read_text("utf-8")
    assert Path(jar).parent == Path("/opt/iceberg_maint/jars")
    assert "WORKDIR /opt/iceberg_maint\n" in text
    assert "COPY deploy/image/jars jars\n" in text
    assert Path(jar).name in (DEPLOY / "image" / "jars" / "README.md").read_text("utf-8")


def test_packages_of_both_locks_of_the_image_have_the_same_versions() -> None:
    def versions(name: str) -> dict[str, str]:
        text = (PROJECT / "requirements" / name).read_text("utf-8")
        return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))

    context, kubernetes = versions("runtime.txt"), versions("kubernetes.txt")
    assert {k: v for k, v in kubernetes.items() if context.get(k, v) != v} == {}


def test_compose_mounts_files_that_exist_and_names_services_that_exist() -> None:
    compose = document(COMPOSE)
    services: dict[str, Any] = compose["services"]
    mounts = [m.split(":")[0] for s in services.values() for m in s.get("volumes", ())]
    assert [m for m in mounts if m.startswith("./") and not (COMPOSE.parent / m).exists()] == []
    assert {m for m in mounts if not m.startswith("./")} == set(compose["volumes"])
    assert {d for s in services.values() for d in s.get("depends_on", ())} <= set(services)
    (location,) = document(COMPOSE.parent / "workspace.yaml")["load_from"]
    assert location["grpc_server"]["host"] in services
    # The default launcher starts runs by the code server, and a run is the driver of Spark.
    assert services["code"]["hostname"] == location["grpc_server"]["host"] == "code"
    conf = document(COMPOSE.parent / "iceberg_maint.yaml")["spark"]
    assert conf["master"] == "spark://spark-master:7077"
    assert conf["conf"]["spark.driver.host"] == "code"
    # No port is open to other machines.
    assert [p for s in services.values() for p in s.get("ports", ()) if not p.startswith("127.0.0.1:")] == []


def test_variables_of_the_configurations_are_set_by_the_deployment() -> None:
    def variables(path: Path) -> set[str]:
        return set(re.findall(r"\{env: (\w+)\}", path.read_text("utf-8")))

    compose = set(
        re.findall(r"^(\w+)=", (DEPLOY / "compose" / "example.env").read_text("utf-8"), re.MULTILINE)
    )
    compose |= set(document(COMPOSE)["x-program"]["environment"])
    assert variables(DEPLOY / "compose" / "iceberg_maint.yaml") <= compose
    secret = next(
        m for m in manifests() if m["metadata"].get("name") == "iceberg-maint" and m["kind"] == "Secret"
    )
    launcher = document(HELM_VALUES)["runLauncher"]["config"]["k8sRunLauncher"]
    environment = {e["name"] for e in launcher["runK8sConfig"]["containerConfig"]["env"]}
    assert variables(DEPLOY / "kubernetes" / "iceberg_maint.yaml") <= environment | set(secret["stringData"])


def test_helm_values_name_objects_that_the_manifests_make() -> None:
    values = document(HELM_VALUES)
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    secrets = {s["name"] for s in (*launcher["envSecrets"], *deployment["envSecrets"])}
    assert secrets | {values["global"]["postgresqlSecretName"]} == named("Secret")
    pod = launcher["runK8sConfig"]["podSpecConfig"]
    executor = document(DEPLOY / "spark" / "kubernetes.yaml")["spark"]["conf"]
    accounts = {pod["service_account_name"], executor["spark.kubernetes.authenticate.serviceAccountName"]}
    assert accounts == named("ServiceAccount")
    generated = document(DEPLOY / "kubernetes" / "kustomization.yaml")["configMapGenerator"]
    (config_map,) = generated
    assert {v["configMap"]["name"] for v in launcher["volumes"]} == {config_map["name"]}
    mounted = {f"{m['mountPath']}/{f}" for m in launcher["volumeMounts"] for f in config_map["files"]}
    assert executor["spark.kubernetes.executor.podTemplateFile"] in mounted
    assert [f for f in config_map["files"] if not (DEPLOY / "kubernetes" / f).exists()] == []


def test_cron_job_has_every_share_once_in_pods_like_those_of_runs() -> None:
    job = document(DEPLOY / "kubernetes" / "cronjob.yaml")["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    shares = [
        word.replace("$(JOB_COMPLETION_INDEX)", str(index))
        for index in range(job["completions"])
        for word in container["command"]
        if "JOB_COMPLETION_INDEX" in word
    ]
    assert shares == ["0/4", "1/4", "2/4", "3/4"]
    assert set(container["command"]) & {p for o in run_command.params for p in o.opts} == {
        "--shard",
        "--max-seconds",
    }
    launcher = document(HELM_VALUES)["runLauncher"]["config"]["k8sRunLauncher"]
    environment = launcher["runK8sConfig"]["containerConfig"]["env"]
    names = {e["name"] for e in container["env"]}
    assert names == {e["name"] for e in environment if e["name"] != "ICEBERG_MAINT_DAGSTER_URL"}
    assert pod["serviceAccountName"] == launcher["runK8sConfig"]["podSpecConfig"]["service_account_name"]
    assert container["volumeMounts"] == launcher["volumeMounts"]


def test_helm_values_free_the_table_of_a_crashed_run() -> None:
    """The settings that the program refuses to be without (ICM-117)."""
    values = document(HELM_VALUES)
    monitoring = values["dagsterDaemon"]["runMonitoring"]
    assert (monitoring["enabled"], monitoring["freeSlotsAfterRunEndSeconds"]) == (True, 60)
    pools = values["additionalInstanceConfig"]["concurrency"]["pools"]
    assert pools == yaml.safe_load(home_file(INSTANCE))["concurrency"]["pools"]
