# Two commands do all: `make run` and `make test`. Nothing is assumed but make and Python >= 3.11.

VENV := .venv
BIN := $(VENV)/bin
# Stamps in the environment itself: who deletes it deletes them, and nothing is installed twice.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.PHONY: run test chaos cluster simulate loadtest loadtest-ceiling bench bench-peers bench-all profile lint format demo clean help

help:
	@echo "make run       serve on port 3003, everything embedded, data in ./charon-data"
	@echo "make demo      a small training run through the SDK, read back and checked"
	@echo "make test      lint and the whole test suite"
	@echo "make lint      ruff, mypy, import arrows, the files of deploy/"
	@echo "make format    write what ruff would have"
	@echo "make simulate SEEDS=10000  the buffer against crashes, bad disks and a bad ClickHouse"
	@echo "make chaos MINUTES=10      real processes killed, disks filled, ClickHouse behind bad wires"
	@echo "make cluster MINUTES=10    two replicas behind nginx: rolling restarts, kills, scaling, an audit"
	@echo "make loadtest SCENARIO=steady RATE=2000 DURATION=60"
	@echo "               load a throw-away server, or HOST= KEY= CLICKHOUSE="
	@echo "make loadtest-ceiling      what the load's generator can send at most"
	@echo "make bench     how fast the parts and the whole are here, against the stored figures"
	@echo "make bench-peers           the same points into VictoriaMetrics, in turns"
	@echo "make bench-all             all figures of docs/benchmarks.md; QUICK=1 to see it work"
	@echo "make profile   where the time of a loaded worker goes"
	@echo "make clean     remove the environment and caches; data stays"

# exec: Ctrl-C reaches the server alone, and make does not report it as a failure of its own.
run: $(INSTALLED)
	@exec $(BIN)/charon serve

# Three at a time: many tests wait for processes of theirs rather than compute.
test: lint
	$(BIN)/python -m pytest -n 3 --dist worksteal

# A failing seed prints the command that shows it again. docs/reliability.md
simulate: $(INSTALLED_DEV)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)

# Each run of chance lasts so many minutes, and what is counted is counted in tens of millions. A
# failure prints its seed; CHAOS_SEED=… makes the same choices again.
MINUTES ?= 5
chaos: $(INSTALLED_DEV)
	CHAOS_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/chaos -s --durations=0 \
		--timeout=$$((60 * $(MINUTES) + 1800))

# nginx, replicas, Postgres and ClickHouse as deploy/ describes them, through restarts and kills.
cluster: $(INSTALLED_DEV)
	$(BIN)/python -m tests.cluster --minutes $(MINUTES)

# docs/benchmarks.md says what each scenario does. Exit status: 1 means lost rows or failures.
SCENARIO ?= steady
GENERATOR ?= locust
PROCESSES ?= 1
loadtest: $(INSTALLED_DEV)
	@$(BIN)/python -m loadtest.run $(SCENARIO) --generator $(GENERATOR) --processes $(PROCESSES) \
		$(if $(RATE),--rate $(RATE)) $(if $(DURATION),--duration $(DURATION)) $(if $(OUT),--out $(OUT)) \
		$(if $(WORKERS),--workers $(WORKERS)) $(if $(CONNECTIONS),--connections $(CONNECTIONS)) \
		$(if $(HOST),--host $(HOST) --key $(KEY) --clickhouse $(CLICKHOUSE))

loadtest-ceiling: $(INSTALLED_DEV)
	@$(BIN)/python -m loadtest.run $(SCENARIO) --generator $(GENERATOR) --processes $(PROCESSES) --ceiling

# Against loadtest/baseline.json; SAVE=1 stores what is measured there.
bench: $(INSTALLED)
	@$(BIN)/charon bench $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SAVE),--save)

bench-peers: $(INSTALLED)
	@$(BIN)/charon bench --peers $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SAVE),--save)

# All figures of docs/benchmarks.md, for a quiet machine: a quarter of an hour. QUICK=1 to see it work.
bench-all: $(INSTALLED_DEV)
	@$(BIN)/python -m loadtest.bench_all --out $(or $(OUT),bench-results) \
		$(if $(QUICK),--quick) $(if $(INTO),--into $(INTO)) $(if $(SAVE),--save)

profile: $(INSTALLED_DEV)
	@$(BIN)/python -m loadtest.profile

lint: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/check-jsonschema -qq --builtin-schema vendor.compose-spec deploy/compose.yaml

format: $(INSTALLED_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED_DEV)
	@$(BIN)/python -m loadtest.demo

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info

$(INSTALLED): pyproject.toml .ci/venv
	@.ci/venv $(VENV)
	@echo "installing Charon and its embedded ClickHouse (about 200 MB, the first time)"
	@$(BIN)/python -m pip install -qq -e .
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@echo "installing what tests need"
	@$(BIN)/python -m pip install -qq -e . --group dev
	@touch $@
