"""Two spellings of one location are equal, two locations never overlap by accident."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.model.location import (
    ApprovedLocations,
    Equivalences,
    Location,
    LocationOwner,
    is_root,
    is_within,
    location_owner_of,
    outside,
    overlaps,
    parse_location,
    path_key,
)
from iceberg_maint_tests.support.core.values import table_of

SAME = Equivalences()


def at(text: str, same: Equivalences = SAME) -> Location:
    return parse_location(text, same)


@pytest.mark.parametrize(
    ("text", "store", "path"),
    [
        ("s3://b/k", "s3://b", "/k"),
        ("s3a://b/k", "s3://b", "/k"),
        ("S3N://b/k", "s3://b", "/k"),
        ("file:///a/b", "file://", "/a/b"),
        ("file:/a/b", "file://", "/a/b"),
        ("/a/b", "file://", "/a/b"),
        ("hdfs://nn:8020/a?b#c", "hdfs://nn:8020", "/a?b#c"),
        ("abfss://c@acc.dfs.core.windows.net/k", "abfss://c@acc.dfs.core.windows.net", "/k"),
        ("s3://b/a\nb", "s3://b", "/a\nb"),
        ("s3://b", "s3://b", ""),
    ],
)
def test_location_is_split_into_store_and_path(text: str, store: str, path: str) -> None:
    assert at(text) == Location(store, path)


@pytest.mark.parametrize("text", ["data/1.parquet", "", "file:a/b", "../x"])
def test_location_that_is_relative_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        at(text)


def test_declared_scheme_and_authority_stand_for_another() -> None:
    same = Equivalences({"oss": "s3"}, {"nn1:8020": "cluster", "nn2:8020": "cluster"})
    assert at("oss://b/k", same) == at("s3://b/k", same)
    assert at("hdfs://nn1:8020/k", same) == at("hdfs://nn2:8020/k", same)
    assert at("hdfs://nn1:8020/k") != at("hdfs://nn2:8020/k")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a//b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/x/../b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("/a%2Fb", "/a/b"),
        ("/a%20b", "/a b"),
        ("/caf\u00e9", "/cafe\u0301"),
        ("/caf%C3%A9", "/CAFÉ"),
        ("/A/B", "/a/b"),
        ("/STRASSE", "/straße"),
        ("/../a", "/a"),
        ("/a/..%2Fb", "/b"),
    ],
)
def test_spellings_of_one_path_have_one_key(one: str, other: str) -> None:
    assert path_key(one) == path_key(other)


@pytest.mark.parametrize(
    ("one", "other"), [("/a/b", "/a/c"), ("/a.b", "/ab"), ("/a b", "/ab"), ("/a..b", "/ab"), ("/a+b", "/a b")]
)
def test_different_paths_have_different_keys(one: str, other: str) -> None:
    assert path_key(one) != path_key(other)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_key_of_any_path_is_that_of_its_key(path: str) -> None:
    """Quick and thorough ways of making a key agree; a percent sign that stays is not decoded twice."""
    key = path_key("/" + path).decode("utf-8", "surrogateescape")
    if "%" not in key:
        assert path_key(key) == path_key("/" + path)


def test_file_name_that_is_no_unicode_has_a_key() -> None:
    assert path_key("/a\udcff") == b"/a\xff"


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("s3://b/ns/t/x", "s3://b/ns/t", True),
        ("s3://b/ns/t", "s3://b/ns/t/", True),
        ("s3a://b/ns/t", "s3://b/ns/t/", True),
        ("s3://b/ns/t_2", "s3://b/ns/t", False),
        ("s3://b/ns", "s3://b/ns/t", False),
        ("s3://c/ns/t", "s3://b/ns/t", False),
        ("s3://b/ns//t/", "s3://b/ns/t", True),
        ("s3://b/ns/x/../t", "s3://b/ns/t", True),
        ("s3://b/NS/T", "s3://b/ns/t", True),
        ("file:/w/t/x", "file:///w/t", True),
        ("s3://b/anything", "s3://b", True),
    ],
)
def test_within_means_below_with_a_slash(inner: str, outer: str, *, expected: bool) -> None:
    assert is_within(at(inner), at(outer)) is expected


def test_root_is_a_whole_bucket() -> None:
    assert [is_root(at(t)) for t in ("s3://b", "s3://b/", "file:///", "s3://b/./", "s3://b/t")] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_claim_is_all_that_a_table_writes_to() -> None:
    state = replace(
        table_of([]).state,
        location="s3://b/t",
        metadata_location="s3://old/t/metadata/1.metadata.json",
        properties={
            "write.data.path": "s3://d/t",
            "write.metadata.path": "s3://m/t/metadata",
            "write.object-storage.path": "s3://o",
            "write.folder-storage.path": "s3://f",
        },
    )
    # The folder of the metadata file too: the property may have been set since it was written.
    assert location_owner_of(state).locations == (
        *("s3://b/t", "s3://d/t", "s3://o", "s3://f"),
        *("s3://m/t/metadata", "s3://old/t/metadata"),
    )


def test_outside_are_locations_below_no_prefix() -> None:
    claim = LocationOwner("t", "u", ("s3://b/t", "s3://b/t/data", "s3://o/t"))
    assert outside(claim, ["s3://b/t"], SAME) == ("s3://o/t",)
    assert outside(claim, ["s3a://b/t", "s3://o"], SAME) == ()


@pytest.mark.parametrize(
    "theirs",
    [
        "s3://b/ns/t",
        "s3://b/ns/t/",
        "s3a://b/ns/t",
        "s3://b/ns",
        "s3://b/ns/t/u",
        "s3://b//ns/x/../T",
        "s3://b",
    ],
)
def test_overlap_is_found_whatever_the_spelling(theirs: str) -> None:
    claim = LocationOwner("u", "2", ("s3://elsewhere/u", theirs))
    assert list(overlaps(["s3://b/ns/t"], [claim], SAME)) == [("s3://b/ns/t", claim, theirs)]


def test_neighbours_do_not_overlap() -> None:
    claims = [LocationOwner(n, n, (f"s3://b/ns/{n}",)) for n in ("t_2", "t2", "t.old", "s")]
    assert list(overlaps(["s3://b/ns/t"], claims, SAME)) == []


def test_same_path_in_another_store_does_not_overlap() -> None:
    others = [LocationOwner("lake.db.u", "u", ("s3://other/ns/t", "gs://b/ns/t", "/ns/t"))]
    assert list(overlaps(["s3://b/ns/t"], others, SAME)) == []


@pytest.mark.parametrize(("character", "allowed"), [(" ", True), ("\x1f", False), ("\n", False)])
def test_location_with_a_control_character_is_not_approved(character: str, allowed: bool) -> None:
    assert ApprovedLocations(("s3://b/t",)).allows(f"s3://b/t/a{character}b") is allowed
