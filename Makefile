# kubeweir's everyday commands. `make help` lists them.

GO ?= go

# How everything is compiled, but what the race detector watches: as it is released. With the same flags the program,
# what vet and staticcheck read, and most tests share one build cache, so that Kubernetes is compiled once. Without cgo
# the program needs no library of the system that it runs on; without paths and the state of a work tree in it, it is
# the same wherever it was built. The tag keeps the HTTP/2 client that sends a write once (proxy/upstream/pool/http2_guard.go).
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false -tags=http2legacy

# What is built. A tag of this commit, or the last one and how far it is behind, is the version. Of a repository that
# the source was only unpacked in, as distributions do, nothing is asked.
GIT = git --git-dir=.git
VERSION ?= $(or $(shell $(GIT) describe --tags --match 'v*' --dirty 2>/dev/null),v0.1.0-devel)
COMMIT  ?= $(shell $(GIT) describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null)
# Nothing that is released is younger than its commit (https://reproducible-builds.org/docs/source-date-epoch).
SOURCE_DATE_EPOCH ?= $(or $(shell $(GIT) log -1 --format=%ct 2>/dev/null),0)
DATE = $(shell date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ 2>/dev/null || date -u -r $(SOURCE_DATE_EPOCH) +%FT%TZ)

# -s -w leaves out what only a debugger reads, a third of the size.
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)

# No package below these folders depends on k8s.io/kubernetes (internal/archtest sees to it), so building them a
# second time for the race detector is cheap. What does depend on it is tested without.
LIGHT = $(filter-out %/internal/app,$(shell $(GO) list ./internal/...)) ./watchmux/... ./cache/... ./proxy/... ./config/...
HEAVY = ./origin/... ./internal/app/... ./cmd/...
E2E   = ./test/...

# Tests of what is allocated and of memory, which the race detector changes.
COUNTED = ./internal/object ./proxy/edge/...

BENCH      ?= .
BENCHFLAGS ?= -benchmem

.DEFAULT_GOAL := help

# Where `make run` keeps what is written.
DATA_DIR ?= .cache/standalone

.PHONY: run
run: build ## Run a cluster in one process, with simulated nodes; Ctrl-C stops it, and the next run has the same objects.
	bin/kubeweir standalone --data-dir $(DATA_DIR) --controllers '*' --scheduler --fake-nodes 3

.PHONY: run-gateway
run-gateway: build ## Run a real etcd and kube-apiserver with the gateway in front; Ctrl-C stops them.
	$(GO) run ./test/realkube/cmd/up --gateway bin/kubeweir

.PHONY: kubectl
kubectl: ## Build bin/kubectl, of the version that kubeweir serves.
	$(GO) build -ldflags "-X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)" \
		-o bin/kubectl k8s.io/kubernetes/cmd/kubectl

# Where build puts the program.
BIN ?= bin/kubeweir

.PHONY: build
build: ## Build bin/kubeweir; the first time takes minutes.
	@test -e "$(BIN)" || echo "Building kubeweir and what it needs of Kubernetes. The first time this takes minutes."
	$(GO) build -ldflags "$(LDFLAGS)" -o "$(BIN)" ./cmd/kubeweir

.PHONY: bin/man
bin/man: build ## Write the man pages to bin/man.
	bin/kubeweir man --dir bin/man

.PHONY: bin/completions
bin/completions: build ## Write the completion scripts of all shells to bin/completions.
	@mkdir -p bin/completions
	bin/kubeweir completion bash > bin/completions/kubeweir.bash
	bin/kubeweir completion zsh > bin/completions/_kubeweir
	bin/kubeweir completion fish > bin/completions/kubeweir.fish
	bin/kubeweir completion powershell > bin/completions/kubeweir.ps1

# For which platforms, and where what is made is put.
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64
OUT       ?= dist
RELEASE    = GOOS= GOARCH= $(GO) -C deploy/release run . -source "$(CURDIR)" -out "$(OUT)" -platforms "$(PLATFORMS)" \
	-version "$(VERSION)" -commit "$(COMMIT)" -date "$(SOURCE_DATE_EPOCH)" -push "$(PUSH)"

.PHONY: image
image: ## Container images in dist/, for docker load and as an OCI layout. PUSH=registry/repository:tag pushes them.
	$(RELEASE) image

.PHONY: dist
dist: ## Archives for every platform, Debian and RPM packages, checksums, in dist/.
	$(RELEASE) dist

# report runs go test and notes what each package and test takes.
TIMES  ?= .cache/test-times
REPORT  = .cache/bin/report -log $(TIMES)

.PHONY: .cache/bin/report
.cache/bin/report:
	@$(GO) build -o $@ ./test/tools/report

.PHONY: test
test: .cache/bin/report ## Everything that must pass: check, unit, e2e. Says at its end where the time went.
	@rm -f $(TIMES)
	@$(MAKE) --no-print-directory check unit e2e; code=$$?; $(REPORT) -summary; exit $$code

.PHONY: .cache/bin/lint
.cache/bin/lint:
	@$(GO) build -o $@ ./test/tools/lint

.PHONY: check
check: .cache/bin/lint ## Formatting, the analyzers of go vet and staticcheck, import rules, what is generated.
	@unformatted=$$(find . -path './.*' -prune -o -name '*.go' -exec gofmt -l {} +); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	.cache/bin/lint ./...
	cd deploy/release && ../../.cache/bin/lint ./...
	cd test/tools/chromium && ../../../.cache/bin/lint ./...
	cd origin/kubeweirtest && ../../.cache/bin/lint ./...
	$(GO) test ./internal/archtest ./internal/reason ./config ./deploy/monitoring ./test/deploy/chartdocs
	$(GO) test -run TestSemantics ./test/conformance

.PHONY: docs
docs: ## Write what is generated: references and the dashboard.
	$(GO) test -vet=off ./config -run TestReference -update
	$(GO) test -vet=off ./deploy/monitoring -update
	$(GO) test -vet=off ./internal/app -run TestMetricsReference -update
	$(GO) test -vet=off ./internal/reason -update
	$(GO) test -vet=off ./internal/encoding/cbor -run TestShapes -update
	$(GO) test -vet=off ./test/conformance -run TestSemantics -update
	$(GO) test -vet=off ./test/deploy/chartdocs -update
	$(GO) test -vet=off ./internal/envtest -run Documented -update

.PHONY: unit
unit: .cache/bin/report ## Unit tests (check has vetted), with the race detector where it does not mean building Kubernetes twice.
	GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(REPORT) $(GO) test -race -vet=off -timeout 10m $(LIGHT)
	$(REPORT) $(GO) test -vet=off -run 'Allocations|Memory' $(COUNTED)
	$(REPORT) $(GO) test -vet=off -timeout 10m $(HEAVY)
	$(GO) -C deploy/release test -vet=off -timeout 10m ./...
	$(GO) -C origin/kubeweirtest test -vet=off -timeout 10m ./...

# Servers and test programs live for seconds and have memory to spare: with a larger heap they need a fifth less
# processor time. A kubeweir that is tested runs without (test/realkube).
TESTGC = 300

.PHONY: e2e
e2e: .cache/bin/report ## End-to-end tests against a real kube-apiserver, which is built first if need be.
	$(GO) run ./test/realkube/cmd/build
	KUBEWEIR_BINARY="$(CURDIR)/.cache/bin/kubeweir" GOGC=$(TESTGC) $(REPORT) $(GO) test -vet=off -count=1 -p 3 -timeout 25m $(E2E)

# Packages with random tests, and those of them that are too heavy for the race detector.
RANDOM       = $(sort $(patsubst %/,./%,$(dir $(shell grep -rlE --include='*_test.go' 'kubeweir/internal/(soak|writertest)"' *))))
RANDOM_HEAVY = $(filter ./origin/% ./internal/app/% ./test/%,$(RANDOM))

.PHONY: soak
soak: .cache/bin/report ## Random, fault and fuzz tests in their long form, with a random seed; less than two hours.
	@rm -f $(TIMES)
	KUBEWEIR_SOAK=1 CGO_ENABLED=1 $(REPORT) $(GO) test -race -vet=off -count=1 -p 1 -timeout 30m $(filter-out $(RANDOM_HEAVY),$(RANDOM))
	KUBEWEIR_SOAK=1 $(REPORT) $(GO) test -vet=off -count=1 -p 1 -timeout 30m $(RANDOM_HEAVY)
	@$(REPORT) -summary

.PHONY: bench
bench: build ## kubeweir beside kube-apiserver, as a table. BENCHARGS="-row get,list-json" and the like are passed on.
	$(GO) run ./test/bench/cmd/bench -gateway bin/kubeweir $(BENCHARGS)

.PHONY: bench-go
bench-go: ## Go benchmarks of the parts. BENCH=regexp chooses, BENCHFLAGS="-count=6" and the like are passed on.
	$(GO) test -run '^$$' -bench '$(BENCH)' $(BENCHFLAGS) -p 1 -timeout 60m $(LIGHT) $(HEAVY) $(E2E)

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9\/-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
