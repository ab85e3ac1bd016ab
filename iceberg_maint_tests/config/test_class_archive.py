"""`spark.class_archive`: which files may be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config import Config, load_config
from iceberg_maint.errors import ConfigurationError

CATALOG = "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n"


def config_of(folder: Path, archive: str, **environ: str) -> Config:
    file = folder / "maint.yaml"
    file.write_text(f"{CATALOG}spark: {{class_archive: {archive}}}\n")
    return load_config(file, environ, "")


def test_archive_is_a_path_or_a_reference(tmp_path: Path) -> None:
    given = [config_of(tmp_path, value, FILE="/b.jsa") for value in ("/a/b.jsa", "{env: FILE}", "null")]
    assert [config.spark.class_archive for config in given] == [Path("/a/b.jsa"), Path("/b.jsa"), None]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[/a]", "spark.class_archive is a list. It must be text, or {env: NAME}."),
        ("a.jsa", "spark.class_archive is 'a.jsa'. It must be an absolute path of a local file."),
        (
            "/a b.jsa",
            "spark.class_archive is '/a b.jsa'. It must not contain ' ', which Java would not read literally.",
        ),
        (
            "'/a.jsa:/b.jsa'",
            "spark.class_archive is '/a.jsa:/b.jsa'. It must not contain ':', which Java would not read literally.",
        ),
    ],
)
def test_wrong_archive_is_refused(tmp_path: Path, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        config_of(tmp_path, value)
    assert (refusal.value.code, refusal.value.message) == ("ICM-100", message)
