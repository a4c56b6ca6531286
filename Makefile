# `make help` lists the commands.  Every path is relative, so the checkout may lie in a folder
# with blanks in its name.

PYTHON ?= python3
STAMP := .venv/.setup-stamp
BIN := .venv/bin

# Install this project with one of its extras; uv does it sooner where there is one.
install = if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]'; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 \
			--constraint constraints.txt --editable '.[$(1)]'; \
	fi

AXE := build/axe/axe.min.js
AXE_VERSION := 4.14.1

# Tests start a thousand interpreters: each would compile all that it imports, wherever bytecode
# is not written, as in many containers.
COMPILED_ONCE = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(CURDIR)/build/bytecode'

FAST = tests/unit tests/model tests/transcripts tests/integration/testing

.DEFAULT_GOAL := help
.PHONY: help setup demo unit fast test test-slow check format serve bench bench-peers bench-cluster bench-cpu kills sim explore damage spec-kafka interop interop-kafka odd-batches django frameworks kafka-tools \
	worker-kafka docs docs-test console-test console-pictures cluster cluster-chaos interop-cluster cluster-groups chaos properties attacks fuzz soak bench-worker mutants house lock dist check-release pythons sparks dependency-range times \
	clean

help: ## Show this list.
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' \
		| while IFS='|' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

setup: $(STAMP) ## Make .venv with everything in it; does nothing when nothing changed.

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "sharegroup needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	@if command -v uv >/dev/null 2>&1; then [ -x $(BIN)/python ] || uv venv --quiet --python $(PYTHON) .venv; \
	else [ -x $(BIN)/pip ] || $(PYTHON) -m venv .venv; fi
	@$(call install,dev)
	@touch $(STAMP)

demo: setup ## Run the main job on real data and check that the counts add up.
	@$(BIN)/python -m examples.flights

unit: setup ## Run the pure tests: no broker, socket, process or waiting.
	@$(COMPILED_ONCE) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" tests/unit

fast: setup ## Run the pure tests, the models, the transcripts and a smoke test of a broker.
	@$(COMPILED_ONCE) $(BIN)/python -m pytest -q -n 2 --dist loadfile $(FAST)

test: setup ## Run the test suite in four processes, without what takes long.
	@$(COMPILED_ONCE) $(BIN)/python -m pytest -q -n 4 --dist loadfile --timeout=200 --ignore=tests/test_tidy.py -m "not slow"

test-slow: setup ## Run the tests that `make test` leaves out because each takes long.
	@$(COMPILED_ONCE) $(BIN)/python -m pytest -q -n 3 --dist loadfile -m slow

check: setup ## Lint, formatting, types, layers, tidiness.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy & types=$$!; \
		{ $(BIN)/lint-imports --no-cache && $(BIN)/python -m pytest -q tests/test_tidy.py; }; rest=$$?; \
		wait $$types && exit $$rest

format: setup ## Format the code.
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

serve: setup ## Start a broker on port 9092; data in build/serve.
	@$(BIN)/python -m sharegroup serve --port 9092 --data build/serve

bench-peers: setup ## Side by side with a real Apache Kafka and other queues; ARGS=--full for every line, ARGS=--only=P18,P19 for these.
	@$(call install,peers)
	@$(BIN)/python -m tests.bench.peers $(ARGS)

bench: bench-peers

bench-cpu: setup ## Processor time of a record in the broker, beside a real Apache Kafka; ARGS=--only=share.
	@$(call install,peers)
	@$(BIN)/python -m tests.bench.cpu $(ARGS)

kills: setup ## Kill a Spark query and its broker KILLS=20 times; BROKER=kafka, BROKER=cluster for three, EXECUTORS=2, KEPT=0.
	@$(BIN)/python -m tests.integration.spark.kills --kills $(or $(KILLS),20) --broker $(or $(BROKER),ours) \
		$(if $(EXECUTORS),--executors $(EXECUTORS)) $(if $(KEPT),--kept-bytes-max $(KEPT)) $(if $(SEED),--seed $(SEED))

sim: setup ## Simulate the whole broker on SEEDS=1000 seeds, from seed FROM=1 on.
	@$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),1000) --from $(or $(FROM),1)

explore: setup ## Search every state of a share partition in a larger world than `make test` does.
	@EXPLORE=all $(BIN)/python -m pytest -q tests/explore

damage: setup ## Damage each file of a data directory in every way, cut the power of hundreds of disks, kill brokers; `make test` does less.
	@DAMAGE=all $(BIN)/python -m pytest -q tests/faults/test_damaged_files.py tests/faults/test_power_loss_*.py tests/faults/test_kill9.py

spec-kafka: setup ## Run the tests of docs/spec.md against a real Apache Kafka 4.4 (needs Java and Maven).
	@SPEC_PEER=kafka $(BIN)/python -m pytest -q tests/spec

interop: setup ## Run all clients and tools of others against our broker and Kafka (needs a JDK and Maven).
	@$(BIN)/python -m tests.interop

odd-batches: setup ## Compare what we read from BATCHES=10000 odd record batches with Java, from SEED; then each reader on a log of LOG_BATCHES=500 (needs a JDK and Maven).
	@$(BIN)/python -m tests.interop.odd_readers $(or $(SEED),1) $(or $(BATCHES),10000)
	@ODD_SEED=$(or $(SEED),1) ODD_LOG_BATCHES=$(or $(LOG_BATCHES),500) $(BIN)/python -m pytest -q \
		tests/interop/test_odd_batches.py tests/integration/spark/test_odd_batches.py

interop-kafka: setup ## Run our client, Spark source and CLI against a real Apache Kafka; VERSION=4.3.1 (needs a JDK and Maven).
	@KAFKA_VERSION=$(VERSION) $(BIN)/python -m tests.interop --kafka

django: setup ## Test the backend of Django's tasks in build/django, on a Python that Django 6 runs on.
	@$(BIN)/python -m tests.integration.django.environment

frameworks: setup ## Install FastStream, Celery, Faust and Quix Streams in build/frameworks and try them on our broker; LATEST=1.
	@$(BIN)/python -m tests.interop.frameworks $(if $(LATEST),--latest)

kafka-tools: setup ## Make the scripts of Kafka's own tools in build/kafka-tools (needs a JDK and Maven).
	@$(BIN)/python -m tests.support.kafka_tools build/kafka-tools

worker-kafka: setup ## Run the worker's tests against a real Apache Kafka; VERSION=4.3.1 (needs Java and Maven).
	@KAFKA_VERSION=$(VERSION) SHAREGROUP_INTEROP=kafka $(BIN)/python -m pytest -q tests/integration/worker

cluster: setup ## Start three real Kafka brokers; faults are typed in.  SECURE=1, SEPARATE=1, VERSION=4.3.1.
	@$(BIN)/python -m tests.support.kafka_cluster_shell $(if $(VERSION),--version $(VERSION)) \
		$(if $(SECURE),--secure) $(if $(SEPARATE),--separate-controllers)

interop-cluster: setup ## Run everything that needs a real cluster; VERSION=4.3.1 for another release.
	@CLUSTER=all CLUSTER_VERSION=$(VERSION) $(BIN)/python -m pytest -q tests/cluster

cluster-groups: setup ## New groups around KILLS=10 deaths of brokers, beside the Java client; VERSION=4.3.1.
	@$(BIN)/python -m tests.cluster.new_groups --kills $(or $(KILLS),10) $(if $(VERSION),--version $(VERSION))

cluster-chaos: setup ## Break a real cluster under all our clients for SECONDS=600, from SEED, and account for each record.
	@$(BIN)/python -m tests.cluster_chaos --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) $(if $(REPORTS),--reports $(REPORTS))

console-test: setup $(AXE) ## Test the console in Debian's Chromium, with axe-core from npm in build/axe.
	@$(call install,browser)
	@CONSOLE=all $(COMPILED_ONCE) $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/integration/console

console-pictures: setup ## Take the pictures of docs/console in Debian's Chromium.
	@$(call install,browser)
	@$(BIN)/python -m tests.docs.console_pictures

$(AXE):
	@mkdir -p build/axe && cd build/axe && tar -xzf "$$(npm pack --silent axe-core@$(AXE_VERSION))" --strip-components=1 package/axe.min.js

docs: setup ## Build the documentation as a site into build/site; warnings are errors.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built: build/site/index.html"

docs-test: setup ## Run every example of README and docs in an environment made from the wheel (5 minutes); PAGES="docs/client.md".
	@$(BIN)/python -m tests.docs.snippets $(PAGES)

chaos: setup ## Kill, freeze and command a fleet of workers, and their broker, over 60,000 records, and account for every one, from SEED; poison handlers, a hundred restarts (10 minutes).
	@$(BIN)/python -m tests.faults.worker_chaos $(if $(SEED),--seed $(SEED))
	@CHAOS=all $(BIN)/python -m pytest -q tests/integration/worker/test_poison.py tests/integration/worker/test_poison_in_virtual_time.py tests/integration/worker/test_rolling_restarts.py tests/integration/worker/test_schedule_chaos.py

attacks: setup ## Run every attack on a broker process; `make test-slow` runs one of each kind (10 minutes).
	@ATTACKS=all $(BIN)/python -m pytest -q tests/attacks

fuzz: setup ## Fuzz the broker for SECONDS=600 from SEED; half of them through sockets to a broker process.
	@$(BIN)/python -m tests.fuzz --seconds $$(( $(or $(SECONDS),600) / 2 )) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.fuzz --seconds $$(( $(or $(SECONDS),600) / 2 )) $(if $(SEED),--seed $(SEED)) --socket

soak: setup ## Honest load beside ten attackers for MINUTES=30 (ARGS=--secured: TLS, SASL, quotas); the report is in build/soak.
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30) $(ARGS)

bench-cluster: setup ## Our share consumer beside confluent's and Java's on three real Kafka brokers (20 minutes).
	@$(BIN)/python -m tests.bench.cluster $(ARGS)

bench-worker: setup ## Measure what the worker framework costs, beside the bare client and loop.
	@$(BIN)/python -m tests.bench.worker
	@$(BIN)/python -m tests.bench.retry_tiers
	@$(BIN)/python -m tests.bench.redrive

house: setup ## Print how large the code base is, and how many arrows are between its boxes.
	@$(BIN)/python -m tests.support.house

properties: setup ## Run the tests that draw their cases with EXAMPLES=1000 of them; `make test` draws 40.
	@$(COMPILED_ONCE) EXAMPLES=$(or $(EXAMPLES),1000) MODEL_EXAMPLES=$(or $(EXAMPLES),1000) \
		$(BIN)/python -m pytest -q -n 2 -m hypothesis tests/unit tests/model

mutants: setup ## Change the core in a thousand places and see which change no test notices (an hour).
	@$(call install,mutants)
	@$(BIN)/python -m tests.mutants $(MODULES)

lock: ## Write constraints.txt anew from pyproject.toml (needs uv).
	@uv pip compile --quiet --universal --python-version 3.11 --extra browser --extra dev --extra mutants --extra peers --extra release --no-header \
		--no-emit-index-url --no-annotate pyproject.toml --output-file constraints.txt

dist: setup ## Build wheel and source distribution of the last commit in dist, and check them.
	@$(call install,release)
	@rm -rf dist build/dist && mkdir -p build/dist
	@git archive HEAD | tar -x -C build/dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist build/dist
	@$(BIN)/twine check --strict dist/*
	@cd dist && { sha256sum * 2>/dev/null || shasum --algorithm 256 *; }

check-release: setup ## List what stands in the way of a release (docs/releasing.md).
	@$(BIN)/python -m tests.packaging.release_checks

pythons: setup ## Test the wheel on every Python from 3.11 on that is here: README's worker, unit tests (5 minutes).
	@$(BIN)/python -m tests.packaging.pythons $(ARGS)

sparks: setup ## Run the Spark tests on the oldest and the newest Spark, Java and Python, without pandas (20 minutes).
	@$(BIN)/python -m tests.packaging.sparks $(ARGS)

dependency-range: setup ## Test the oldest and the newest versions of all dependencies (needs uv; 10 minutes).
	@$(BIN)/python -m tests.packaging.dependency_range $(ARGS)

times: setup ## Measure check, unit, fast, test and test-slow, and write the times into CONTRIBUTING.md; TARGETS="check unit".
	@$(BIN)/python -m tests.support.times $(TARGETS)

clean: ## Remove what the other commands made.
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
