"""Streams come in chunks that know nothing of lines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airflow_learner_provider.cluster.api import split_lines


async def split(*chunks: bytes, longest: int | None = None) -> list[bytes]:
    """Split chunks that arrive one after another."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [line async for line in split_lines(stream(), longest=longest)]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="whole lines"),
        pytest.param([b"a", b"b\nc", b"d"], [b"ab", b"cd"], id="lines across chunks"),
        pytest.param([b"a\n\nb\n"], [b"a", b"", b"b"], id="an empty line"),
        pytest.param([], [], id="nothing"),
    ],
)
async def test_lines_are_put_together(chunks: list[bytes], lines: list[bytes]) -> None:
    assert await split(*chunks) == lines


async def test_a_line_that_never_ends_is_cut_and_says_so() -> None:
    chunks = [b"x" * 6, b"y" * 600, b"z\nnext\n"]
    assert await split(*chunks, longest=8) == [b"xxxxxxyy ... [cut after 8 bytes]", b"next"]


async def test_a_long_line_is_whole_where_nothing_is_cut() -> None:
    line = b"x" * 1_000_000
    assert await split(line[:500_000], line[500_000:] + b"\n") == [line]
