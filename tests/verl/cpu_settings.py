"""What verl needs to be told on two cores without a GPU, and the environment of its processes."""

from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ENGINES = ("actor", "ref")
CPU: dict[str, Any] = {
    "trainer.device": "cpu",
    "actor_rollout_ref.model.use_remove_padding": False,
    "+actor_rollout_ref.model.override_config.attn_implementation": "eager",
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
    "actor_rollout_ref.actor.use_torch_compile": False,
    **{f"actor_rollout_ref.{e}.fsdp_config.use_torch_compile": False for e in _ENGINES},
    **{f"+actor_rollout_ref.{e}.fsdp_config.mixed_precision.param_dtype": "fp32" for e in _ENGINES},
    "actor_rollout_ref.rollout.enforce_eager": True,
    "actor_rollout_ref.rollout.free_cache_engine": False,
    "+actor_rollout_ref.rollout.enable_sleep_mode": False,
    "actor_rollout_ref.rollout.max_num_seqs": 32,
    # A prompt split over steps ends vLLM on the CPU: its generators cannot be set back.
    "actor_rollout_ref.rollout.enable_chunked_prefill": False,
    "actor_rollout_ref.rollout.max_num_batched_tokens": 8192,
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes": 16,
    "actor_rollout_ref.rollout.agent.num_workers": 1,
    "reward.num_workers": 1,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "transfer_queue.backend.SimpleStorage.total_storage_size": 2000,
    "ray_kwargs.ray_init.num_cpus": 16,
    "+ray_kwargs.ray_init.num_gpus": 2,
    "+ray_kwargs.ray_init.include_dashboard": False,
    "+ray_kwargs.ray_init.object_store_memory": 300_000_000,
}
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "cpu_platform",
    "PYTHONPATH": str(_HERE),
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # a process for each of the processors told above
    "RAY_enable_worker_prestart": "0",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
