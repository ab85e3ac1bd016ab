"""Arrays of NumPy and of Arrow have the same values, and no conversion of a task imports pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from iceberg_maint.columnar.read.leaves import array_of_mask, array_of_numbers, mask_of, numbers_of
from iceberg_maint_tests.columnar.test_page_splice import PLAIN, ROWS, SCHEMA, row
from iceberg_maint_tests.support.columnar.tables import task_of, write_file


@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_numbers_and_masks_come_back(count: int) -> None:
    numbers = np.arange(2 * count, dtype=np.int64)[::2]
    assert array_of_numbers(numbers).equals(pa.array(numbers.tolist(), pa.int64()))
    assert numbers_of(array_of_numbers(numbers)).tolist() == numbers.tolist()
    mask = numbers % 3 == 0
    assert array_of_mask(mask).equals(pa.array(mask.tolist(), pa.bool_()))
    assert mask_of(array_of_mask(mask)).tolist() == mask.tolist()


def test_slice_of_a_mask_has_its_own_values() -> None:
    array = pa.array([True, False, False, True, True])
    assert mask_of(array.slice(1, 3)).tolist() == [False, False, True]


TASKS = """
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from pyroaring import BitMap64
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import RewriteTask
spliced = RewriteTask.from_json(Path(sys.argv[1]).read_text())
positions = b64encode(BitMap64([1, 2]).serialize()).decode()
marked = replace(spliced.inputs[0], deleted_positions=positions)
found = [
    rewrite(spliced),
    rewrite(replace(spliced, splice=False, output_path=spliced.output_path + ".encoded")),
    rewrite(replace(spliced, inputs=(marked,), output_path=spliced.output_path + ".deleted")),
    rewrite(replace(
        spliced, inputs=(replace(marked, first_row_id=7),), keep_row_lineage=True, format_version=3,
        output_path=spliced.output_path + ".lineage",
    )),
]
assert [bool(r.spliced) for r in found] == [True, False, False, False]
assert all(r.proof.equal for r in found)
print("pandas" in sys.modules)
"""


def test_tasks_do_not_import_pandas(tmp_path: Path) -> None:
    inputs = [write_file(tmp_path, "a.parquet", SCHEMA, [row(n) for n in range(ROWS)], **PLAIN)]
    task = tmp_path / "task.json"
    task.write_text(task_of(tmp_path, SCHEMA, inputs, splice=True).to_json())
    found = subprocess.run(
        [sys.executable, "-c", TASKS, str(task)], check=True, capture_output=True, text=True
    )
    assert found.stdout == "False\n"
