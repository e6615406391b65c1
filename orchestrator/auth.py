"""Who calls, and what he may do. A stranger learns nothing of jobs that are not his."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurm_interleave.client.connect import MUNGE_KEY, TOKEN_KEY, Call
from slurm_interleave.client.core import munge
from slurm_interleave.client.core.errors import Denied, NotAuthenticated
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.core.core import Core


@dataclass(frozen=True)
class Caller:
    """Who calls: a user, or a job by its token. An operator may see and do everything."""

    uid: int | None
    job_id: str = ""
    operator: bool = False


class Gate:
    """Turns the metadata of a call into a `Caller`."""

    def __init__(self, config: OrchestratorConfig, core: Core) -> None:
        self._config = config
        self._core = core
        self._operators = {0, *uids(config.operators)}

    async def identify(self, metadata: Mapping[str, str], call: Call) -> Caller:
        """Return who makes *call*. Raises `NotAuthenticated` if that is not proven, and for this call."""
        token = metadata.get(TOKEN_KEY)
        if token is not None:
            return self._by_token(token)
        if self._config.auth == "none":
            return Caller(uid=None, operator=True)
        credential = metadata.get(MUNGE_KEY)
        if credential is None:
            raise NotAuthenticated(
                "the call carries neither a job's token nor a MUNGE credential; inside a job use the socket "
                "in INTERLEAVE_SOCKET, outside set auth = 'munge' in [client]"
            )
        identity, payload = await asyncio.to_thread(munge.decode, credential, self._config.munge_socket)
        if payload != call.payload():
            raise NotAuthenticated(
                f"the MUNGE credential was not made for this call of {call.method}, and is good for no "
                "other; programs of slurm-interleave must be of one release"
            )
        return Caller(identity.uid, operator=identity.uid in self._operators)

    def require_job(self, caller: Caller, job_id: str) -> None:
        """Raise `Denied` unless *caller* may act for *job_id*."""
        if caller.operator or (caller.job_id and caller.job_id == job_id):
            return
        state = self._core.state
        uids = {state.members[key].uid for key in state.jobs.get(job_id, ())}
        if caller.job_id or caller.uid is None or caller.uid not in uids:
            raise Denied(f"job {job_id} is not yours")

    def require_operator(self, caller: Caller) -> None:
        """Raise `Denied` unless *caller* is root or a configured operator."""
        if not caller.operator:
            raise Denied("only root, SlurmUser and the operators in [orchestrator] may do this")

    def _by_token(self, token: str) -> Caller:
        digest = hashlib.sha256(token.encode()).hexdigest()
        key = self._core.state.tokens.get(digest)
        if key is None:
            raise NotAuthenticated(
                "the job's token is not known here: its node's agent has not registered the job yet"
            )
        return Caller(self._core.state.members[key].uid, job_id=key.job_id)


def user_name(uid: int | None) -> str:
    """Return the name of a user; empty where this host does not know it."""
    try:
        return pwd.getpwuid(-1 if uid is None else uid).pw_name
    except (KeyError, OverflowError):
        return ""


def uids(names: tuple[str, ...]) -> Iterator[int]:
    """Return the users of *names* that this host has; by name, since LDAP may not list all."""
    for name in names:
        with contextlib.suppress(KeyError):
            yield pwd.getpwnam(name).pw_uid
