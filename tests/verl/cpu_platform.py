"""A verl platform for the CPU, for the tests alone.

Loaded by every verl process through VERL_USE_EXTERNAL_MODULES=cpu_platform with VERL_PLATFORM=cpu.
It makes known what verl supports elsewhere (FSDP2 and vLLM on a device called cpu) and mends three
places that take a GPU for granted; the loops, losses, queues and weight transfers are verl's own.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
import wrapt
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(ModuleType):
    """torch.cpu with the parts of torch.cuda that verl calls, which do nothing here."""

    def __getattr__(self, name: str) -> Any:
        if name.endswith(("_allocated", "_reserved")):
            return lambda *_, **__: 0
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    @staticmethod
    def mem_get_info(*_: object) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    @staticmethod
    def get_rng_state(*_: object) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: object) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def get_device_name(*_: object) -> str:
        return "cpu"

    @staticmethod
    def current_device() -> str:
        return "cpu"


_device = _Device("torch_cpu_as_a_device")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One CPU as a device. For Ray a slot of training is the logical resource GPU."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _device)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "VERL_CPU_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False  # weights go to vLLM through shared memory

    def cudart(self) -> None:
        return None


@wrapt.when_imported("verl.utils.distributed")
def _join_with_gloo_alone(module: Any) -> None:
    """verl names a backend for the CPU and one for the device; here they are the same."""

    def join(timeout_second: float | None = None, backend: str | None = None) -> None:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                backend=backend or "gloo",
                rank=int(os.environ.get("RANK", "0")),
                world_size=int(os.environ.get("WORLD_SIZE", "1")),
                timeout=timedelta(seconds=timeout_second) if timeout_second else None,
                init_method=os.environ.get("DIST_INIT_METHOD"),
            )

    module.initialize_global_process_group_ray = join


@wrapt.when_imported("verl.workers.engine.fsdp.transformer_impl")
def _offer_fsdp2(module: Any) -> None:
    """The stock engine, registered for the device cpu; nothing is offloaded from host to host."""
    from verl.workers.engine.base import EngineRegistry

    module.CPUOffloadPolicy = lambda pin_memory=True: None
    register = EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device="cpu")
    register(module.FSDPEngineWithLMHead)


@wrapt.when_imported("verl.workers.rollout.vllm_rollout.bucketed_weight_transfer")
def _copy_weights_out_of_the_bucket(module: Any) -> None:
    """On the CPU the received tensors are views of a shared buffer that is about to be closed."""
    receive = module.BucketedWeightReceiver.receive_weights

    def receive_copies(self: Any, on_bucket_received: Any) -> Any:
        load = on_bucket_received
        return receive(self, lambda ws, last: load([(n, w.clone()) for n, w in ws], last))

    module.BucketedWeightReceiver.receive_weights = receive_copies


@wrapt.when_imported("verl.workers.rollout.vllm_rollout.utils")
def _keep_linear_weights(module: Any) -> None:
    """vLLM repacks linear weights for the CPU and drops the originals, which verl loads into."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain
