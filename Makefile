# Loom. `make help` lists the targets. Everything is built as the caller; what
# needs root is run with sudo when the caller is not root.

GO         ?= go
SUDO       := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
GOLANGCI   := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Newer ones need modules that the proxy does not have.
NFPM       := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
# Packages with goroutines, or with words that several share: their tests run
# with the race detector too.
RACE       := ./congestion ./internal/flowtable ./leaf ./control/... ./dataplane/... ./lab/... ./internal/admin ./internal/daemon ./internal/experiment ./internal/httpd ./internal/namespace ./internal/stat ./internal/telemetry ./internal/testenv ./internal/web ./internal/yamlfile ./sim/parallel
# Long tests of theirs that have one goroutine: the race detector, which makes them
# eight times as slow, finds nothing in them.
RACE_SKIP  := ^(TestCaptureChangesNothing|TestCaptureAgreesWithExplain|TestShadowChangesNothing|TestFastLeafIsTheWorker|TestFastPathIsTheWorker|TestPageStaysSmall|TestLargeFabric|TestScenarios|TestExplainIsWhatHappens|TestHellosMeasureTheRoundTrip|TestOverloadInAllDirections|TestRerouteIsPutInOrder|TestCarryFrames|TestDerivedTimesFitTheOthers|TestReloadInTheMiddleOfAReroute|TestLossesAreSurvived|TestPortGoesDownWhileFramesAreHeldForIt|TestControlPacketsEndAtLeaves|TestFullFDBOfOneTenant|TestReplayedControlPacketsChangeNothing|TestLossOfLearnedAddressesIsCountedAndRepaired|TestFloodedFlowsArePutInOrder|TestHULABetweenLeaves|TestMarksOfHostsAreNoNotify|TestFRR)$$
DEMO       ?= test/netns/demo.yaml
FUZZTIME   ?= 20s
BENCH      ?= .
EXPERIMENTS ?= $(filter-out experiments/lab-%,$(wildcard experiments/*.yaml))
SIZES      ?= paper,authors
BENCH_PKGS := ./overlay ./congestion ./reorder ./balance ./dataplane
IN_VM      := $(SUDO) env LOOM_DAEMONS=$(CURDIR)/bin LOOM_VM_GUEST=$(CURDIR)/bin/vm/guest
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
ARCH       ?= $(shell $(GO) env GOARCH)
# v0.1.0 → 0.1.0, 3 commits later 0.1.0+3.gHASH; before the first tag 0.0.0+0.gHASH.
PACKAGED   := $(shell echo '$(VERSION)' | sed -E -e '/^v[0-9]/!s/^/v0.0.0-0-g/' -e 's/^v//' -e 's/-([0-9]+)-g/+\1.g/' -e 's/-dirty$$/.dirty/' -e 's/^([0-9.]+)\.dirty$$/\1+dirty/')
COMMITTED   = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
MULTIARCH   = $(or $(patsubst amd64,x86_64,$(filter amd64,$(ARCH))),$(patsubst arm64,aarch64,$(filter arm64,$(ARCH))),$(ARCH))-linux-gnu

.DEFAULT_GOAL := help
.PHONY: test-web help build man packages test-packages generate reference generate-check lint test test-rdma test-frr test-vm test-uml test-tshark guest demo bench bench-bridge bench-sim experiments results bench-peers fuzz soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the programs into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/...

MANDIR ?= bin/man
man: build ## write the programs' manual pages into MANDIR (default bin/man)
	@for main in cmd/*/main.go; do SOURCE_DATE_EPOCH=$(COMMITTED) bin/$$(basename $${main%/main.go}) man $(MANDIR) || exit; done

packages: build ## make dist/: deb, rpm and an OCI image, for ARCH (this machine's)
	rm -rf dist
	SOURCE_DATE_EPOCH=$(COMMITTED) internal/tools/share.sh bin dist/$(ARCH)
	CGO_ENABLED=0 GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o dist/$(ARCH)/bin/ ./cmd/...
	for p in deb rpm; do \
		SOURCE_DATE_EPOCH=$(COMMITTED) BIN=dist/$(ARCH) ARCH=$(ARCH) VERSION=$(PACKAGED) MULTIARCH=$(MULTIARCH) \
		$(GO) run $(NFPM) package -f deploy/packages/nfpm.yaml -p $$p -t dist/ || exit 1; done
	$(GO) run ./internal/tools/ociimage -version $(VERSION) -arch $(ARCH) -o dist/oci $(foreach p,leafd spined loomctl,$(p)=dist/$(ARCH)/bin/$(p))

test-packages: packages ## install the deb in a clean Debian, read the rpm and the image (needs root, mmdebstrap, rpm and the network)
	$(GO) test -tags packages -exec '$(SUDO)' -count 1 -v -timeout 15m ./test/packages -args -dist $(CURDIR)/dist

generate: ## rebuild the XDP object (needs clang and libbpf's headers)
	$(GO) generate ./bpf

reference: ## rewrite docs/config.md and docs/schema
	$(GO) run ./internal/tools/reference

generate-check: ## rebuild the XDP object elsewhere and compare with the committed one
	sh bpf/generate-check.sh

lint: ## run golangci-lint, import graph included (compiles it the first time: minutes)
	$(GO) run $(GOLANGCI) run ./...

test: ## run all tests; with root or sudo the kernel's part too
	$(GO) run ./internal/tools/testgate -timeout 15m -race '$(RACE)' -race-skip '$(RACE_SKIP)'

test-rdma: build guest ## run RDMA clients in two virtual machines over a fabric (needs QEMU, see test/rdma/README.md)
	$(GO) test -tags rdma -exec '$(IN_VM)' -count 1 -v -run TestRDMA -timeout 10m ./test/rdma

test-frr: build ## run all that is tested over FRR's routes and addresses, what make test leaves out too (needs root and frr)
	$(GO) test -exec '$(SUDO) env LOOM_DAEMONS=$(CURDIR)/bin' -count 1 -v -timeout 20m ./test/frr -args -all

test-vm: build guest ## run leafd in virtual machines with stock Debian kernels and under systemd (needs QEMU, see test/vm/README.md)
	$(GO) test -tags vm -exec '$(IN_VM)' -count 1 -v -run TestVM -timeout 40m ./test/vm

test-web: ## watch loomweb's page in Chromium for ten minutes, and draw 32 leaves (needs chromium)
	$(GO) test -count 1 -v -timeout 20m -run 'TestPageStaysSmall|TestLargeFabric' ./internal/web -heap 10m

test-uml: ## run what needs VLAN-aware bridges, VRFs or bonds on User Mode Linux, which has them (needs no root, see test/uml/README.md)
	$(GO) test -tags uml -count 1 -v -run TestUML -timeout 15m ./test/uml $(UMLFLAGS)

test-tshark: ## have Wireshark read what loomctl capture writes (needs tshark)
	$(GO) test -tags tshark -count 1 -v -run Wireshark ./internal/loomctl

guest: # what runs in the tests' virtual machines
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/vm/guest ./test/machine/guest

demo: build ## run a fabric of 2 leaves and 2 spines with 8 hosts, load it, fail a link; under ECMP, then CONGA
	$(SUDO) bin/loomlab run -f $(DEMO) --scheme ecmp
	$(SUDO) bin/loomlab run -f $(DEMO) --scheme conga

bench: ## measure the pipelines in memory: ns a packet and allocations
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(BENCH_PKGS)

bench-bridge: ## measure how the mirror of the kernel's bridges keeps up: 100,000 addresses (needs root)
	$(GO) test -exec '$(SUDO)' -run '^$$' -bench Mirror -benchtime 1x ./control/bridge

experiments: build ## run EXPERIMENTS (all) at their quick size and check what they expect; results/ has what they found
	bin/loomsim run $(EXPERIMENTS) --size quick --check --any-version

results: build ## run EXPERIMENTS (all) at their published SIZES and rewrite their parts of docs/results.md; takes hours
	bin/loomsim run $(EXPERIMENTS) --size $(SIZES)
	bin/loomsim report $(EXPERIMENTS) --markdown docs/results.md

bench-sim: ## measure the simulator: packet-hops a second with one thread and with two, memory a run
	$(GO) test -run '^$$' -bench Fabric -benchtime 5x ./sim

bench-peers: build ## compare the fast path with workers, Open vSwitch and the kernel (skips what is not installed)
	$(GO) test -exec '$(SUDO) env LOOM_DAEMONS=$(CURDIR)/bin' -run '^$$' -bench Peers -benchtime 1x -timeout 20m ./test/peers

fuzz: ## fuzz every target for FUZZTIME (20s) each
	GO='$(GO)' internal/tools/fuzz.sh $(FUZZTIME)

soak: ## execute the parsers' fuzz targets SOAK (10000000) times each, without the fuzzer
	$(GO) test ./overlay -run TestSoak -soak $(or $(SOAK),10000000) -timeout 0 -v
	$(GO) test -exec '$(SUDO)' ./bpf -run TestSoak -soak $(or $(SOAK),10000000) -timeout 0 -v

clean: ## remove what was built
	rm -rf bin dist
