# The two commands: `make run` serves an example, `make test` passes all tests. Both install what is missing.

.PHONY: run build test lint packages test-packages unit loom e2e apps

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

test: test-packages lint unit loom e2e

lint:
	@scripts/check-rust
	cargo fmt --all --check
	HOWDAH_PHP_CONFIG=php-config8.2 cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/check-dependencies

unit: loom
	HOWDAH_FUZZ_SECONDS=60 HOWDAH_PHP_CONFIG=php-config8.2 cargo test --locked --workspace
	cargo test --locked --release --package howdah-channel --test kill_workers

loom:
	RUSTFLAGS="--cfg loom" cargo test --locked --package howdah-channel --lib --target-dir target/loom loom

e2e: build
	/usr/bin/python3 -m pytest -q -n 2 --dist loadgroup tests
