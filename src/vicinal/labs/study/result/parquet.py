"""Samples as Parquet, by Arrow: a file for each trial, with a row group for each series.

Each row is self-contained, so all files together form one table for pandas, R or DuckDB. Columns
that are constant within a row group take almost no space.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from vicinal.labs.study.result.layout import SeriesFacts, StoredTrial
from vicinal.labs.study.result.samples import Series

_SCHEMA = pyarrow.schema(
    [
        ("environment", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
        ("workload", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
        ("block", pyarrow.int32()),
        ("trial", pyarrow.int32()),
        ("size", pyarrow.int64()),
        ("rank", pyarrow.int32()),
        ("messages", pyarrow.int32()),
        ("iteration", pyarrow.int64()),
        ("nanoseconds", pyarrow.int64()),
    ]
)
_COUNTED = "iteration"
"""Increases by one in each row, so its differences are stored."""


def to_parquet(stored: StoredTrial, series: Sequence[Series]) -> memoryview:
    """The samples of a trial as the content of a file."""
    content = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(
        content,
        _SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in _SCHEMA.names if name != _COUNTED],
        column_encoding={_COUNTED: "DELTA_BINARY_PACKED"},
    ) as writer:
        for each in series:
            table = _table(stored, each)
            writer.write_table(table, row_group_size=len(table))
    return memoryview(content.getvalue())


def _table(stored: StoredTrial, series: Series) -> Any:
    count = len(series.nanoseconds)
    same = np.zeros(count, dtype=np.int32)

    def named(text: str) -> Any:
        return pyarrow.DictionaryArray.from_arrays(same, [text])

    return pyarrow.Table.from_arrays(
        [
            named(stored.trial.environment),
            named(stored.trial.workload),
            np.full(count, stored.trial.block, dtype=np.int32),
            np.full(count, stored.number, dtype=np.int32),
            np.full(count, series.size, dtype=np.int64),
            np.full(count, series.rank, dtype=np.int32),
            np.full(count, series.messages, dtype=np.int32),
            np.arange(count, dtype=np.int64),
            np.ascontiguousarray(series.nanoseconds, dtype=np.int64),
        ],
        schema=_SCHEMA,
    )


def from_parquet(content: bytes, wanted: Sequence[tuple[int, SeriesFacts]]) -> Iterator[Series]:
    """The times of the row groups with the numbers in `wanted`, one series after the other."""
    with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content)) as file:
        for group, facts in wanted:
            column = file.read_row_group(group, columns=["nanoseconds"]).column(0)
            yield Series(facts.size, facts.rank, facts.messages, column.to_numpy())
