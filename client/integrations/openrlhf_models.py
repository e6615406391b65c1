"""What OpenRLHF 0.11.2 trains, made and loaded in the order of its `cli/train_ppo_ray.py`."""

from __future__ import annotations

from typing import Any

from slurm_interleave.client.core.errors import BadArgument


class Models:
    """The engines, and Ray's actors of each model; empty where there is none."""

    def __init__(self, args: Any) -> None:
        """Make them, in the order of OpenRLHF's script. Raises `BadArgument` for sizes that do not fit."""
        from openrlhf.trainer.ray import launcher, ppo_actor, ppo_critic

        self._args = args
        alone, critic = args.train.colocate_all, bool(args.critic.model_name_or_path)
        shared = _bundles(args, args.actor, args.ref) if alone or args.train.colocate_actor_ref else None
        self.engines = self._engines(shared if alone and not args.train.async_enable else None)
        self.actor = self._group(args.actor, ppo_actor.PolicyModelActor, shared)
        with_ref = args.algo.kl.init_coef > 0
        self.ref = self._group(args.ref, launcher.ReferenceModelActor, shared) if with_ref else None
        shared = shared if alone else None
        if critic and args.train.colocate_critic_reward:
            shared = _bundles(args, args.critic, args.reward)
        self.critic = self._group(args.critic, ppo_critic.CriticModelActor, shared) if critic else None
        remote = args.reward.remote_url
        self.reward = None if remote else self._group(args.reward, launcher.RewardModelActor, shared)

    def _engines(self, shared: Any) -> Any:
        from openrlhf.trainer.ray import create_vllm_engines

        args, vllm = self._args, self._args.vllm
        if not vllm.num_engines:
            return None
        wanted, there = vllm.num_engines * vllm.tensor_parallel_size, _devices(args.actor)
        if args.train.colocate_all and not args.train.async_enable and wanted != there:
            raise BadArgument(
                f"--train.colocate_all with {there} devices of the actor and {wanted} of the engines: "
                "vllm.num_engines * vllm.tensor_parallel_size has to be as much as the actor has"
            )
        return create_vllm_engines(
            vllm.num_engines,
            vllm.tensor_parallel_size,
            args.actor.model_name_or_path,
            args.train.seed,
            args.train.full_determinism_enable,
            vllm.enable_prefix_caching,
            vllm.enforce_eager,
            args.data.max_len,
            shared,
            vllm.gpu_memory_utilization,
            vllm.enable_sleep,
            None if args.algo.advantage.is_correction_level == "off" else "processed_logprobs",
            agent_func_path=args.train.agent_func_path,
            remote_rm_url=args.reward.remote_url,
            max_images_per_prompt=getattr(args.data, "max_images_per_prompt", 0),
        )

    def _group(self, size: Any, kind: Any, shared: Any) -> Any:
        from openrlhf.trainer.ray.launcher import RayActorGroup

        ds = self._args.ds
        return RayActorGroup(
            size.num_nodes,
            size.num_gpus_per_node,
            kind,
            pg=shared,
            num_gpus_per_actor=0.2 if shared else 1,
            duplicate_actors=ds.ring_attn_size * ds.tensor_parallel_size,
        )

    def load(self, strategy: Any, max_steps: int) -> None:
        """Load all of them; the critic comes last, as in OpenRLHF's script."""
        import ray

        args, names = self._args, self._args.actor.model_name_or_path
        waited = self.actor.async_init_model_from_pretrained(strategy, names, max_steps, self.engines)
        if self.ref is not None:
            waited += self.ref.async_init_model_from_pretrained(strategy, names)
        if self.reward is not None and args.reward.model_name_or_path:
            waited += self.reward.async_init_model_from_pretrained(strategy, args.reward.model_name_or_path)
        ray.get(waited)
        if self.critic is not None:
            path = args.critic.model_name_or_path
            ray.get(self.critic.async_init_model_from_pretrained(strategy, path, max_steps))

    def save(self) -> None:
        """Save what was trained."""
        import ray

        ray.get(self.actor.async_save_model())
        if self.critic is not None and self._args.critic.save_value_network:
            ray.get(self.critic.async_save_model())

    def trainer(self, base: Any, strategy: Any, **more: Any) -> Any:
        """Return a trainer of the class *base*."""
        groups = (self.actor, self.critic, self.reward, self.ref, self.engines)
        return base(self._args.actor.model_name_or_path, strategy, *groups, **more)


def _devices(size: Any) -> int:
    return int(size.num_nodes * size.num_gpus_per_node)


def _bundles(args: Any, first: Any, second: Any) -> Any:
    """Reserve the devices of *first* for both."""
    import ray
    from ray.util.placement_group import placement_group

    checked = second is not args.ref or args.algo.kl.init_coef > 0
    sizes = [(size.num_nodes, size.num_gpus_per_node) for size in (first, second)]
    if checked and sizes[0] != sizes[1]:
        raise BadArgument(f"models on the same devices have to be of one size, not {sizes[0]} and {sizes[1]}")
    bundles = [{"GPU": 1, "CPU": 1} for _ in range(_devices(first))]
    group = placement_group(bundles, strategy="PACK")
    ray.get(group.ready())
    return group
