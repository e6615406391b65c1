"""Saved processes on disk: one folder a job, on a file system that all nodes have."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import ConfigError

log = logging.getLogger(__name__)
_ABOUT = "about.json"
_ATTEMPT = "attempt"


@dataclass(frozen=True)
class Image:
    """A saved process tree. *token* is the job's: its processes show it when they go on."""

    job_id: str
    uid: int
    group: str
    token: str
    pid: int
    outputs: dict[str, int]  # pipes by criu's names, with what they were: 1 or 2
    bytes: int = 0
    context: dict[str, Any] = field(default_factory=dict)  # where its device state is: in these processes
    carried: dict[str, Any] = field(default_factory=dict)  # see `Backend.carried`
    attempt: str = ""  # that was saved; empty: an earlier release did not say


class Images:
    """All images of this site; none where *directory* is not set."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @property
    def enabled(self) -> bool:
        """Whether processes can be saved here."""
        return self._directory is not None

    def folder(self, job_id: str) -> Path:
        """Return the folder of a job's image. Raises `ConfigError` where the site has none."""
        if self._directory is None:
            raise ConfigError(
                "[agent] image_dir is not set: name a folder for saved processes that all nodes share"
            )
        return self._directory / job_id

    def begin(self, job_id: str) -> Path:
        """Return an empty folder for a new image. Raises `ConfigError`."""
        fresh = self.begun(job_id)
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"[agent] image_dir: {fresh} cannot be made: {error.strerror}") from None
        return fresh

    def begun(self, job_id: str) -> Path:
        """Return the folder of an image that is not complete. Raises `ConfigError`."""
        return self._aside(job_id, "new")

    def finish(self, image: Image) -> Image:
        """Make what was written since `begin` the image of the job, at once or not at all.

        Raises `ConfigError`.
        """
        folder = self.folder(image.job_id)
        fresh = self.begun(image.job_id)
        try:
            size = sum(path.stat().st_size for path in fresh.iterdir() if path.is_file())
            image = Image(**{**asdict(image), "bytes": size})
            descriptor = os.open(fresh / _ABOUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(_written(image), file)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        except OSError as error:
            raise ConfigError(f"[agent] image_dir: {fresh} cannot be written: {error.strerror}") from error
        return image

    def drop(self, job_id: str) -> None:
        """Remove a job's image, and one that was begun."""
        for folder in (self.folder(job_id), self.begun(job_id)):
            shutil.rmtree(folder, ignore_errors=True)

    def put_aside(self, job_id: str) -> Path:
        """Keep an image that could not be restored, for people to look at; return where."""
        failed = self._aside(job_id, "failed")
        shutil.rmtree(failed, ignore_errors=True)
        self.folder(job_id).rename(failed)
        return failed

    def _aside(self, job_id: str, what: str) -> Path:
        folder = self.folder(job_id)
        return folder.with_name(f".{folder.name}.{what}")

    def find(self, job_id: str, uid: int, group: str) -> Image | None:
        """Return the image that a job of this id, user and group has left."""
        if self._directory is None:
            return None
        try:
            image = _read(json.loads((self.folder(job_id) / _ABOUT).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning("image.unreadable", extra={"job": job_id, "reason": repr(error)})
            return None
        return image if (image.uid, image.group) == (uid, group) else None


def _written(image: Image) -> dict[str, Any]:
    """Return *image* for agents of all releases: the first take what they do not know in `context` alone."""
    about = asdict(image)
    about["context"] = {**about["context"], _ATTEMPT: about.pop("attempt")}
    return about


def _read(about: dict[str, Any]) -> Image:
    context = dict(about["context"])
    attempt = context.pop(_ATTEMPT, "")
    known = {each.name for each in fields(Image)} - {"attempt"}
    given = {key: value for key, value in about.items() if key in known}
    return Image(**{**given, "context": context}, attempt=attempt)
