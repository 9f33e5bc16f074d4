# Everything here is a script; CI calls the same ones.
.PHONY: run test test-all check fault bench mutants test-real test-pythons docs install clean

run: install        ## start a private daemon, run one prompt through it, stop everything
	@scripts/run

test: install       ## the tests
	@scripts/test

test-all: install   ## the tests, the long ones too
	@scripts/test --all

check: install      ## format, lint, types
	@scripts/check

fault: install      ## the fault tests at their full counts, with their figures
	@scripts/fault

bench: install      ## speed, as ratios measured side by side
	@scripts/bench

mutants: install    ## plant bugs in the machines and see each of them found
	@scripts/mutants

test-real: install  ## the real provider programs against a fake provider, where they can be had
	@scripts/test-real

test-pythons: install  ## the tests with the other Pythons that are here
	@scripts/test-pythons

install:
	@scripts/install

clean:
	@rm -rf -- .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
