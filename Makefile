# Two commands matter: `make quickstart` shows disttune at work, `make test` checks it. Both install
# what is missing first and are quick when nothing is. The work is done by scripts/.
.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all soak lint format bench wheel clean

heavy := $(basename $(notdir $(wildcard scripts/heavy/*.sh)))
.PHONY: $(addprefix test-,$(heavy))

help:
	@echo 'make quickstart   install what is missing, then tune, cache and reuse two examples'
	@echo 'make test         install what is missing, then run the tests'
	@echo 'make test-all     the heavier suites: $(heavy)'
	@echo 'make test-NAME    one of them'
	@echo 'make soak         repeat the tests that look for races, for SOAK_MINUTES (default 10)'
	@echo 'make lint         formatting, style and types; changes nothing'
	@echo 'make format       formats C++ and Python'
	@echo 'make bench        every benchmark; bench/run NAME for one'
	@echo 'make clean        removes build/ and nothing else'

quickstart:
	@scripts/quickstart.sh

test:
	@scripts/test.sh

test-all:
	@scripts/test_all.sh

$(addprefix test-,$(heavy)): test-%:
	@scripts/test_all.sh $*

soak:
	@scripts/soak.sh

lint:
	@scripts/lint.sh

format:
	@scripts/format.sh

bench:
	@scripts/bench.sh

clean:
	rm -rf build
