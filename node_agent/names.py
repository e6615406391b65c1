"""The names that a job's callers of v1alpha1 have for its devices.

slime's published callback wants a group for its trainers and another for its samplers, and refuses to run
where both are the same. So a job that shares all its devices in one group has a second name for it: what the
one name acquires, the other has too, and the lease ends when it was yielded by each that it was acquired by.
"""

from __future__ import annotations

from slurm_interleave.client.core.errors import WrongState

TRAINER, SAMPLER, OWN = "trainer", "sampler", "own"


def role_groups(group: str, role: str) -> tuple[str, str]:
    """Return what the trainers and the samplers of a job in *group* call their devices."""
    return (
        group if role != SAMPLER else f"{group}/{TRAINER}",
        group if role == SAMPLER else f"{group}/{SAMPLER}",
    )


class Names:
    """Which of them one job holds its devices by. A slash is in no group's own name."""

    def __init__(self, group: str, role: str) -> None:
        self._group = group
        self._role = role
        self._held: set[str] = set()

    def group(self, name: str) -> str:
        """Return the group that *name* means, empty for devices that are the job's alone.

        Raises `WrongState` for the devices of a role that another component of the job has.
        """
        group, slash, role = name.partition("/")
        if not slash or group != self._group or role not in (TRAINER, SAMPLER, OWN):
            return name
        if role == OWN:
            return ""
        if self._role and role != self._role:
            raise WrongState(
                f"the job is in group {group} as its {self._role}, and {name} are devices of another "
                "component, which takes turns for itself; if it shares them with nobody, "
                f"set TIMESLICE_{role.upper()}_GROUP={group}/{OWN}"
            )
        return group

    def acquired(self, name: str) -> None:
        """Note a grant."""
        if self.group(name) == self._group:
            self._held.add(name)

    def ends(self, name: str) -> bool:
        """Tell whether a yield of *name* ends the lease, or only that name for it.

        An agent that is new knows no names: the lease then lasts until the group's own is yielded.
        """
        if self.group(name) != self._group:
            return True
        return self._held <= {name} and (name == self._group or name in self._held)

    def all_gone(self) -> None:
        """Note that all processes have ended that acquired until now: they yield nothing any more."""
        self._held.clear()

    def yielded(self, name: str) -> None:
        """Note a yield."""
        self._held.discard(name)
