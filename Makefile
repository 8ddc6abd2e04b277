# make demo   cluster Iris as the paper does, print its Table I beside ours, write a picture
# make test   everything that can be tested on this machine
# make trust  the same things broken and repeated for half an hour; writes docs/reliability.md
# make check  lint, format, types, import layers
# make docs   the documentation as a site, into site/; a warning fails it
# make bench  quality on the paper's cases (data through GPUTABU_DATA) and speed against scikit-learn
# make bench-quality  how near to the best known clusterings in how much time, beside other packages
# make counts        what an iteration on the GPU reads, launches, copies; counted on the CPU by hostcuda
# make kernel-table  registers, spills, occupancy of every kernel on every architecture, into kernels/README.md
# make notebooks     notebooks/*.ipynb from their sources, without outputs
# Each sets up what it needs in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test trust check format docs bench bench-quality counts kernel-table notebooks wheel clean

demo: $(READY)
	$(BIN)/python benchmarks/demo.py --out demo

# The real CuPy is only asked for its names, so it lies apart: a CuPy without a GPU would make "auto" warn.
test: $(READY) $(VENV)/.cupy
	GPUTABU_CUPY=$(CURDIR)/$(VENV)/cupy $(BIN)/python -m pytest -n auto --dist worksteal

trust: $(READY)
	$(BIN)/python tests/trust.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python notebooks/sync.py --check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs site

bench: $(READY)
	$(BIN)/python benchmarks/bench.py

# Without what the peers ask for: some would bring an older NumPy.
bench-quality: $(READY)
	-for peer in bkmeans flspp faiss-cpu; do $(BIN)/python -m pip install --quiet --no-deps $$peer; done
	$(BIN)/python benchmarks/quality.py --out quality

counts: $(READY)
	tests/hostcuda/run $(BIN)/python benchmarks/counts.py

kernel-table: $(READY)
	$(BIN)/python benchmarks/kernel_table.py --readme

notebooks: $(READY)
	$(BIN)/python notebooks/sync.py

wheel: $(READY)
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) dist demo quality site docs/made .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.cupy: $(READY)
	-$(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/cupy cupy-cuda12x cuda-pathfinder
	@touch $@

# Debian keeps venv in a package of its own.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gputabu needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
