# The ways in. Each target installs what it needs on Debian when it runs as root, and otherwise
# says what to install.

.PHONY: help build demo test bench install-c

help:
	@echo 'make demo    half a minute: the terminator beside nginx, a table for each kind of handshake'
	@echo 'make test    formatting, lints, all tests, models, documentation, licences'
	@echo 'make bench   some minutes: the long comparison, with a record in lab/records'
	@echo 'make build   target/release/widelane'
	@echo 'make install-c PREFIX=/usr/local   libraries, header and pkg-config file for C'

build:
	@.ci/setup build
	cargo build --release --locked -p widelane

demo:
	@.ci/setup demo
	cargo build --release --locked -p widelane -p widelane-handshakes
	@.ci/compare demo $(ARGS)

test:
	@.ci/setup test
	@.ci/test

bench:
	@.ci/setup demo
	cargo build --release --locked -p widelane -p widelane-handshakes
	@.ci/compare bench $(ARGS)

PREFIX ?= /usr/local

install-c:
	@.ci/setup build
	cargo build --release --locked -p widelane-c
	@packaging/install-c target/release $(PREFIX)
