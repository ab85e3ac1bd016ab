"""What the program writes for itself is for its own user, also under a umask that takes no right away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from iceberg_maint.catalog.manifests.memo import ManifestMemo
from iceberg_maint.cli import iceberg_maint
from iceberg_maint.integrations.audit.folder import LocalFolder
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.machine.files import private_database, private_folder, replace_file
from iceberg_maint.removal.table_ownership import SeenFiles


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): oct(p.stat().st_mode & 0o777) for p in sorted(folder.rglob("*"))}


def test_missing_folders_above_a_private_one_are_private(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(0o755)
    private_folder(tmp_path / "mine" / "a" / "b")
    assert modes(tmp_path) == {"mine": "0o755", "mine/a": "0o700", "mine/a/b": "0o700"}


def test_replaced_file_is_private_and_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("old")
    replace_file(tmp_path / "page", "new")
    assert (modes(tmp_path), (tmp_path / "page").read_text()) == ({"page": "0o600"}, "new")
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "no" / "page", "new")


def test_database_is_not_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "memo.db").symlink_to(tmp_path / "elsewhere")
    private_database(tmp_path / "memo.db")
    assert not (tmp_path / "elsewhere").exists()


def test_files_of_init_ledger_caches_and_audit_log_are_private(tmp_path: Path) -> None:
    assert CliRunner().invoke(iceberg_maint, ["init", str(tmp_path / "init")]).exit_code == 0
    with closing(sql_ledger(f"sqlite:///{tmp_path}/home/ledger.db")) as ledger:
        ledger.registry.now_ms()
    LocalFolder(tmp_path / "home" / "audit").create("1", b"x")
    with closing(SeenFiles(private_folder(tmp_path / "home" / "orphans") / "memo.db")):
        pass
    with closing(ManifestMemo(tmp_path / "home" / "manifests.db")._open()):
        written = modes(tmp_path)
    del written["init/catalog.db"]  # writers use the catalog, too
    assert {
        "init/iceberg_maint.yaml",
        "home/ledger.db",
        "home/orphans/memo.db",
        "home/audit/1",
    } <= written.keys()
    assert {name: mode for name, mode in written.items() if mode not in ("0o600", "0o700")} == {}
