"""What a stage's container may see and use."""

from pathlib import Path

import pytest

from tasks.container import HOME, Machine, Options, container_name, options
from tasks.launchers import Job
from training.config_load import load_config
from training.errors import ConfigError
from training.plan import plan

GIB = 1 << 30


def made(stage: str, profile: str = "tiny", overrides=None, **environment: str) -> Options:
    config = load_config(profile, "anchorloop", {"iterations": 1, **(overrides or {})})
    entry = next(e for e in plan(config) if e.spec.stage == stage)
    return options(job(stage), entry.spec, Machine(64 * GIB, environment, "1000:1000"))


def job(stage: str, store: str = "/store") -> Job:
    out = Path(store) / "0123"
    return Job(stage, out / "spec.json", out, out / "log", run="r", run_id="f00d")


def seen(made: Options) -> dict[str, tuple[str, bool]]:
    return {m["Target"]: (m["Source"], bool(m["ReadOnly"])) for m in made.host["mounts"]}


def test_only_the_store_can_be_written() -> None:
    mounts = seen(made("curriculum"))
    assert [target for target, (_, read_only) in mounts.items() if not read_only] == ["/store"]
    assert mounts["/store"][0] == "/store"
    assert {f"{HOME}/training", f"{HOME}/sandbox_image"} <= set(mounts)
    assert any(target.endswith("templates/tiny_curriculum.txt") for target in mounts)


@pytest.mark.parametrize("stage", ["anchor", "task_pool", "base_model"])
def test_a_stage_without_tool_or_gpu_gets_neither(stage: str) -> None:
    options = made(stage, CUDA_VISIBLE_DEVICES="0,1")
    assert options.host["security_opt"] == ["no-new-privileges"]
    assert options.host["device_requests"] == []
    assert options.host["network_mode"] == "none"
    assert options.unmasked == {}


def test_a_stage_with_the_tool_may_make_namespaces() -> None:
    assert "seccomp=unconfined" in made("executor").host["security_opt"]
    assert made("executor").unmasked
    assert not made("executor", overrides={"rollout": {"tool": False}}).unmasked


def test_with_supervisors_beside_it_a_stage_needs_no_namespaces_of_its_own() -> None:
    config = load_config("tiny", "anchorloop", {"iterations": 1})
    spec = next(e.spec for e in plan(config) if e.spec.stage == "executor")
    made = options(job("executor"), spec, Machine(64 * GIB, {}, "1000:1000"), Path("/store/s"))
    assert made.host["security_opt"] == ["no-new-privileges"]
    assert not made.unmasked
    folder = made.container["environment"]["ANCHORLOOP_SANDBOX_FOLDER"]
    assert seen(made)[folder] == ("/store/s", False)


def test_gpus_are_those_that_are_named() -> None:
    (request,) = made("executor", "qwen3-4b").host["device_requests"]
    assert (request["Count"], request["DeviceIDs"]) == (8, [])
    asked = {"trainer": {"gpus_per_node": 2}}
    options = made("executor", "qwen3-4b", asked, CUDA_VISIBLE_DEVICES="3, GPU-5")
    (request,) = options.host["device_requests"]
    assert request["DeviceIDs"] == ["3", "GPU-5"]
    assert request["Capabilities"] == [["gpu"]]


def test_gpu_locks_are_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.gpu_locks.FOLDER", tmp_path / "locks")
    assert seen(made("executor", "qwen3-4b"))["/tmp/anchorloop-gpus"][0] == str(tmp_path / "locks")
    assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777
    assert "/tmp/anchorloop-gpus" not in seen(made("executor"))
    assert "/tmp/anchorloop-gpus" not in seen(made("executor", "qwen3-4b", RAY_ADDRESS="a:1"))


@pytest.mark.parametrize("named", ["", "-1", "0"])
def test_too_few_named_gpus_are_refused(named: str) -> None:
    with pytest.raises(ConfigError, match=r"CUDA_VISIBLE_DEVICES names . GPUs and .* is 8"):
        made("executor", "qwen3-4b", CUDA_VISIBLE_DEVICES=named)


def test_only_a_stage_that_fetches_reaches_the_network_and_the_token(
    tmp_path: Path,
) -> None:
    world = {"HF_TOKEN": "secret", "HF_HOME": str(tmp_path / "cache")}
    fetching = made("base_model", "qwen3-4b", **world)
    assert fetching.host["network_mode"] == "bridge"
    assert fetching.container["environment"]["HF_TOKEN"] == "secret"
    assert seen(fetching)[fetching.container["environment"]["HF_HOME"]][0] == world["HF_HOME"]
    offline = made("base_model", "qwen3-4b", **world, HF_HUB_OFFLINE="1")
    assert offline.host["network_mode"] == "none"
    training = made("executor", "qwen3-4b", **world)
    assert training.host["network_mode"] == "none"
    assert "HF_TOKEN" not in training.container["environment"]


def test_a_stage_that_joins_a_cluster_shares_the_hosts_network() -> None:
    options = made("executor", "qwen3-4b", RAY_ADDRESS="first:6379")
    assert options.host["network_mode"] == "host"
    assert options.container["environment"]["RAY_ADDRESS"] == "first:6379"
    assert made("task_pool", "qwen3-4b", RAY_ADDRESS="first:6379").host["network_mode"] == "none"


def test_a_model_folder_is_seen_and_must_be_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    asked = {"model": {"source": "folder", "name": str(folder)}}
    assert seen(made("base_model", "qwen3-4b", asked))[str(folder)] == (str(folder), True)
    monkeypatch.chdir(tmp_path)
    asked = {"model": {"source": "folder", "name": "m"}}
    with pytest.raises(ConfigError, match="name the whole path"):
        made("base_model", "qwen3-4b", asked)


def test_memory_is_left_to_the_machine() -> None:
    host = made("executor").host
    assert host["mem_limit"] == host["memswap_limit"] == 60 * GIB
    assert host["shm_size"] == 32 * GIB


def test_names_tell_stores_apart_and_labels_say_whose_it_is() -> None:
    assert container_name(job("executor")) == container_name(job("executor"))
    assert container_name(job("executor")) != container_name(job("executor", "/other"))
    labels = made("executor").container["labels"]
    assert labels["anchorloop.run"] == "r"
    assert labels["anchorloop.stage"] == "executor"
    assert labels["anchorloop.identity"] == "0123"
