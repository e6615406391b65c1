"""Brings a database to this release's schema with Alembic."""

from __future__ import annotations

import importlib.resources
import logging

import sqlalchemy as sa
from alembic import command
from alembic.config import Config


def upgrade(engine: sa.Engine) -> None:
    """Run the migrations that *engine*'s database has not seen yet, in one transaction where it can."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option(
        "script_location", str(importlib.resources.files("slurm_interleave.sql") / "migrations")
    )
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
