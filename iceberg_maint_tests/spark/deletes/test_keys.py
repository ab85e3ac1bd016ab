"""Keys of equality deletes as terms: the type that holds one bit per optional part."""

from __future__ import annotations

import pytest

from iceberg_maint.engines.spark.deletes.keys import bit_set_type


@pytest.mark.parametrize(
    ("bits", "name"),
    [(1, "tinyint"), (7, "tinyint"), (8, "smallint"), (15, "smallint"), (16, "long"), (63, "long")],
)
def test_bit_set_type_is_the_narrowest_whose_sign_bit_stays_free(bits: int, name: str) -> None:
    assert bit_set_type(bits) == name
