# make help lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help

target := $(or $(CARGO_TARGET_DIR),target)

# Always --workspace: with fewer packages Cargo selects other features of our dependencies and compiles them again.
demo_programs := --workspace --bin kubectl-kcp --bin kcp-webhook --bin supervise --bin demo --bin fault

# Runs a Cargo command and builds the assets at the same time: `all`, or nothing for those of the demo. Go uses the cores that
# Cargo leaves idle, and both cores once Cargo has ended. Otherwise Cargo would end last, on one core. With `set -m`, the assets
# have a process group of their own, which ends with this shell. In a session of their own, `nice` would have no effect (sched(7),
# autogroup).
with_assets = set -m; nice -n 19 tests/envtest/assets $(1) > /dev/null & assets=$$!; set +m; \
	trap 'kill -- -$$assets 2> /dev/null || true' EXIT; $(2); wait $$assets

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: assets
assets: ## build the programs that the tests and the demo run against, once: about seven minutes on two cores
	@tests/envtest/assets all

.PHONY: build
build: ## build both programs and the test harness
	cargo build --workspace --locked --bins

.PHONY: demo
demo: ## show the product on a real control plane; KEEP=1 keeps it up until Ctrl-C
	@$(call with_assets,,cargo build --locked $(demo_programs))
	@exec $(target)/debug/demo

# More threads than a small machine has cores, because most tests wait for elections and controllers most of the time. Not many
# more, because the API servers and controllers of a waiting test take processor time too: eight threads take longer than five.
.PHONY: test
test: ## run all tests but the long ones: unit, table, snapshot and integration
	@$(call with_assets,all,cargo build --workspace --all-features --locked --bins --tests)
	INSTA_UPDATE=no RUST_TEST_THREADS=5 cargo test --workspace --all-features --locked --tests --no-fail-fast

# The tests that `make test` leaves out because they take long, and the examples in doc comments, of which none runs yet. CI runs
# them after `make test`.
.PHONY: test-long
test-long: ## run the tests that take minutes each: tutorials, flows, upgrade paths, faults, predictions, policy types, Helm
	@$(call with_assets,all,cargo build --workspace --all-features --locked --bins --tests)
	@tests/helm/helm > /dev/null
	@tests/envtest/old-etcd > /dev/null
	@tests/envtest/s3 > /dev/null
	cargo test --workspace --all-features --locked --doc
	INSTA_UPDATE=no RUST_TEST_THREADS=4 cargo test --workspace --all-features --locked --tests -- \
		--ignored --skip leader_migration:: --skip real_machines:: --skip v1beta1_only::

# The tests that `make test` leaves out, because they need kube-controller-managers that take half an hour to build.
.PHONY: test-migration
test-migration: ROUNDS ?= 10
test-migration: ## test leader migration on kube-controller-manager 1.30, 1.35 and 1.37 too; moves Node IPAM ROUNDS times
	@tests/envtest/managers > /dev/null
	@$(call with_assets,all,cargo build --workspace --all-features --locked --bins --tests)
	MIGRATION_ROUNDS=$(ROUNDS) INSTA_UPDATE=no cargo test --workspace --all-features --locked --tests -- \
		--ignored --nocapture leader_migration

# The tests on real machines, which `make test` leaves out, because they need root and Debian packages. Two at a time, because a
# control plane needs half a gigabyte.
.PHONY: test-machines
test-machines: PART ?= short
test-machines: ## test on real machines (systemd, containerd, kubelet, kubeadm), PART=short or PART=full; needs root
	@case "$(PART)" in short|full) ;; *) echo "error: PART is short or full" >&2; exit 2;; esac
	@tests/real-machines
	@tests/envtest/machines $(if $(filter full,$(PART)),all) > /dev/null
	@$(call with_assets,all,cargo build --workspace --all-features --locked --bins --tests)
	RUST_TEST_THREADS=2 INSTA_UPDATE=no cargo test --workspace --all-features --locked --tests -- \
		--ignored $(if $(filter full,$(PART)),--nocapture) real_machines::$(PART)::

# A round takes about four minutes.
.PHONY: test-recovery
test-recovery: ROUNDS ?= 10
test-recovery: ## lose two of three real machines, and recover etcd, ROUNDS times in a row; needs root
	@tests/real-machines
	@tests/envtest/machines all > /dev/null
	@$(call with_assets,all,cargo build --workspace --all-features --locked --bins --tests)
	RECOVERY_ROUNDS=$(ROUNDS) INSTA_UPDATE=no cargo test --workspace --all-features --locked --tests -- \
		--ignored --nocapture etcd_is_recovered_from_the_machine_that_is_left

# Each version takes as long as the integration tests of `make test`.
.PHONY: support-matrix
support-matrix: ## run the integration tests with other versions of Kubernetes, etcd and Cluster API, and print a table; builds them once
	@tests/support-matrix

.PHONY: unit
unit: ## run the tests that need neither assets nor network
	INSTA_UPDATE=no cargo test --workspace --all-features --locked --exclude kcp-tests

# First the dictionary and the examples of `explain`. The programs contain these examples, so other tests see the new ones only
# after the next compilation.
.PHONY: generated
generated: ## write the files that tests compare with the code: snapshots, schemas, reference pages, the fuzz dictionary
	UPDATE_CORPUS=1 UPDATE_DOCS=1 cargo test --workspace --all-features --locked --exclude kcp-tests --lib --test corpus -- \
		the_dictionary_has_every_field the_page_describes_every
	INSTA_UPDATE=always UPDATE_SCHEMA=1 UPDATE_DOCS=1 cargo test --workspace --all-features --locked --exclude kcp-tests --no-fail-fast

.PHONY: monitoring
monitoring: ## test the alert rules of manifests/monitoring with promtool
	@tests/monitoring/promtool

.PHONY: helm
helm: ## check the Helm chart in manifests/helm, and compare what it renders with kustomize; builds Helm once
	@tests/helm/check

.PHONY: bench
bench: assets ## measure a review, status -A, pool lease and etcd snapshot beside other programs; needs 6 GB of disk
	cargo build --quiet --release --locked --package kcp-webhook --bins --examples
	cargo bench --quiet --locked --package kcp-webhook --bench reviews
	cargo build --quiet --release --locked --package kubectl-kcp --package kcp-tests --bin kubectl-kcp --bin supervise \
		--bin status-all --bin pool-leases --bin etcd-snapshot
	GOGC=100 $(target)/release/status-all
	$(target)/release/pool-leases
	$(target)/release/etcd-snapshot

.PHONY: soak
soak: RUNS ?= 1000
soak: assets ## run RUNS randomized runs of pool lessees whose writes fail, from SEED on; resumes after an interrupt
	cargo build --quiet --release --locked --package kubectl-kcp --package kcp-tests --bin kubectl-kcp --bin supervise --bin soak
	$(target)/release/soak $(RUNS) $(SEED)

.PHONY: soak-sets
soak-sets: ROUNDS ?= 10000
soak-sets: assets ## let lessees compete for overlapping sets of entries in ROUNDS rounds, for about an hour
	cargo build --quiet --release --locked --package kubectl-kcp --package kcp-tests --bin kubectl-kcp --bin supervise --bin soak
	$(target)/release/soak sets $(ROUNDS)

.PHONY: simulate
simulate: RUNS ?= 100000
simulate: ## simulate RUNS schedules of the lease protocol, from SEED on, with faults and kills; a failure says the seed
	RUNS=$(RUNS) SEED=$(or $(SEED),0) cargo test --release --locked --package kcp-pool --all-features --lib -- --ignored --nocapture many_schedules

.PHONY: mutants
mutants: ## bring back each known mistake in the lease protocol, in a copy of the sources, and require that the simulation finds it
	tests/mutants/run.sh

.PHONY: load
load: assets ## send 2,000 reviews/s for two minutes, through a restart, new certificates and a new CA, and check each answer
	cargo build --quiet --release --locked --package kcp-webhook --package kcp-tests --bin kcp-webhook --bin supervise --bin load
	$(target)/release/load

.PHONY: fuzz
fuzz: SECONDS ?= 900
fuzz: MAX_LEN ?= 8192
fuzz: ## fuzz T=review, lint_yaml, patch, configuration, leader_migration or cost for SECONDS; needs cargo-fuzz and nightly
	cargo +nightly fuzz run --fuzz-dir tests/fuzz $(T) -- -max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=10 \
		-len_control=0 -max_len=$(MAX_LEN) -dict=tests/fuzz/fields.dict

.PHONY: fuzz-corpus
fuzz-corpus: ## reduce the corpus of T to the hundred files with the most coverage
	rm -rf tests/fuzz/artifacts/least && mkdir -p tests/fuzz/artifacts/least
	cargo +nightly fuzz run --fuzz-dir tests/fuzz $(T) tests/fuzz/artifacts/least tests/fuzz/corpus/$(T) -- \
		-set_cover_merge=1 -use_counters=0 -max_len=4096
	rm -r tests/fuzz/corpus/$(T) && mkdir tests/fuzz/corpus/$(T)
	cd tests/fuzz/artifacts/least && cp $$(ls -tr | sed 100q) ../../corpus/$(T)

# d2 draws text as SVG, and is a Go program.
.PHONY: pictures
pictures: ## draw docs/pictures as SVG for the book; needs Go
	for picture in $$(ls docs/pictures/*.d2 | grep -v classes); do \
		go run oss.terrastruct.com/d2@v0.7.2 --dark-theme 200 --pad 24 $$picture docs/src/pictures/$$(basename $$picture .d2).svg \
			|| exit 1; \
	done

# termtosvg draws an asciicast as animated SVG, and is a program in Python. With the same versions, the same cast gives the same SVG.
.PHONY: recording
recording: termtosvg := $(target)/termtosvg/bin
recording: ## record the tutorial of the dead member from a run on a real control plane, and draw it; needs Python and script
	@$(call with_assets,all,cargo build --workspace --all-features --locked --bins --tests)
	UPDATE_RECORDING=1 INSTA_UPDATE=no cargo test --workspace --all-features --locked --test integration -- \
		--include-ignored --exact tutorials::dead_member
	python3 -m venv $(target)/termtosvg
	$(termtosvg)/pip install --quiet termtosvg==1.1.0 lxml==6.1.3 pyte==0.8.2 wcwidth==0.9.4
	$(termtosvg)/termtosvg render docs/pictures/dead-member.cast docs/src/pictures/dead-member.svg \
		--template window_frame_powershell --loop-delay 4000

.PHONY: lint
lint: ## check format and clippy as CI does
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	cargo clippy --locked $(demo_programs) -- -D warnings

# cargo-deny reads the advisories of RustSec from github.com. Without access to it: make deny CHECKS="licenses bans sources"
.PHONY: deny
deny: CHECKS ?= advisories licenses bans sources
deny: ## check licences, sources and advisories of dependencies on every platform; needs cargo-deny
	@command -v cargo-deny > /dev/null || { echo "error: no 'cargo-deny' is on PATH" >&2; \
		echo "hint: cargo install cargo-deny --locked" >&2; exit 2; }
	cargo deny --locked check $(CHECKS)

.PHONY: crds
crds: ## generate manifests/dev/crds from the Rust types
	UPDATE_CRDS=1 cargo test --package kcp-api --features schema --locked --test crds

.PHONY: object-schemas
object-schemas: ## derive the schemas that lint knows from the definitions of Cluster API
	UPDATE_OBJECT_SCHEMAS=1 cargo test --workspace --all-features --locked --test integration -- the_schemas_are_those_of_cluster_api

# The versions are those in webhook/rules/components/data, unless VERSIONS has others.
.PHONY: components
components: ## derive the flags, gates and APIs of components from their sources; VERSIONS="v1.38.1 v3.8.0" adds versions
	webhook/rules/components/generate $(VERSIONS)

.PHONY: components-check
components-check: ## compare webhook/rules/components/data with the programs of the tests, or with those in the folders PROGRAMS
	programs="$(PROGRAMS)"; [ -n "$$programs" ] || programs=$$(tests/envtest/assets all); \
		cd webhook/rules/components/table && export GOWORK=off; go test . && go run . check ../data $$programs

.PHONY: man
man: ## create the manual pages in target/man, and check them with mandoc if it is installed
	cargo build --workspace --locked --bins
	rm -rf $(target)/man
	$(target)/debug/kubectl-kcp man $(target)/man
	@if command -v mandoc > /dev/null; then mandoc -T lint -W error $(target)/man/*.1; else echo "not checked: no 'mandoc' is on PATH"; fi

# Needs cargo-auditable, musl-tools and the Rust target of the platform; for the test dpkg, rpm, mandoc, perl and qemu-user.
.PHONY: release
release: PLATFORMS ?= linux_amd64
release: ## make the files of a release in target/dist for PLATFORMS, and test them: verify, unpack, install, run, remove
	rm -rf target/dist
	set -e; for platform in $(PLATFORMS); do manifests/release/build $$platform; done
	manifests/release/package
	manifests/release/check $(PLATFORMS)

.PHONY: images
images: ## test the images of the programs in target/dist/build: two builds, one digest, two platforms; needs buildah
	manifests/release/check-images

.PHONY: reproducible
reproducible: ## build the programs of a release for linux_amd64 in two folders, and compare them
	manifests/release/check-reproducible

.PHONY: lint-workflows
lint-workflows: ## check .github/workflows with actionlint, which this builds once
	"$$(manifests/release/tool actionlint)" .github/workflows/*.yaml

.PHONY: book
book: ## build the book in target/book; needs mdbook
	mdbook build docs

# Takes hours. The steps: release, images, support-matrix, test-machines, test-recovery, components-check, lint-workflows, deny, man,
# book and reproducible.
.PHONY: nightly
nightly: ## run what CI does not; prints `not checked: no TOOL` for a step whose tool is absent, and fails if a step fails
	.ci/nightly
