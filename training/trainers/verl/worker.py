"""verl's worker with a reference model of its own: the KL refers to the base model, not to the
weights that training started from."""

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from training.trainers.verl.configure import base_model


class BaseReferenceWorker(ActorRolloutRefWorker):
    """Actor, rollout and reference in one, as verl's; the reference is the base model."""

    def __init__(self, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        model = OmegaConf.merge(config.model, {"path": base_model(config)})

        def reference(config: TrainingWorkerConfig) -> TrainingWorker:
            return TrainingWorker(replace(config, model_config=omega_conf_to_dataclass(model)))

        self.ref_worker_cls = reference
