"""Azurite, Microsoft's emulator of Azure's blob storage. PyIceberg needs `adlfs` for it, which is in no lock here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iceberg_maint_tests.qualification.surroundings.stores import BUCKET, Store, wait_for
from iceberg_maint_tests.support.servers.programs import free_port, process

AZURITE = "azurite@3.35.0"
ADLS_FILE_IO = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
_ACCOUNT, _HOST = "devstoreaccount1", "devstoreaccount1.dfs.core.windows.net"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of every Azurite (its documentation has them)."""


@contextmanager
def azure(folder: Path, program: Path) -> Iterator[Store]:
    """Azurite in front of a folder, with one container."""
    from pyarrow.fs import AzureFileSystem

    port = free_port()
    address, url = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}/{_ACCOUNT}"
    command = [
        "node",
        str(program),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--skipApiVersionCheck",
    ]
    with process(
        [*command, "--location", str(folder / "azurite"), "--silent", "--disableTelemetry"],
        folder / "azurite.log",
    ):
        wait_for(f"http://{address}/")
        AzureFileSystem(
            account_name=_ACCOUNT,
            account_key=_KEY,
            blob_storage_authority=address,
            dfs_storage_authority=address,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        ).create_dir(BUCKET)
        properties = {
            "io-impl": ADLS_FILE_IO,
            "adls.connection-string": "{env: SURROUNDINGS_CONNECTION}",
            "adls.auth.shared-key.account.name": _ACCOUNT,
            "adls.auth.shared-key.account.key": "{env: SURROUNDINGS_SECRET}",
            f"adls.connection-string.{_HOST}": url,
        }
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={url};"
        )
        secrets = {"SURROUNDINGS_CONNECTION": connection, "SURROUNDINGS_SECRET": _KEY}
        yield Store("azure", f"abfss://{BUCKET}@{_HOST}/warehouse", url, properties, secrets, "azure")


def azurite(cache: Path) -> Path:
    """Azurite's program, installed by npm on the first use."""
    folder = cache.absolute() / "surroundings"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", str(folder), AZURITE], check=True)
    return program
