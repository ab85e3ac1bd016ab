"""The stores: a folder, moto's S3, versitygw, an S3 server in front of a folder, and a Google Cloud Storage in memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from iceberg_maint_tests.support.servers.programs import free_port, process

BUCKET, REGION = "lake", "us-east-1"
KEY_ID, SECRET = "surroundings-key", "surroundings-secret"
PROGRAMS = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.7.0",
    "fake-gcs-server": "github.com/fsouza/fake-gcs-server@v1.56.1",
}
"""Programs that Go builds."""
S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
GCS_FILE_IO = "org.apache.iceberg.gcp.gcs.GCSFileIO"
TOKEN_SECONDS = 86_400
WAIT_SECONDS = 60.0
CACHE = Path(".cache")
"""Folder of the programs and jars that a store needs."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store that runs. `properties` are those of the catalog for both Spark and PyIceberg, `secrets` the
    environment that they refer to. `jars` is the group of the lock that Spark needs, `buckets` the folder of a store
    that keeps its objects as files."""

    name: str
    warehouse: str
    endpoint: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    jars: str | None = None
    buckets: Path | None = None

    @property
    def is_s3(self) -> bool:
        return self.jars == "s3"

    def resolved(self) -> dict[str, str]:
        """The properties with the values of their references."""
        return {k: self.secrets.get(_variable(v), v) for k, v in self.properties.items()}

    def properties_yaml(self) -> str:
        """The properties as a mapping in a configuration file, in one line."""
        return f"{{{', '.join(f'{key}: {value}' for key, value in self.yaml_values().items())}}}"

    def yaml_values(self) -> dict[str, str]:
        """The properties as values of a configuration file."""
        return {key: value if _variable(value) else repr(value) for key, value in self.properties.items()}

    def file(self, location: str) -> Path:
        """The file with the content of this location, of a store that keeps its objects as files."""
        return file_of(location, self.buckets)

    def client(self, **more: Any) -> Any:
        """boto3's client of the store."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}),
            **more,
        )


def file_of(location: str, buckets: Path | None) -> Path:
    """The file of a location: of this machine, or of an object in a folder of buckets."""
    if not location.startswith("s3://"):
        return Path(unquote(urlsplit(location).path))
    assert buckets is not None, location
    # A key may have a character that divides addresses.
    return buckets / location.removeprefix("s3://")


def _variable(value: str) -> str:
    return value.removeprefix("{env: ").removesuffix("}") if value.startswith("{env: ") else ""


@contextmanager
def local(folder: Path) -> Iterator[Store]:
    """A folder of this machine."""
    yield Store("local", f"file://{folder}/warehouse")


@contextmanager
def moto(folder: Path) -> Iterator[Store]:
    """moto's server, which also answers as Glue."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with process(command, folder / "moto.log"):
        wait_for(f"http://127.0.0.1:{port}/moto-api/")
        yield _s3("moto", port)


@contextmanager
def versitygw(folder: Path, program: Path) -> Iterator[Store]:
    """versitygw in front of a folder. It checks signatures."""
    port, root = free_port(), buckets_of(folder)
    root.mkdir(parents=True)
    command = [str(program), "--access", KEY_ID, "--secret", SECRET, "--region", REGION]
    with process([*command, "--port", f"127.0.0.1:{port}", "posix", str(root)], folder / "versitygw.log"):
        wait_for(f"http://127.0.0.1:{port}/")
        yield _s3("versitygw", port, root)


def buckets_of(folder: Path) -> Path:
    """Where versitygw keeps its buckets."""
    return folder / "versitygw"


@contextmanager
def folder_or_s3(name: str, folder: Path, cache: Path) -> Iterator[Store]:
    """A store that keeps its objects as files: with the name `local` a folder, with `s3` versitygw."""
    if name == "local":
        with local(folder) as store:
            yield store
        return
    program = program_of("versitygw", cache)
    assert program is not None, "versitygw needs Go"
    with versitygw(folder, program) as store:
        yield store


def _s3(name: str, port: int, buckets: Path | None = None) -> Store:
    properties = {
        "io-impl": S3_FILE_IO,
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.path-style-access": "true",
        "s3.region": REGION,
        "client.region": REGION,
        "s3.access-key-id": "{env: SURROUNDINGS_KEY_ID}",
        "s3.secret-access-key": "{env: SURROUNDINGS_SECRET}",
    }
    secrets = {"SURROUNDINGS_KEY_ID": KEY_ID, "SURROUNDINGS_SECRET": SECRET}
    endpoint = f"http://127.0.0.1:{port}"
    store = Store(name, f"s3://{BUCKET}/warehouse", endpoint, properties, secrets, "s3", buckets)
    store.client().create_bucket(Bucket=BUCKET)
    return store


@contextmanager
def gcs(folder: Path, program: Path) -> Iterator[Store]:
    """fake-gcs-server, whose objects are in memory. It takes any token."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(program),
        "-backend",
        "memory",
        "-scheme",
        "http",
        "-host",
        "127.0.0.1",
        "-port",
        str(port),
    ]
    with process([*command, "-external-url", url, "-public-host", f"127.0.0.1:{port}"], folder / "gcs.log"):
        wait_for(url)
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"name": BUCKET}).encode()
        urllib.request.urlopen(
            urllib.request.Request(f"{url}/storage/v1/b?project=surroundings", body, headers)
        ).close()
        properties = {
            "io-impl": GCS_FILE_IO,
            "gcs.project-id": "surroundings",
            "gcs.service.host": url,
            "gcs.oauth2.token": "{env: SURROUNDINGS_SECRET}",
            "gcs.oauth2.token-expires-at": str(int((time.time() + TOKEN_SECONDS) * 1000)),
        }
        yield Store(
            "gcs", f"gs://{BUCKET}/warehouse", url, properties, {"SURROUNDINGS_SECRET": SECRET}, "gcs"
        )


def program_of(name: str, cache: Path) -> Path | None:
    """A program of `PROGRAMS`, built by Go on the first use. None without Go."""
    program = cache.absolute() / "surroundings" / name
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not program.is_file() and go is not None:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [go, "install", PROGRAMS[name]], check=True, env={**os.environ, "GOBIN": str(program.parent)}
        )
    return program if program.is_file() else None


def wait_for(url: str, seconds: float = WAIT_SECONDS) -> None:
    """Waits until a server answers, by whatever status."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"{url} does not answer")
