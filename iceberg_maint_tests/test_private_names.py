"""Private names of PyIceberg and PyArrow: none, or in one module, and each is as that module expects. These tests fail when a
library changes one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pyiceberg.catalog import _ENV_CONFIG
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response

import iceberg_maint

PACKAGE = Path(iceberg_maint.__file__).resolve().parent
_OF_REST = (
    "_response_to_table",
    "_load_file_io",
    "_refresh_token",
    "_create_session",
    "_create_legacy_oauth2_auth_manager",
    "_split_identifier_for_path",
)


def users(pattern: str) -> set[str]:
    private = re.compile(pattern)
    return {
        str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if private.search(p.read_text("utf-8"))
    }


def test_private_names_of_pyiceberg_are_used_in_one_module_only() -> None:
    imports = r"(?m)^\s*(from pyiceberg[\w.]* import (.*\b_\w+|\(\n(    .*\n)*    _)|(from|import) pyiceberg[\w.]*\._)"
    assert users(imports) == {"catalog/rest_client.py"}
    assert users(r"\b_session\.(get|hooks)|" + "|".join(_OF_REST)) == {"catalog/rest_client.py"}


def test_private_names_of_pyarrow_are_not_used() -> None:
    assert (
        users(
            r"\b(pa|pq|pc|fs|pyarrow[\w.]*)\._[a-z]|from pyarrow[\w.]* import .*\b_|_nested_paths|_create_file_info"
        )
        == set()
    )


def test_private_names_of_pyiceberg_have_the_form_that_the_client_expects() -> None:
    parameters = {name: list(inspect.signature(getattr(RestCatalog, name)).parameters) for name in _OF_REST}
    assert parameters == {
        "_response_to_table": ["self", "identifier_tuple", "table_response"],
        "_load_file_io": ["self", "properties", "location"],
        "_refresh_token": ["self"],
        "_create_session": ["self"],
        "_create_legacy_oauth2_auth_manager": ["self", "session"],
        "_split_identifier_for_path": ["self", "identifier", "kind"],
    }
    assert list(inspect.signature(_handle_non_200_response).parameters) == ["exc", "error_handler"]
    assert list(inspect.signature(_ENV_CONFIG.get_catalog_config).parameters) == ["catalog_name"]
    assert {"_namespace_separator", "_session"} <= set(re.findall(r"_\w+", inspect.getsource(RestCatalog)))
