"""Where Ray puts scoring servers: on GPUs of their own, or on those that train."""

from collections.abc import Sequence

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.plugin.platform import get_platform

from training.trainers.verl.layout import Gpu, group_gpus
from training.trainers.verl.scoring import Options


def own_gpus(copies: int, size: int) -> list[Options]:
    """Places of copies on `size` GPUs each that nobody else has."""
    return [{"num_gpus": size}] * copies


def shared_gpus(gpus: Sequence[Gpu], size: int) -> list[Options]:
    """Places of copies on groups of `size` of these GPUs, which Ray counts as somebody's already.

    The process is told its GPUs as verl tells its own servers.
    """
    platform = get_platform()
    unset = dict.fromkeys(platform.ray_noset_envvars(), "1")
    return [
        {
            "num_gpus": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(group[0].node, soft=False),
            "runtime_env": {
                "env_vars": {
                    **unset,
                    platform.visible_devices_envvar(): ",".join(gpu.device for gpu in group),
                }
            },
        }
        for group in group_gpus(gpus, size)
    ]
