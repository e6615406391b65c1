"""The variables of a job, which the SPANK plugin sets in its processes."""

from __future__ import annotations

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.names import role_groups
from slurm_interleave.node_agent.state import Job


def variables(job: Job, config: AgentConfig, sim: SimConfig, uuids: list[str]) -> dict[str, str]:
    """Return what tells the job's client, and those of existing integrations, where and who they are."""
    request, address = job.request, f"unix:{config.job_folder(job.job_id) / 'socket'}"
    trainers, samplers = role_groups(request.group, request.role)
    values = {
        "INTERLEAVE_JOB_ID": request.job,
        "INTERLEAVE_GROUP": request.group,
        "INTERLEAVE_ROLE": request.role,
        "INTERLEAVE_NODE": config.node,
        "INTERLEAVE_ORCHESTRATOR": config.orchestrator,
        "INTERLEAVE_SOCKET": address,
        "INTERLEAVE_TOKEN": job.token,
        "INTERLEAVE_BACKEND": request.backend or config.backend,
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "SLURM_GPUS_ON_NODE": str(len(uuids)),
        "TIMESLICE_ORCH_ADDR": address,
        "TIMESLICE_AGENT_ADDR": address,
        "AGENT_ENDPOINT": address,
        "TIMESLICE_JOB_ID": request.job,
        "TIMESLICE_GROUP": request.group,
        "TIMESLICE_TRAINER_GROUP": trainers,
        "TIMESLICE_SAMPLER_GROUP": samplers,
    }
    if request.max_wait_s:
        values["INTERLEAVE_MAX_WAIT"] = str(request.max_wait_s)
    if request.profile:
        values["INTERLEAVE_PROFILE"] = request.profile
    if request.max_slowdown is not None:
        values["INTERLEAVE_MAX_SLOWDOWN"] = str(request.max_slowdown)
    if job.resumes:
        values["INTERLEAVE_RESUME"] = "1"
    if config.backend == "sim":
        values["INTERLEAVE_SIM_DIR"] = str(sim.directory)
    return values


def as_text(values: dict[str, str]) -> str:
    """Return *values* as lines KEY=VALUE. Line breaks in them were refused at the border."""
    return "".join(f"{key}={value}\n" for key, value in values.items())
