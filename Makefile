# As root on Debian, each target installs what it needs. Otherwise it prints what to install.

RELEASE = $${CARGO_TARGET_DIR:-target}/release

.PHONY: help build demo test fresh-test bench ways-in timing install-c install-openssl

help:
	@echo 'make demo    compares the terminator with nginx: half a minute after the build'
	@echo 'make test    checks everything: formatting, lints, tests, models, documentation, licences'
	@echo 'make bench   the long comparison, some minutes: writes a record to lab/records'
	@echo 'make ways-in   nginx, HAProxy, Apache and lighttpd, each with and without Widelane: five'
	@echo '               minutes; writes a record to lab/records'
	@echo 'make timing  measures whether the time of operations depends on secrets: two minutes'
	@echo 'make build   builds target/release/widelane, and widelane.debug beside it'
	@echo 'make install-c PREFIX=/usr/local   installs libraries, header and pkg-config file for C'
	@echo 'make install-openssl   installs the OpenSSL provider and `widelane`, for nginx and others'
	@echo 'make fresh-test   demo and test on a new Debian 12, as root and as a plain user;'
	@echo '                  for a part: make fresh-test ARGS="root demo"'

build:
	@.ci/setup build
	cargo build --release --locked -p widelane
	@packaging/split-debug "$(RELEASE)/widelane"

# Only what the comparison runs: no eBPF, no terminal pictures, no other libraries.
demo:
	@.ci/setup demo
	cargo build --release --locked --no-default-features -p widelane -p widelane-handshakes
	@.ci/compare demo $(ARGS)

test:
	@.ci/setup test
	@.ci/test

fresh-test:
	@.ci/setup fresh-test
	@.ci/fresh-test $(ARGS)

bench:
	@.ci/setup demo
	cargo build --release --locked --features widelane/peers -p widelane -p widelane-handshakes
	@.ci/compare bench $(ARGS)

# The libraries that the servers load are taken from where the programs are built.
ways-in:
	@.ci/setup ways-in
	cargo build --release --locked -p widelane -p widelane-handshakes -p widelane-openssl \
		-p widelane-openssl-shim
	@.ci/compare ways-in $(ARGS)

timing:
	@.ci/setup build
	cargo run --quiet --release --locked -p widelane-timing -- $(ARGS)

PREFIX ?= /usr/local

install-c:
	@.ci/setup build
	cargo build --release --locked -p widelane-c
	@packaging/install-c "$(RELEASE)" $(PREFIX)

install-openssl:
	@.ci/setup demo
	cargo build --release --locked -p widelane -p widelane-openssl -p widelane-openssl-shim
	@packaging/install-openssl "$(RELEASE)" $(PREFIX)
