# As root on Debian, each target installs what it needs. Otherwise it prints what to install.

RELEASE = $${CARGO_TARGET_DIR:-target}/release

.PHONY: help build lab report demo demo-programs test check check-all fresh-test bench ways-in timing soak \
	soak-minute brake-truth simulate-speed \
	install-c install-openssl uninstall-openssl package package-test image image-test fleet-test \
	etcd-test trace-counts

help:
	@echo 'make demo    compares the terminator with nginx: half a minute after the build'
	@echo 'make test    the tests of the product: minutes, no root, nothing but compilers'
	@echo 'make check   test, and all that a change needs before it lands: lints, programs, models, release'
	@echo 'make check-all   check, and valgrind, sanitizers, fuzzing, other versions of OpenSSL, packages'
	@echo '             make check STAGES=documentation runs one stage; .ci/stages.toml lists them'
	@echo 'make bench   the long comparison, 25 minutes: writes a record to lab/records'
	@echo 'make ways-in   nginx, HAProxy, Apache and lighttpd, each with and without Widelane: five'
	@echo '               minutes; writes a record to lab/records'
	@echo 'make timing  measures whether the time of operations depends on secrets: two minutes'
	@echo 'make simulate-speed  how many events a second the simulator does here: half a minute'
	@echo 'make soak    nginx, HAProxy, Apache and lighttpd with Widelane, each with 20,000 clients that go'
	@echo '             away and 150 seconds of load with reloads: a quarter of an hour'
	@echo 'make build   builds target/release/widelane, and widelane.debug beside it'
	@echo 'make lab     builds target/release/widelane-lab: comparisons, simulations, experiments; and widelane'
	@echo 'make report  widelane-report.html, from lab/records and the profile of this machine'
	@echo 'make install-c PREFIX=/usr/local   installs libraries, header and pkg-config file for C'
	@echo 'make package   builds a Debian package: provider, program, units, manual pages'
	@echo 'make brake-truth   whether `widelane-lab emulate` and `widelane probe` agree: ten minutes; root'
	@echo 'make package-test   installs, uses, upgrades and removes it on a new Debian 12'
	@echo 'make image     builds an OCI image: the program and its libraries, no shell, not root'
	@echo 'make image-test   runs it as Kubernetes would; root'
	@echo 'make fleet-test   three terminators behind HAProxy, replaced one after the other under load: ten'
	@echo '                  minutes; ARGS="60 200" for a minute at 200 connections a second'
	@echo 'make etcd-test   three terminators behind HAProxy (PROXY v2), each with an agent for ticket keys from an etcd'
	@echo '                 of three members, which are killed, cut off and restarted, whose values are damaged, and'
	@echo '                 certificates that are replaced: five minutes; root; ARGS="600 100" for ten'
	@echo 'make trace-counts   whether `widelane trace` tells as many handshakes as nginx and `widelane serve`'
	@echo '                    count; root; ARGS="40000 4000" for so many, so many a second'
	@echo 'make install-openssl   installs the OpenSSL provider and `widelane`, for nginx and others,'
	@echo '                       without the package; make uninstall-openssl removes them'
	@echo 'make fresh-test   demo and test on a new Debian 12, as root and as a plain user;'
	@echo '                  for a part: make fresh-test ARGS="root demo"'

build:
	@.ci/setup build
	cargo build --release --locked -p widelane
	@packaging/split-debug "$(RELEASE)/widelane"

# The laboratory starts the other program, which it looks for beside itself.
lab:
	@.ci/setup build
	cargo build --release --locked -p widelane-lab -p widelane

report: lab
	@"$(RELEASE)/widelane-lab" report $(ARGS)

# Only what the comparison runs: a server, a load generator, and what compares them.
demo: demo-programs
	@.ci/compare demo $(ARGS)

demo-programs:
	@.ci/setup demo
	cargo build --release --locked --no-default-features --features widelane-lab/handshakes \
		-p widelane -p widelane-lab

# STAGES='NAME…' runs some stages instead; .ci/stages.toml has them all.
STAGES_OF = @.ci/setup test && cargo run --quiet --locked -p widelane-stages --

test:
	$(STAGES_OF) $(or $(STAGES),test)

check:
	$(STAGES_OF) $(or $(STAGES),check)

check-all:
	$(STAGES_OF) $(or $(STAGES),check-all)

fresh-test:
	@.ci/setup fresh-test
	@.ci/fresh-test $(ARGS)

bench:
	@.ci/setup bench
	cargo build --release --locked -p widelane -p widelane-lab
	@.ci/compare bench $(ARGS)

# The libraries that the servers load are taken from where the programs are built.
ways-in:
	@.ci/setup ways-in
	cargo build --release --locked -p widelane -p widelane-lab -p widelane-openssl \
		-p widelane-openssl-shim
	@.ci/compare ways-in $(ARGS)

timing:
	@.ci/setup build
	cargo run --quiet --release --locked -p widelane-lab -- timing $(ARGS)

simulate-speed:
	@.ci/setup build
	cargo run --quiet --release --locked -p widelane-sim --example speed

# Two models, five times each; the exit status tells.
brake-truth: lab
	@"$(RELEASE)/widelane-lab" emulate --as "Silver 4116" --check 5; first=$$?; \
		"$(RELEASE)/widelane-lab" emulate --as "Gold 6130" --check 5 && exit $$first

# One server after the other; the last table has all of them. The exit status tells.
soak soak-minute:
	@.ci/setup check-all
	WIDELANE_SOAK=$(if $(filter soak,$@),whole,minute) cargo test --release --locked \
		-p widelane-openssl -p widelane-openssl-shim --test soak -- --test-threads=1 --nocapture $(ARGS)

PREFIX ?= /usr/local

install-c:
	@.ci/setup build
	cargo build --release --locked -p widelane-c
	@packaging/install-c "$(RELEASE)" $(PREFIX)

install-openssl:
	@.ci/setup demo
	cargo build --release --locked -p widelane -p widelane-openssl -p widelane-openssl-shim
	@packaging/install-openssl "$(RELEASE)" $(PREFIX)

uninstall-openssl:
	@packaging/install-openssl --remove $(PREFIX)

package:
	@.ci/setup package
	cargo build --release --locked -p widelane -p widelane-openssl -p widelane-openssl-shim \
		-p widelane-manual
	@"$(RELEASE)/widelane-manual" "$(RELEASE)/manual"
	@packaging/third-party-licences >"$(RELEASE)/third-party-licences"
	@packaging/build-deb "$(RELEASE)" "$(RELEASE)"

package-test: package
	@.ci/setup package-test
	@packaging/test-package "$(RELEASE)/$$(sed -n '1s/^\(.*\) (\(.*\)) .*/\1_\2_amd64.deb/p' packaging/debian/changelog)"

# cargo-sbom lists what is linked into the program; it is installed once, into target/.
image:
	@.ci/setup image
	cargo build --release --locked -p widelane
	@packaging/third-party-licences >"$(RELEASE)/third-party-licences"
	@PATH="$$PATH:$(RELEASE)/../tools/bin"; command -v cargo-sbom >/dev/null || \
		cargo install --quiet --locked --debug --root "$(RELEASE)/../tools" cargo-sbom
	@"$$(PATH="$$PATH:$(RELEASE)/../tools/bin" command -v cargo-sbom)" --cargo-package widelane \
		--output-format cyclone_dx_json_1_6 >"$(RELEASE)/sbom.json"
	@packaging/build-image "$(RELEASE)" "$(RELEASE)"

image-test: image
	@packaging/test-image "$(RELEASE)"

fleet-test:
	@.ci/setup check-all
	cargo build --release --locked -p widelane
	@packaging/test-fleet "$(RELEASE)" $(ARGS)

trace-counts:
	@.ci/setup check
	cargo build --release --locked -p widelane
	@tools/trace/test-counts "$(RELEASE)" $(ARGS)

etcd-test:
	@.ci/setup check-all
	cargo build --release --locked -p widelane
	@packaging/test-etcd "$(RELEASE)" $(ARGS)
