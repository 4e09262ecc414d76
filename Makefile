# The two commands: `make run` serves an example, `make test` passes all tests. Both install what is missing.

.PHONY: run build test lint quick-checks clippy packages test-packages build-ci ui browser-tests unit-build unit loom e2e fuzz promtool otlp-tests stress sanitize miri acme-tests prometheus-tests journald-test interleaved flat-memory record-labs

# Clippy and the unit tests compile crates/php against this one.
export HOWDAH_PHP_CONFIG ?= php-config8.2

run: build
	@user=$$(stat -c %U examples/hello); \
	if [ "$$(id -u)" = 0 ] && ! setpriv --reuid=www-data --regid=www-data --clear-groups test -r "$$PWD/examples/hello/index.php"; \
	then set -- --user root; else set --; fi; \
	exec target/release/howdah serve examples/hello "$$@" $(ARGS)

build: packages
	@scripts/check-rust
	cargo build --release --locked
	scripts/build-php

packages:
	@scripts/install-packages scripts/packages-build.txt

test-packages: packages
	@scripts/install-packages scripts/packages-test.txt
	@tests/apps/install-packages.sh

# Everything below, in the order and beside each other as it takes the least time, with the time of each step.
test:
	scripts/test-all

lint: clippy quick-checks

quick-checks:
	cargo fmt --all --check
	scripts/check-modules
	scripts/check-words
	scripts/check-links
	scripts/check-dependencies
	scripts/check-ui

# The dashboard's page, which is part of the executable: ui/dist is in git, so that a build needs no Node.js.
ui:
	cd ui && npm ci --ignore-scripts --no-audit --no-fund && npm run build

# Its tests in a browser: 350 MB of packages, which nothing else needs. Not a part of `make test`.
browser-tests: build-ci
	@scripts/install-packages scripts/packages-browser.txt
	cd ui && npm ci --ignore-scripts --no-audit --no-fund
	HOWDAH=$(CURDIR)/target/ci/howdah /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/dashboard/browser_tests.py

clippy:
	@scripts/check-rust
	scripts/ci-cargo clippy --profile ci --locked --workspace --all-targets -- -D warnings

build-ci: test-packages
	@scripts/check-rust
	scripts/ci-cargo build --profile ci --locked
	scripts/build-php ci

# All targets: the build is the lint.
unit-build:
	scripts/ci-cargo test --profile ci --locked --workspace --all-targets --no-run

# No crate has tests in its documentation, and looking for them takes half a minute.
unit:
	HOWDAH_FUZZ_SECONDS=10 scripts/ci-cargo test --profile ci --locked --workspace --lib --bins --tests

loom:
	RUSTFLAGS="--cfg loom" CARGO_PROFILE_DEV_DEBUG=false cargo test --locked --package howdah-channel --lib --target-dir target/loom loom

e2e: build-ci
	HOWDAH=$(CURDIR)/target/ci/howdah tests/run

# The recorded answers of docs/lab, on an idle machine: LABS=unit-or-fpm PEERS=unit for one of them. PEERS are built from ../shared/peers.
record-labs: build
	@scripts/install-packages scripts/packages-test.txt scripts/packages-peers.txt
	scripts/build-peers $(PEERS)
	. /opt/peers/environment && bench/record-labs --quick $(LABS)

# Longer than in `make test`: FUZZ_SECONDS=600 before a change of the channel, of the configuration language or of FastCGI lands.
FUZZ_SECONDS ?= 600
fuzz:
	HOWDAH_FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/ci-cargo test --profile ci --locked --package howdah-channel --test fuzz_programs
	HOWDAH_FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/ci-cargo test --profile ci --locked --package howdah-config --test fuzz_documents
	HOWDAH_FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/ci-cargo test --profile ci --locked --package howdah-fastcgi --test hostile_requests

# The exposition, the alerts and the scrape configuration, checked by promtool: Debian's package takes longer to install than `make test` has time.
promtool: build-ci
	@command -v promtool >/dev/null || apt-get install -y --no-install-recommends prometheus
	HOWDAH=target/ci/howdah scripts/check-promtool

# A real Prometheus scrapes 100 applications while they restart and the router is killed: its sums are the clients'.
prometheus-tests: build-ci
	@command -v prometheus >/dev/null || apt-get install -y --no-install-recommends prometheus
	HOWDAH=$(CURDIR)/target/ci/howdah tests/run --waiting -n 1 -s tests/metrics/prometheus_tests.py

# The tests of traces with a collector of OpenTelemetry's own packages, which PyPI has and Debian does not.
otlp-tests: build-ci
	HOWDAH=target/ci/howdah scripts/check-otlp

# The logs of a howdah in a real journald, in a mount namespace of its own. As root.
journald-test: build-ci
	HOWDAH=target/ci/howdah scripts/check-journald

# Finds tests that pass by luck: the unit tests 20 times, the end-to-end tests 3 times, while all cores are busy.
stress: build-ci
	scripts/stress

# Certificates from Pebble, Let's Encrypt's authority for tests, which is built from the Go module proxy.
acme-tests: build-ci
	scripts/build-pebble
	HOWDAH=$(CURDIR)/target/ci/howdah tests/run --waiting tests/pebble/pebble_tests.py

# The end-to-end tests with a PHP that this system does not have, in a chroot: `make test-php8.4`. A part of them:
# `make test-php8.4 FOLDERS="tests/php tests/http"`. Prints what each folder took.
FOLDERS ?=
test-php8.1 test-php8.3 test-php8.4 test-php8.5: test-php%:
	FOLDERS="$(FOLDERS)" scripts/php-in-chroot $*

# 100,000 requests of different users at random in worker mode, and as many in async mode: no byte of one in the answer to another.
INTERLEAVED_REQUESTS ?= 100000
interleaved: build-ci
	HOWDAH=$(CURDIR)/target/ci/howdah HOWDAH_INTERLEAVED_REQUESTS=$(INTERLEAVED_REQUESTS) tests/run --timeout 1800 \
		tests/worker_mode/test_interleaved_users.py tests/async_mode/test_interleaved_async.py

# Memory of workers, router and supervisor over a million requests of each page in worker mode.
flat-memory: build
	bench/howdah-bench worker_memory --server howdah-worker --processes 2 --pages hello,json --steps 50000,500000

# The C of crates/php/sapi under AddressSanitizer and UBSan, with the tests of PHP pages.
sanitize: test-packages
	@scripts/check-rust
	scripts/sanitize

# The parts of the channel that Miri can run: everything without memfd, futex or eventfd. It needs a nightly toolchain with Miri.
miri:
	@cargo +nightly miri --version >/dev/null 2>&1 || \
	{ echo "no Miri: rustup toolchain install nightly --component miri --component rust-src" >&2; exit 1; }
	MIRIFLAGS=-Zmiri-many-seeds=0..2 cargo +nightly miri test --locked --package howdah-channel --lib --target-dir target/miri
