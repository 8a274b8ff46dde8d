# make help lists the targets. Cargo does the work; this file names what is worth running.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help

.PHONY: help
help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: assets
assets: ## build the programs that tests and demo run against: once, about ten minutes on two cores
	@tests/envtest/assets

.PHONY: build
build: ## build both programs and the test harness
	cargo build --workspace --bins

.PHONY: demo
demo: assets build ## the whole idea against a real control plane; KEEP=1 keeps it up until Ctrl-C
	@exec cargo run --quiet --package kcp-tests --bin demo

# More tests at a time than a small machine has cores: most wait for elections and controllers most of the time.
.PHONY: test
test: assets build ## every test: unit, table, snapshot and integration
	INSTA_UPDATE=no RUST_TEST_THREADS=6 cargo test --workspace --all-features --locked --no-fail-fast

.PHONY: unit
unit: ## the tests that need neither assets nor network
	INSTA_UPDATE=no cargo test --workspace --all-features --exclude kcp-tests

.PHONY: bench
bench: assets ## what a review, status -A and pool lease cost, beside bare servers, kubectl get and naive clients
	cargo build --quiet --release --locked --package kcp-webhook --bins --examples
	cargo bench --quiet --locked --package kcp-webhook --bench reviews
	cargo build --quiet --release --locked --package kubectl-kcp --package kcp-tests --bin kubectl-kcp --bin supervise \
		--bin status-all --bin pool-leases
	target/release/status-all
	target/release/pool-leases

.PHONY: soak
soak: RUNS ?= 1000
soak: assets ## RUNS randomized runs of lessees with faults at their writes, from SEED on; goes on where it was interrupted
	cargo build --quiet --release --locked --package kubectl-kcp --package kcp-tests --bin kubectl-kcp --bin supervise --bin soak
	target/release/soak $(RUNS) $(SEED)

.PHONY: load
load: ## 2,000 reviews/s for a minute, through a restart and new certificates: what became of each
	cargo build --quiet --release --locked --package kcp-webhook --package kcp-tests --bin kcp-webhook --bin supervise --bin load
	target/release/load

.PHONY: fuzz
fuzz: SECONDS ?= 900
fuzz: ## look for bytes that do harm: T=review, lint_yaml, patch or configuration, for SECONDS; wants cargo-fuzz and nightly
	cargo +nightly fuzz run --fuzz-dir tests/fuzz $(T) -- -max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=10 \
		-len_control=0 -max_len=8192 -dict=tests/fuzz/fields.dict

.PHONY: fuzz-corpus
fuzz-corpus: ## of what fuzzing T has reached, keep the hundred files that reach most
	rm -rf tests/fuzz/artifacts/least && mkdir -p tests/fuzz/artifacts/least
	cargo +nightly fuzz run --fuzz-dir tests/fuzz $(T) tests/fuzz/artifacts/least tests/fuzz/corpus/$(T) -- \
		-set_cover_merge=1 -use_counters=0 -max_len=4096
	rm -r tests/fuzz/corpus/$(T) && mkdir tests/fuzz/corpus/$(T)
	cd tests/fuzz/artifacts/least && cp $$(ls -tr | sed 100q) ../../corpus/$(T)

.PHONY: lint
lint: ## format and clippy, as CI runs them
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

.PHONY: crds
crds: ## write manifests/dev/crds from the types again
	UPDATE_CRDS=1 cargo test --package kcp-rules --features schema --test crds
