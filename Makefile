# make demo   cluster Iris as the paper does, print its Table I beside ours, write a picture
# make test   everything that can be tested on this machine
# make trust  the same things broken and repeated for an hour; writes docs/reliability.md
# make coverage  which lines and branches the tests run; leaves coverage.json for the same page
# make mutants   which small changes of the code the tests notice; takes an hour
# make check  lint, format, types, import layers
# make docs   the documentation as a site, into site/; a warning fails it
# make bench  quality on the paper's cases (data through GPUTABU_DATA) and speed against scikit-learn
# make bench-quality  how near to the best known clusterings in how much time, beside other packages
# make counts        what an iteration on the GPU reads, how coalesced, launches, copies; counted on the CPU by hostcuda
# make kernel-table  registers, spills, occupancy of every kernel on every architecture, into kernels/README.md
# make roofline      how long an iteration would take on a GPU: predicted from machine code, not measured; ROOFLINE=--check,
#                    --readme for kernels/README.md, --predictions for what `gputabu accept` and docs/benchmarks.md show
# make notebooks     notebooks/*.ipynb from their sources, without outputs
# Each sets up what it needs in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test trust coverage mutants check format docs bench bench-quality counts kernel-table roofline notebooks wheel clean

demo: $(READY)
	$(BIN)/python benchmarks/demo.py --out demo

# The real CuPy is only asked for its names, so it lies apart: a CuPy without a GPU would make "auto" warn.
test: $(READY) $(VENV)/.cupy
	GPUTABU_CUPY=$(CURDIR)/$(VENV)/cupy $(BIN)/python -m pytest -n auto --dist worksteal

trust: $(READY)
	$(BIN)/python tests/trust.py

# Once more without compiling, on small data: what numba compiles is Python, and only so are its lines seen. Without
# Ctrl-C at any moment: where one comes while coverage holds a lock of its own, that waits for ever.
UNCOMPILED := tests/test_bits.py tests/algorithms tests/backend/test_numerics.py
coverage: $(READY) $(VENV)/.cupy
	rm -f .coverage coverage.json
	GPUTABU_CUPY=$(CURDIR)/$(VENV)/cupy $(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report= \
	  -k "not ctrl_c_at_any_moment"
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n auto -m numba -W ignore::RuntimeWarning --cov --cov-append \
	  --cov-report= -k "bits or plain or ties or empty or canonical or move" $(UNCOMPILED)
	$(BIN)/python -m coverage json -q
	$(BIN)/python -m coverage report --skip-covered
	@$(BIN)/python -c "import json; t = json.load(open('coverage.json'))['totals']; \
	  share = t['covered_branches'] / t['num_branches']; print(f'{share:.1%} of all branches'); exit(share < 0.95)"

# In a folder of its own, as it wants an older pytest; with one thread, as it forks where others have started threads.
mutants: $(VENV)/mutants/.ready
	CXX=none OMP_NUM_THREADS=1 $(VENV)/mutants/bin/mutmut run
	$(VENV)/mutants/bin/python tests/mutants.py

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
	-for peer in bkmeans flspp superkmeans faiss-cpu; do $(BIN)/python -m pip install --quiet --no-deps $$peer; done
	$(BIN)/python benchmarks/quality.py --out quality
	$(BIN)/python benchmarks/quality.py --default

counts: $(READY)
	tests/hostcuda/run $(BIN)/python benchmarks/counts.py

kernel-table: $(READY)
	$(BIN)/python benchmarks/kernel_table.py --readme

roofline: $(READY)
	$(BIN)/python benchmarks/roofline.py $(ROOFLINE)

notebooks: $(READY)
	$(BIN)/python notebooks/sync.py

wheel: $(READY)
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) dist demo quality site docs/made mutants coverage.json roofline.json .coverage .trust.json .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.cupy: $(READY)
	-$(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/cupy cupy-cuda12x cuda-pathfinder
	@touch $@

$(VENV)/mutants/.ready: $(READY)
	$(BIN)/python -m venv $(VENV)/mutants
	$(VENV)/mutants/bin/python -m pip install --quiet mutmut==3.8.0 'pytest<9' '.[test]'
	$(VENV)/mutants/bin/python -m pip uninstall --quiet --yes gputabu
	@touch $@

# Debian keeps venv in a package of its own.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gputabu needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
