"""Where the credentials of S3 come from: one run per source, on executors in processes of their own.

    python -m iceberg_maint_tests.qualification.surroundings.credentials --cache .cache [--source instance]... [--master local[2]]

The store accepts one key id with its session token, which only the source of the run gives. Each run observes, rewrites by
`columnar` and `native`, and looks for orphans. The row has how each call ends, and which clients asked with the
credentials: Java's SDK (Spark), Arrow (PyIceberg, columnar) and boto3 (listings). Exits 1 if a word differs from what is
expected.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner

from iceberg_maint_tests.qualification.surroundings.credential_store import (
    ADMIN,
    SECRET,
    Gate,
    credential_store,
)
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.stores import BUCKET, REGION, S3_FILE_IO
from iceberg_maint_tests.qualification.surroundings.unreliable import OK, code_of, outcome_of
from iceberg_maint_tests.support import jvm

FILES, ROWS = 4, 200
RUN_SECONDS = 600
_ROLE = "arn:aws:iam::123456789012:role/maintainer"
_RUN = ("--operation", "rewrite_data_files", "--set", "rewrite_data_files.min_input_files=2")
CALLS: Mapping[str, tuple[str, ...]] = {
    "observe": ("observe", "lake.db.columnar"),
    "columnar": ("run", "lake.db.columnar", *_RUN, "--set", "rewrite_data_files.strategy=columnar"),
    "native": ("run", "lake.db.native", *_RUN, "--set", "rewrite_data_files.strategy=native"),
    "scan": ("orphans", "scan", "lake.db.columnar"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A source of credentials: properties of the catalog, variables of the environment, in which `{url}` is the store's
    address and `{folder}` a folder. `words`: calls that do not end with ok."""

    key_id: str
    token: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


_STATIC = {"s3.access-key-id": "{{env: KEY_ID}}", "s3.secret-access-key": "{{env: SECRET}}"}
_BASE = {"AWS_ACCESS_KEY_ID": "base-key", "AWS_SECRET_ACCESS_KEY": SECRET}
_STS = {"AWS_ENDPOINT_URL_STS": "{url}", "AWS_STS_REGIONAL_ENDPOINTS": "regional"}
SOURCES: Mapping[str, Source] = {
    "static": Source("static-key", "", _STATIC, {"KEY_ID": "static-key", "SECRET": SECRET}),
    "session token": Source(
        "session-key",
        "session-token",
        {**_STATIC, "s3.session-token": "{{env: TOKEN}}"},
        {"KEY_ID": "session-key", "SECRET": SECRET, "TOKEN": "session-token"},
    ),
    "environment": Source(
        "environment-key",
        "environment-token",
        {},
        {
            "AWS_ACCESS_KEY_ID": "environment-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": "environment-token",
        },
    ),
    "profile": Source(
        "profile-key",
        "",
        {},
        {"AWS_SHARED_CREDENTIALS_FILE": "{folder}/credentials", "AWS_PROFILE": "maintainer"},
        {"credentials": f"[maintainer]\naws_access_key_id = profile-key\naws_secret_access_key = {SECRET}\n"},
    ),
    "container": Source(
        "container-key", "container-token", {}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/container"}
    ),
    "instance": Source(
        "instance-key",
        "instance-token",
        {},
        {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "{url}"},
    ),
    "role": Source(
        "role-key",
        "role-token",
        {
            "s3.role-arn": _ROLE,
            "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
            "client.assume-role.arn": _ROLE,
            "client.assume-role.region": REGION,
        },
        {**_BASE, **_STS},
        words={"columnar": "ok, written by native"},
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one row per source."""
    parser = argparse.ArgumentParser(
        prog="python -m iceberg_maint_tests.qualification.surroundings.credentials"
    )
    parser.add_argument("--cache", type=Path, default=Path(".cache"))
    parser.add_argument("--source", action="append", choices=list(SOURCES))
    parser.add_argument("--master", default="local-cluster[1,2,1024]")
    parser.add_argument("--calls", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.calls:
        return _calls(given.calls)
    wrong = []
    print(f"| Source | {' | '.join(CALLS)} | clients |\n|{'---|' * (len(CALLS) + 2)}")
    with (
        tempfile.TemporaryDirectory(prefix="credentials-") as scratch,
        credential_store() as (url, gate),
    ):
        jars = Parts(given.cache.absolute()).jars("s3")
        for number, name in enumerate(given.source or SOURCES):
            source, folder = SOURCES[name], Path(scratch) / str(number)
            words = _words(source, folder, url, gate, jars, given.master)
            clients = ", ".join(sorted(gate.clients)) + (
                " REFUSED " + str(set(gate.refused)) if gate.refused else ""
            )
            print(
                f"| {name} | {' | '.join(words.get(c, 'not run') for c in CALLS)} | {clients} |", flush=True
            )
            expected = {**dict.fromkeys(CALLS, OK), **source.words}
            wrong += [f"WRONG: {name}, {c}: {words.get(c)}" for c in CALLS if words.get(c) != expected[c]]
    print("\n".join(wrong))
    return int(bool(wrong))


def _words(
    source: Source, folder: Path, url: str, gate: Gate, jars: Sequence[Path], master: str
) -> dict[str, str]:
    folder.mkdir()
    _prepare(folder, url)
    gate.accept(source.key_id, source.token)
    for name, text in source.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    config = folder / "iceberg_maint.yaml"
    config.write_text(_configuration(source, folder, url, jars, master), encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    given = {k: v.format(url=url, folder=folder) for k, v in source.environment.items()}
    environment = {
        **kept,
        **jvm.environment(),
        "HOME": str(folder),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        **_cluster(),
        **given,
    }
    command = [
        sys.executable,
        "-m",
        "iceberg_maint_tests.qualification.surroundings.credentials",
        "--calls",
        str(config),
    ]
    with (folder / "log").open("wb") as log:
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=RUN_SECONDS,
            check=False,
            text=True,
        )
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    if len(lines) != len(CALLS):
        print((folder / "log").read_text(errors="replace")[-2000:], file=sys.stderr)
    return {line["call"]: line["word"] for line in lines}


def _cluster() -> dict[str, str]:
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    return {"SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13", "PYSPARK_PYTHON": sys.executable}


def _prepare(folder: Path, url: str) -> None:
    """Two tables of small files, by the administrator."""
    import boto3
    from pyiceberg.catalog.sql import SqlCatalog

    keys = {"aws_access_key_id": ADMIN, "aws_secret_access_key": SECRET}
    client: Any = boto3.client("s3", endpoint_url=url, region_name=REGION, **keys)
    client.create_bucket(Bucket=BUCKET)
    catalog = SqlCatalog(
        "lake",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"s3://{BUCKET}/{folder.name}",
        **{
            "s3.endpoint": url,
            "s3.access-key-id": ADMIN,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        },
    )
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    for name in ("columnar", "native"):
        table = catalog.create_table(f"db.{name}", rows.schema)
        for _ in range(FILES):
            table.append(rows)


def _configuration(source: Source, folder: Path, url: str, jars: Sequence[Path], master: str) -> str:
    properties = {
        "io-impl": S3_FILE_IO,
        "s3.endpoint": url,
        "s3.path-style-access": "true",
        "s3.region": REGION,
        "client.region": REGION,
        **source.properties,
    }
    texts = {k: v.format() for k, v in properties.items()}
    lines = [f"ledger: sqlite:///{folder}/ledger.db", "catalogs:", "  lake:", "    type: jdbc"]
    lines += [f"    uri: sqlite:///{folder}/catalog.db", f"    warehouse: s3://{BUCKET}/{folder.name}"]
    lines += ["    properties:"]
    lines += [f"      {k}: {v if v.startswith('{') else repr(v)}" for k, v in texts.items()]
    lines += ["spark:", f"  master: '{master}'", f"  jars: [{', '.join(map(str, jars))}]", "  conf:"]
    conf = {"spark.driver.memory": "1g", "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    lines += [f"    {key}: '{value}'" for key, value in conf.items()]
    return "\n".join(lines) + "\n"


def _calls(config: Path) -> int:
    """All calls in this process. Writes a line for each."""
    from iceberg_maint.cli import iceberg_maint

    for call, arguments in CALLS.items():
        result = CliRunner().invoke(iceberg_maint, [*arguments, "--json", "--config", str(config)])
        sys.stderr.write(result.stderr)
        if call in ("columnar", "native"):
            word = outcome_of(result.stdout, result.stderr)
            if word == OK and f"written by {'native'}" in result.stdout and call == "columnar":
                word = "ok, written by native"
        else:
            word = code_of(result.exit_code, result.stdout, result.stderr)
        sys.stdout.write(json.dumps({"call": call, "word": word}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
