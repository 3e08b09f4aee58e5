# Everything runs in .venv, which the first command makes. PYTHON chooses the interpreter (3.10 to 3.14).
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3.13 python3.14 python3 python; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
# Another torch or DGL than constraints.txt names, for a new .venv: make test TORCH=2.6.0 DGL=1.1.3 TRITON=3.2.0
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
DGL ?= $(shell sed -n 's/^dgl==\([^;]*\);.*/\1/p' constraints.txt)
TRITON ?= $(shell sed -n 's/^triton==//p' constraints.txt)
BIN := .venv/bin
# Two workers more than cores, since with one more two cores idled for a third of the time, and at most four.
TESTERS ?= $(shell cores=$$(nproc); echo $$(( cores < 2 ? cores + 2 : 4 )))

.PHONY: setup test test-slow test-multihost test-browser test-gpu test-remote test-monitoring test-trackers golden format docs docs-check wheel wheel-test demo bench-attention bench-sparse bench-partition bench-train bench-evaluate bench-smoothing bench-epoch bench-gpu bench-verify bench-tables bench-waiting bench-compare bench-defaults bench-growth scoreboard scoreboard-quick paper paper-search paper-quick clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "nfdist needs Python 3.10 to 3.14: install one, or name it with make PYTHON=..."; exit 2; }
	$(PYTHON) -m venv .venv
	sed -e 's/^torch==.*/torch==$(TORCH)/' -e 's/^dgl==[^;]*/dgl==$(DGL)/' -e 's/^triton==.*/triton==$(TRITON)/' constraints.txt > .venv/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .venv/constraints.txt --editable ".[dev]"
	touch .venv/ready

test: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder

# What takes minutes: workers killed at many moments, 1,000 faults (NFDIST_FAULTS_SEED draws others), a long training.
test-slow: .venv/ready
	$(BIN)/python -m pytest -m slow --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Hosts in network namespaces. `make test` has all but the cut cable, too, and skips them where they cannot be made.
test-multihost: .venv/ready
	NFDIST_REQUIRE_MULTIHOST=1 $(BIN)/python -m pytest -m "slow or not slow" tests/multihost

# The pages of nfdist report in a headless Chromium (Debian: apt-get install chromium chromium-driver).
test-browser: .venv/ready
	NFDIST_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -m browser tests/browser

# What `make test` runs on a fake accelerator, on a GPU, but for tests that count what the fake one is asked for.
test-gpu: .venv/ready
	NFDIST_TEST_DEVICE=cuda $(BIN)/python -m pytest -m accelerator

# Against a real S3 server on loopback, moto's, which takes more to install than `make test` should.
test-remote: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .venv/constraints.txt --editable ".[dev,remote-test]"
	NFDIST_REQUIRE_S3=1 $(BIN)/python -m pytest tests/remote tests/test_remote.py tests/store/test_cache.py tests/runs/test_mirror.py

# launch/monitoring against a real Prometheus, which is no Python package: apt-get install --no-install-recommends prometheus
test-monitoring: .venv/ready
	NFDIST_REQUIRE_PROMETHEUS=1 $(BIN)/python -m pytest -m "slow or not slow" tests/monitoring

# Every experiment tracker with its package, of which `make test` has TensorBoard only.
test-trackers: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .venv/constraints.txt --editable ".[dev,mlflow,wandb]"
	NFDIST_REQUIRE_TRACKERS=1 $(BIN)/python -m pytest -m "slow or not slow" tests/observe/trackers

# Whether all golden cases have the numbers of another commit, bit for bit in float32, or within TOLERANCE.
TOLERANCE ?= 0
golden: .venv/ready
	@PYTHONPATH=. $(BIN)/python -m tests.golden.compare --tolerance $(TOLERANCE) $(BASE)

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# docs/configuration.md, from the settings themselves.
docs: .venv/ready
	$(BIN)/python docs/generate.py

# The documents: configuration.md is current, links lead somewhere, and what they tell to type works.
docs-check: .venv/ready
	$(BIN)/python -m pytest tests/docs

# dist/nfdist-VERSION-py3-none-any.whl. What an earlier build left would get into it.
wheel: .venv/ready
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

# Whether a wheel has everything: its files, and the demo, a recipe and a launcher run from it in empty folders.
wheel-test: .venv/ready
	$(BIN)/python -m pytest -m "slow or not slow" tests/test_wheel.py tests/cli/test_demo.py

demo: .venv/ready
	$(BIN)/nfdist demo

bench-attention: .venv/ready
	$(BIN)/python benchmarks/attention.py

bench-sparse: .venv/ready
	$(BIN)/python benchmarks/sparse.py

bench-partition: .venv/ready
	$(BIN)/python benchmarks/partition.py --full
	$(BIN)/python benchmarks/stream.py
	$(BIN)/python benchmarks/partition_memory.py
	$(BIN)/python benchmarks/store.py

bench-train: .venv/ready
	$(BIN)/python benchmarks/train.py

bench-evaluate: .venv/ready
	$(BIN)/python benchmarks/evaluate.py

bench-smoothing: .venv/ready
	$(BIN)/python benchmarks/smoothing.py

# Columns of tables on their way to features, beside reading the file and hashing the words.
bench-tables: .venv/ready
	$(BIN)/python benchmarks/tables.py

bench-verify: .venv/ready
	$(BIN)/python benchmarks/verify.py

bench-epoch: .venv/ready
	$(BIN)/python benchmarks/paper/epoch.py

# On a host with GPUs; without one, python benchmarks/gpu.py --fake --roofline counts what a step asks of a GPU.
bench-gpu: .venv/ready
	$(BIN)/python benchmarks/gpu.py

# Whether a benchmark is slower than at another commit: make bench-compare BASE=COMMIT BENCH="attention.py"
bench-compare: .venv/ready
	$(BIN)/python benchmarks/compare.py $(BASE) $(BENCH)

bench-waiting: .venv/ready
	$(BIN)/python benchmarks/paper/waiting.py

# What a training without settings comes to beside baselines, on the graphs in NFDIST_DATA: hours.
bench-defaults: .venv/ready
	$(BIN)/python benchmarks/defaults.py --rates 0.001,0.003,0.01

# How time and memory grow with the graph and the model, and 10^9 nodes on paper: docs/scaling.md.
bench-growth: .venv/ready
	$(BIN)/python benchmarks/growth.py --write
	$(BIN)/python benchmarks/growth.py --paper --write

# What a user would do at full size, beside what else there is: an hour and a half, 45 GB of disk; the same command goes
# on where it was stopped. PyG is installed for it alone.
scoreboard: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .venv/constraints.txt --editable ".[dev,scoreboard]"
	$(BIN)/python benchmarks/scoreboard/make_scoreboard.py

# The same stages at small scales: minutes.
scoreboard-quick: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .venv/constraints.txt --editable ".[dev,scoreboard]"
	$(BIN)/python benchmarks/scoreboard/make_scoreboard.py --quick
	@cat benchmarks/RESULTS-quick.md

# Settings for the tuned rows of the paper's tables, the same budget for each method: hours.
paper-search: .venv/ready
	$(BIN)/python benchmarks/paper/search.py

# The paper's tables and figures: hours, a row at a time; the same command goes on where it was stopped.
paper: .venv/ready
	$(BIN)/python benchmarks/paper/run.py
	$(BIN)/python benchmarks/paper/figures.py
	$(BIN)/python benchmarks/paper/table.py

# One seed and few epochs of a few rows: minutes.
paper-quick: .venv/ready
	$(BIN)/python benchmarks/paper/run.py --quick
	@cat benchmarks/paper/RESULTS-quick.md

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
