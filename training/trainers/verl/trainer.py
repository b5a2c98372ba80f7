"""verl's synchronous trainer, driven by our stages instead of by a data loader.

The stage decides what is sampled and what is learnt; workers, servers, queues and weight transfers
are verl's. Everything here blocks, so the backend calls it on a thread of its own.
"""

import math
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_resource_name

from training.errors import InfraError, NumericError
from training.rollout.trajectory import Trajectory
from training.trainers.verl.agent_loop import TOKENS, Order
from training.trainers.verl.layout import Gpu, lay_out
from training.trainers.verl.loss import ROW_FIELDS, PolicyLoss
from training.trainers.verl.worker import BaseReferenceWorker

_PARTITION = "train"
_LOOK_SECONDS = 0.2
_VERL_FIELDS = dict(
    zip(TOKENS, ("prompts", "responses", "response_mask", "rollout_log_probs"), strict=True)
)

Row = tuple[str, float, float]
"""Key of a trajectory in verl's queue, its advantage and its upper clip width."""


class StageTrainer(PPOTrainerSync):
    """Samples by `order` and `collect`, learns by `learn`; start it with `start`."""

    def start(self, loss: PolicyLoss) -> None:
        """Start workers and servers, and give the workers the loss."""
        self.init()
        self.actor_rollout_wg.set_loss_fn(loss)
        self.agent_loop_manager = AgentLoopManagerTQ.create(
            config=self.config,
            llm_client=self.get_llm_client(),
            teacher_client=None,
            reward_loop_worker_handles=None,
        )
        ranks = self.actor_rollout_wg._query_dispatch_info("actor")
        self._ranks = max(ranks) + 1
        self._keys: dict[str, dict[str, Any]] = {}

    def sleep(self) -> None:
        """The servers give their GPU memory back."""
        self.checkpoint_manager.sleep_replicas()

    def wake(self) -> None:
        """The servers take GPU memory and the newest weights."""
        self.checkpoint_manager.update_weights(self.global_steps)

    def gpus(self) -> list[Gpu]:
        """The GPU of each rank."""
        workers = self.actor_rollout_wg.workers
        places = [worker.__ray_call__.remote(_place) for worker in workers]
        return [Gpu(*place) for place in ray.get(places)]

    def order(self, orders: Sequence[Order], members: int) -> list[str]:
        """Ask for a group of each order; returns the names to `collect` them by."""
        names = [uuid.uuid4().hex for _ in orders]
        batch = tu.get_tensordict(
            {
                "uid": names,
                "index": list(range(len(names))),
                "order": [order.to_plain() for order in orders],
                "__rollout_n__": [members] * len(names),
            }
        )
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        self._submit_batch_to_rollout(batch)
        return names

    def collect(
        self, names: Sequence[str], members: int, deadline_seconds: float
    ) -> list[dict[int, tuple[str, Trajectory]]]:
        """For each name the trajectories that came about, by member, with their keys.

        Raises `InfraError` when they are not all there within the deadline.
        """
        deadline = time.monotonic() + deadline_seconds
        while True:
            tags = tq.kv_list(partition_id=_PARTITION).get(_PARTITION, {})
            over = {name for name in names if tags.get(name, {}).get("status") in _OVER}
            if len(over) == len(names):
                break
            if time.monotonic() > deadline:
                raise InfraError(
                    f"{len(names) - len(over)} of {len(names)} groups were not sampled within "
                    f"{deadline_seconds:g} s (trainer.deadline_seconds); look at the log, then "
                    "retry"
                )
            time.sleep(_LOOK_SECONDS)
        places = {f"{name}_{m}_0": (i, m) for i, name in enumerate(names) for m in range(members)}
        found = [key for key in places if key in tags]
        groups: list[dict[int, tuple[str, Trajectory]]] = [{} for _ in names]
        self._keys |= {key: tags[key] for key in found}
        tq.kv_clear(keys=list(names), partition_id=_PARTITION)
        if found:
            fields = [*_VERL_FIELDS.values(), "extra_fields"]
            data = tq.kv_batch_get(keys=found, partition_id=_PARTITION, select_fields=fields)
            for key, row in zip(found, _records(data), strict=True):
                group, member = places[key]
                groups[group][member] = (key, Trajectory.from_json(row))
        return groups

    def learn(self, steps: Sequence[Sequence[Row]]) -> dict[str, float]:
        """Take one optimiser step for each list of rows; returns verl's metrics.

        Raises `NumericError` before the update where the policy's own log-probabilities are not
        finite. All ratios refer to the weights as they are now. Everything sampled so far is
        dropped. The servers must sleep.
        """
        rows = [row for step in steps for row in step]
        keys = [key for key, _, _ in rows]
        tags = [self._keys[key] for key in keys]
        lengths = [[self._keys[key]["seq_len"] for key, _, _ in step] for step in steps]
        dealt = lay_out(lengths, self._ranks)
        size = len(dealt[0][0]) * self._ranks
        batch = upsample_batch_to_divisible_size(
            KVBatchMeta(partition_id=_PARTITION, keys=keys, tags=tags),
            size * len(steps),
            self.tokenizer.eos_token_id,
        )
        fill = iter(range(len(rows), len(batch)))
        flat = [(s, i) for rank in dealt for s, part in enumerate(rank) for i in part]
        order = [next(fill) if i is None else i for _, i in flat]
        batch.reorder(order)
        counts = [len(step) for step in steps]
        columns = [
            [0.0 if i is None else rows[i][1] for _, i in flat],
            [0.0 if i is None else rows[i][2] for _, i in flat],
            [float(counts[s]) for s, _ in flat],
        ]
        metrics: dict[str, float] = {}
        batch = self._compute_old_log_prob(batch, metrics)
        _require_finite(metrics)
        if self.use_reference_policy:
            self._compute_ref_log_prob(batch, metrics)
        # Put last: what this returns names every field that the queue now holds.
        values = {n: _column(c) for n, c in zip(ROW_FIELDS, columns, strict=True)}
        batch = tq.kv_batch_put(
            keys=batch.keys,
            partition_id=_PARTITION,
            fields=TensorDict(values, batch_size=len(batch)),
            tags=batch.tags,
        )
        self.config.actor_rollout_ref.actor.ppo_mini_batch_size = size
        self._update_actor(batch, metrics)
        self.forget(batch.keys)
        self.global_steps += 1
        return metrics

    def forget(self, further: Sequence[str] = ()) -> None:
        """Drop everything sampled from verl's queue."""
        keys = list({*self._keys, *further})
        if keys:
            tq.kv_clear(keys=keys, partition_id=_PARTITION)
        self._keys = {}

    def write_checkpoint(self, folder: Path, step: int) -> None:
        """Weights, optimiser and scheduler in parts by rank, and weights for others in one."""
        self.actor_rollout_wg.save_checkpoint(str(folder), None, step)

    def read_checkpoint(self, folder: Path, step: int) -> None:
        """Go on from a checkpoint that `write_checkpoint` wrote; the servers must sleep."""
        self.actor_rollout_wg.load_checkpoint(str(folder))
        self.global_steps = step

    def _init_dataloader(self) -> None:
        """There is none: the stage hands over what is to be sampled."""
        self.total_training_steps = self.config.trainer.total_training_steps
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.optim.total_training_steps = (
                self.total_training_steps
            )

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(BaseReferenceWorker)

    def on_init_end(self) -> None:
        """The servers sleep until `wake`."""

    def _load_checkpoint(self) -> None:
        """The stage restores by `read_checkpoint`."""
        self.global_steps = 0


_OVER = ("finished", "failure")
_OF_LOGPROBS = ("actor/entropy", "training/rollout_probs_diff_mean")
"""verl's metrics, before an update, that are finite exactly where the log-probabilities are."""


def _require_finite(metrics: Mapping[str, Any]) -> None:
    for name in _OF_LOGPROBS:
        if name in metrics and not math.isfinite(float(metrics[name])):
            raise NumericError(f"{name} is {metrics[name]}: the policy's weights have diverged")


def _place(_: Any) -> tuple[str, str]:
    """Where a worker is, told by itself."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_accelerator_ids()[get_resource_name()][0]


def _records(data: TensorDict) -> list[dict[str, Any]]:
    """Trajectories as plain records, from verl's tensors and what our agent loop put beside."""
    columns = {ours: data[theirs].unbind() for ours, theirs in _VERL_FIELDS.items()}
    records = []
    for number, extra in enumerate(data["extra_fields"]):
        record = dict(getattr(extra, "data", extra)["record"])
        records.append(record | {name: c[number].tolist() for name, c in columns.items()})
    return records


def _column(values: Sequence[float]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float32)[:, None]
