"""A line of waiters, beside the same sorted anew after each change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.orchestrator.core.line import Line, Lot, Rank
from slurm_interleave.sql.rows import Key

LOTS: tuple[Lot, ...] = ((0.0, "x"), (1.0, "x"), (1.0, "y"), (1.0, "z"))
put = st.tuples(st.just("put"), st.integers(0, 9), st.integers(0, 9), st.sampled_from(LOTS))
remove = st.tuples(st.just("remove"), st.integers(0, 9), st.just(0), st.just(LOTS[0]))
heavier = st.tuples(st.just("heavier"), st.just(0), st.integers(0, 3), st.sampled_from(LOTS))


@given(st.lists(st.one_of(put, remove, heavier), max_size=40))
def test_a_line_is_in_order_after_any_change_and_any_rise_of_a_weight(
    changes: list[tuple[str, int, int, Lot]],
) -> None:
    weights = dict.fromkeys(LOTS, 0.0)
    line, waiting = Line(lambda lot: (lot[0], weights[lot])), dict[Key, tuple[Lot, int]]()
    for what, job, number, lot in changes:
        key = Key(str(job), "g")
        if what == "heavier":
            weights[lot] += number
        elif what == "remove" and key in waiting:
            del waiting[key]
            line.remove(key)
        elif what == "put" and key not in waiting:
            waiting[key] = lot, number
            line.put(key, lot, number)
        ranks = sorted(Rank((lot[0], weights[lot]), seq, key) for key, (lot, seq) in waiting.items())
        expect_order(line, ranks)


def expect_order(line: Line, ranks: list[Rank]) -> None:
    assert bool(line) is bool(ranks)
    assert not ranks or line.first() == ranks[0]
    assert list(line) == ranks
    for place, rank in enumerate(ranks):
        assert line.rank(rank.key) == rank
        assert set(line.before(rank)) == {other.key for other in ranks[:place]}
        assert not line.ends_with(rank) or rank == ranks[-1]
