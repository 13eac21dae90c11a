# Every chore by name. `make` alone lists them.

CARGO ?= cargo
ARGS ?=
DIST ?= target/dist
FUZZ ?= frame packet every_parser capture host display script
FUZZ_SECONDS ?= 60
FUZZ_DIR := crates/fuzz/targets
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes: coverage counters and compared values for libFuzzer.
COVERAGE = --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares

.PHONY: help run test check studies packetdrill race race-stack race-tcp race-link race-sim race-net guide gallery selftest-full mutations fuzz schema dist dist-check setup

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

run: ## build plumb and print the ladder; ARGS="doctor" runs something else
	$(CARGO) build --release
	$(CARGO) run --release --quiet -- $(ARGS)

setup: ## install what tests and races need, when that is allowed
	tools/setup.sh

test: export RUST_TEST_THREADS ?= $(shell expr 4 \* $$(nproc))
test: setup ## every test; most of them wait for processes and networks, so four run on each CPU
	$(CARGO) test --workspace --no-fail-fast

check: ## formatting, lints, documentation links and the rules of the house
	$(CARGO) fmt --all --check
	rustfmt --edition 2024 --check crates/experiments/src/*/*.rs
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
	$(CARGO) xtask tidy

studies: ## the five studies with --quick, each with its page under target/studies, and every claim on one page; under 30 minutes
	$(CARGO) build --release
	mkdir -p target/studies
	for study in ipc stack gigabit scaling distributed; do \
	  target/release/plumb study $$study --quick -o target/studies/$$study.html || [ $$? -eq 3 ] || exit 1; done
	target/release/plumb claims -o target/studies/claims.html
	target/release/plumb scale -o target/studies/machines.html

selftest-full: ## 2,000 simulated tables for every preset and launch effect, and the rest of the self-test; about an hour
	$(CARGO) build --release
	target/release/plumb selftest --tables 2000 $(ARGS)

mutations: ## put each mended fault of the statistics back, and see a test or the self-test fail; ARGS="--only 4"
	$(CARGO) xtask mutations $(ARGS)

packetdrill: ## scripts by packetdrill itself against plumb's TCP; PACKETDRILL=/path SCRIPTS="/path …" ARGS="--system freebsd"
	$(CARGO) build -p plumb-packetdrill
	$(CARGO) xtask packetdrill --packetdrill $(PACKETDRILL) $(ARGS) $(SCRIPTS)

race: setup ## plumb against sockperf, iperf3 and qperf on the same CPUs; ARGS="--only tcp"
	$(CARGO) build --release
	$(CARGO) xtask race $(ARGS)

race-stack: setup ## plumb's stack against Linux's and smoltcp's, as mirrors; ARGS="--only spin"
	$(CARGO) build --release -p plumb -p plumb-mirror-smoltcp
	$(CARGO) xtask race-stack $(ARGS)

race-tcp: setup ## plumb's TCP against smoltcp's, and copies alone; ARGS="--only memory"
	$(CARGO) build --release -p plumb-mirror-smoltcp --bin plumb-race-tcp
	$(CARGO) xtask race-tcp $(ARGS)

race-link: setup ## plumb's link against what it promises, and Linux's and mininet's beside it; ARGS="--only rate"
	-CI=false tools/setup.sh mn=mininet
	$(CARGO) build --release -p plumb-netdev --example emulate
	$(CARGO) xtask race-link $(ARGS)

NS3_PARTS = ns3-core ns3-network ns3-internet ns3-applications ns3-point-to-point ns3-traffic-control ns3-nix-vector-routing
race-sim: ## plumb's simulator against ns-3 (Debian's libns3-dev): the same dumbbell, 10, 100 and 1,000 connections
	pkg-config --exists $(NS3_PARTS) || apt-get -qq install -y --no-install-recommends pkg-config g++ libns3-dev libgsl-dev libsqlite3-dev libxml2-dev
	$(CARGO) build --release -p plumb-sim --example race
	c++ -O3 -DNDEBUG $$(pkg-config --cflags $(NS3_PARTS)) benches/ns3/dumbbell.cc -o target/release/ns3-dumbbell $$(pkg-config --libs $(NS3_PARTS))
	$(CARGO) xtask race-sim $(ARGS)

race-net: setup ## plumb's client and agent against iperf3's and sockperf's, between two namespaces; ARGS="--only tcp"
	$(CARGO) build --release
	$(CARGO) xtask race-net $(ARGS)

guide: ## run the commands of the guide and of README.md, and build the book where mdbook is installed
	$(CARGO) test -p plumb --test cli guide::
	@if command -v mdbook >/dev/null; then mdbook build --dest-dir $(CURDIR)/target/guide docs/guide; \
	else echo "docs/guide is plain Markdown; for a book: cargo install mdbook"; fi

gallery: ## write the pictures of the guide, docs/guide/pictures, by the commands that it names
	PLUMB_WRITE_GALLERY=1 $(CARGO) test -p plumb --test cli gallery::

fuzz: ## libFuzzer on the packet parsers and a whole host, with a nightly toolchain; FUZZ="host" FUZZ_SECONDS=600
	@$(CARGO) +nightly --version >/dev/null 2>&1 || { \
	  echo "make fuzz needs a nightly toolchain: rustup toolchain install nightly"; \
	  echo "on stable, run the same checks with: cargo test -p plumb-fuzz"; exit 1; }
	RUSTFLAGS="$(COVERAGE)" $(CARGO) +nightly build --release --target $(HOST) --manifest-path $(FUZZ_DIR)/Cargo.toml --target-dir $(FUZZ_DIR)/target
	@for target in $(FUZZ); do mkdir -p $(FUZZ_DIR)/corpus/$$target $(FUZZ_DIR)/artifacts && \
	  $(FUZZ_DIR)/target/$(HOST)/release/$$target -max_total_time=$(FUZZ_SECONDS) -max_len=65536 \
	    -artifact_prefix=$(FUZZ_DIR)/artifacts/ $(FUZZ_DIR)/corpus/$$target || exit 1; done

schema: ## write docs/schema from the types, after a document changed its shape
	PLUMB_WRITE_SCHEMAS=1 $(CARGO) test -p plumb-analysis published_schemas

dist: ## static binary, man pages, completions and licences under target/dist
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --target $(HOST) -p plumb
	mkdir -p $(DIST)/man $(DIST)/completions
	cp target/$(HOST)/release/plumb README.md METHODS.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE $(DIST)/
	$(DIST)/plumb man $(DIST)/man
	for shell in bash zsh fish; do $(DIST)/plumb completions $$shell > $(DIST)/completions/plumb.$$shell; done

dist-check: setup dist ## run the static binary in an otherwise empty chroot, name resolution included (root)
	tools/static_check.sh $(DIST)/plumb
