"""What an operator does with the database, beside an orchestrator that runs: nothing here takes it over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.sql import check, migrate, rows, slices
from slurm_interleave.sql.engine import explained, may_open, name, open_engine
from slurm_interleave.sql.slices import SliceFilter

__all__ = ["Database", "may_open"]


class Database:
    """A database that is looked after; a context manager.

    *create* makes a SQLite file that is not there. Raises `ConfigError` if the database cannot be opened;
    each method raises `DatabaseFailed` if it does not answer.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self._engine = open_engine(url, create=create, patient=True)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    @property
    def name(self) -> str:
        """Its URL, without the password."""
        return name(self._engine.url)

    def upgrade(self) -> tuple[str, str]:
        """Bring it to this release's schema; return its revision before (empty: none) and after."""
        with explained(self._engine):
            return migrate.upgrade(self._engine)

    def problems(self) -> list[str]:
        """Return what is wrong with its schema or its rows, in words."""
        with explained(self._engine):
            return check.problems(self._engine)

    def count_before(self, moment: float) -> int:
        """Return how many slices ended before *moment*."""
        self.require_head()
        return slices.count_before(self._engine, moment)

    def prune(self, moment: float) -> Iterator[int]:
        """Delete the slices that ended before *moment*, some at each step; yield how many."""
        self.require_head()
        return slices.prune(self._engine, moment)

    def slices(self, wanted: SliceFilter) -> Iterator[Sequence[rows.Slice]]:
        """Return the ended turns that *wanted* names, page by page."""
        self.require_head()
        return slices.pages(self._engine, wanted)

    def require_head(self) -> None:
        """Raise `ConfigError` if its schema is not this release's."""
        with explained(self._engine), self._engine.connect() as db:
            found = migrate.revision(db)
        if found != migrate.HEAD:
            raise ConfigError(
                f"database {self.name} is at revision {found or 'none'}, this release needs {migrate.HEAD}; "
                "run: interleave db upgrade"
            )
