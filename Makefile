# What people run: `make run`, then `make chat` in a second terminal.
# What has to pass: `make lint test` (.ci/run does the same on a new machine).
#
# Everything needs Go and git. Postgres for `run` and `test`, and for `test` a C
# compiler (the race detector), python3, curl and PgBouncer are installed by `setup`
# where it may do so.

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

# The toolchain is the machine's own. A go.mod that asks for a newer one must
# stop with a sentence instead of a download in the middle of a build.
export GOTOOLCHAIN := local
# VERSION says it; and Go's own look at git fails in a checkout of another user.
export GOFLAGS := $(strip $(shell GOTOOLCHAIN=local go env GOFLAGS 2>/dev/null) -buildvcs=false)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)

# Packages under test at once, one more than cores since some of them mostly wait.
# Most start a Postgres of their own, so more than four starve each other of
# memory and disk long before they run out of cores.
TEST_P ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -le 3 ] || n=3; echo $$((n + 1)))
TEST_TIMEOUT ?= 15m
# How many cases of each property are drawn; another seed each time.
RAPID_CHECKS ?= 40
export RAPID_CHECKS
TESTFLAGS ?=
PKG ?= ./...

TOOLS := bin/tools
GOLANGCI_LINT := $(TOOLS)/golangci-lint
BUF := $(TOOLS)/buf
GENERATORS := $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-connect-go $(TOOLS)/protoc-gen-go-grpc $(TOOLS)/openapi

PROTO := $(wildcard api/proto)
# The protos that clients and plugins in the field were made from: what `lint`
# compares with, a file each since a fresh clone for a build may have no history.
RELEASED := api/released.txtpb
PLUGIN_PROTO := hooks/plugin/proto
PLUGIN_RELEASED := hooks/plugin/released.txtpb

.PHONY: build
build: need-go ## Build bin/agentd, one static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/agentd ./cmd/agentd

# exec: without it a shell stands between make and agentd, and SIGTERM stops there.
.PHONY: run
run: setup-run build ## Run agentd with a private Postgres and a demo agent; needs no key
	@exec bin/agentd dev $(ARGS)

.PHONY: chat
chat: build ## Talk to the agentd that `make run` started
	@exec bin/agentd chat $(ARGS)

.PHONY: test
test: need-go setup ## Run all tests under the race detector (PKG=./store/... TESTFLAGS='-run X')
	CGO_ENABLED=1 go test -race -shuffle=on -timeout=$(TEST_TIMEOUT) -p=$(TEST_P) $(TESTFLAGS) $(PKG)

FULL_SIZE := TestClientsThatJoinWhileARunWritesMissAndRepeatNothing|TestALongSessionInARoughWorldIsAlwaysValid|TestASecretIsNowhere|TestRecordedStreamsMeanTheSame
FULL_SIZE := $(FULL_SIZE)|TestKill|AfterAKill|TestAWorkerThatWasStoppedForLongerThanItsLease|TestOfManyAnswersToTwoProcessesTheFirstHolds|TestARollingRestart|TestOfAnAnswerAndACancelAtOnceOneIsFirst
FULL_SIZE := $(FULL_SIZE)|TestWhateverIsKilled|TestLogConformanceBehindAPooler|TestRunsOutlive|TestACancelThroughAnotherProcess|TestTamperingIsNamed|TestSlowClients|TestNoTurnIsLost|TestATokenIsNoCommit|TestHostileRules|TestRedactionIsBounded
FULL_SIZE := $(FULL_SIZE)|IsRedactedAsTheWholeIs|TestLongArgumentsPass|TestProjectionsAreWhatTheLogFoldsTo|TestSQLHashesWhatGoHashes|TestFoldIs|TestFoldOfALegalLogIsSane|TestRunsShareNoStateOfObservers|TestADraftLeadsToWhatItsEventsFoldTo

.PHONY: test-full-size
test-full-size: need-go setup ## Run what `test` makes smaller for the race detector as large as it is meant
	AGENTD_FULL_SIZE=1 RAPID_CHECKS=400 go test -count=1 -timeout=20m -run '$(FULL_SIZE)' $(TESTFLAGS) ./cmd/agentd ./cmd/faults ./loop ./store ./hooks/rules ./hooks/pattern
	RAPID_CHECKS=10000 go test -count=1 -run TestTheSameChunksGetTheSameVerdicts ./hooks/stream

PLUGINS_FULL_SIZE := TestNothingOutlivesAHostThatIsKilled|TestManyReloadsUnderManyUsersBreakNoCall|TestHowMuchAPluginPrintsIsNoMatter|TestWhatAPluginSendsTakesLittleMemory|TestAPluginThatDoesNotStartSaysWhy
PLUGINS_FULL_SIZE := $(PLUGINS_FULL_SIZE)|TestPluginsAreReplacedUnderRuns|TestPluginsInEveryOrder|TestPluginsAreAskedInTheOrder|TestAPluginThatPrintsMuchIsObeyed|TestAPluginIsToldWhatHappens|TestAnotherProcessGoesOnTellingAPlugin

# Beside the tests above these would take too long for what runs before each merge.
.PHONY: test-plugins
test-plugins: need-go setup ## Run at full size: plugins that are replaced, killed and flooded, and what patterns remember; takes minutes
	AGENTD_FULL_SIZE=1 go test -count=1 -timeout=20m -run '$(PLUGINS_FULL_SIZE)|TestWhatIsRemembered' $(TESTFLAGS) ./cmd/agentd ./hooks/pluginhost ./hooks/pattern

# Whether it meets the fault in its half minutes is chance, so nothing waits for it.
.PHONY: test-mutants
test-mutants: need-go setup ## Build agentd with bugs, and see that the driver of faults finds them; takes minutes
	AGENTD_FULL_SIZE=1 go test -count=1 -timeout=20m -run '^TestABuildThatIsBrokenIsCaught$$' -v ./cmd/faults

SCHEDULES ?= 2000
SEED ?= 1

.PHONY: simulate
simulate: need-go ## Play SCHEDULES random schedules from SEED on: deaths, stalls, lost answers (make simulate SCHEDULES=100000)
	AGENTD_SCHEDULES=$(SCHEDULES) AGENTD_SEED=$(SEED) go test -count=1 -timeout=60m -run '^TestNoScheduleBreaksAPromise$$|^TestASeedIsASchedule$$' -v ./loop/looptest/sim

FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: need-go ## Run each fuzz target for FUZZTIME (make fuzz FUZZTIME=10m)
	scripts/fuzz $(FUZZTIME)

# The figures are explained in docs/performance.md. BENCH_TIME=1s BENCH_ROUNDS=1
# BENCH_ONLY=runs,paced make it shorter.
.PHONY: bench
bench: setup-run build build-bench ## Measure what agentd costs, beside what the machine can do
	@exec bin/bench $(ARGS)

.PHONY: bench-smoke
bench-smoke: setup-run build build-bench ## Do all that `bench` does once and small, to see that it works
	@exec bin/bench --smoke --json= $(ARGS)

.PHONY: profile
profile: setup-run build-bench ## Write CPU, allocation, mutex and block profiles of 64 runs at once, and of 256 streams, to bin/profile
	@exec bin/bench profile $(ARGS)

.PHONY: build-bench
build-bench: need-go
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/bench ./cmd/bench

# DURATION=15m SEED=1 KILL_EVERY=1500ms say how long, what and how often; the last
# line is the summary. docs/durability.md says what is looked for.
.PHONY: faults
faults: setup-run build-faults ## Kill agentd at random under load, and look for what was lost or repeated
	@exec bin/faults $(ARGS)

.PHONY: build-faults
build-faults: need-go
	CGO_ENABLED=0 go build -trimpath -tags faults -ldflags '$(LDFLAGS)' -o bin/agentd-faults ./cmd/agentd
	CGO_ENABLED=0 go build -trimpath -o bin/faults ./cmd/faults

# Takes packages from the npm registry, so it is no part of `test`.
.PHONY: e2e
e2e: need-go setup-run ## Run the client libraries of other languages against agentd; needs Node.js
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		AGENTD_E2E=1 go test -count=1 -timeout=$(TEST_TIMEOUT) -run '^TestClientsOfOtherLanguages$$' -v ./cmd/agentd; \
	else \
		echo "=== SKIPPED: node and npm are not on the PATH, so no client of another language was run" >&2; \
	fi

.PHONY: test-million
test-million: need-go setup ## Have a million rows of the ledger verified in SQL, by agentd and by Python; takes minutes
	AGENTD_LEDGER_ROWS=1000000 go test -count=1 -timeout=60m -run '^TestLedgersOfAnySizeAreVerifiedInBoundedMemory$$' -v ./cmd/agentd

# CGO_ENABLED=0: loading packages for analysis must not need a C compiler. The
# linter sees the code as it ships; vet also sees the one with crash points.
.PHONY: lint
lint: need-go $(GOLANGCI_LINT) $(if $(PROTO),$(BUF)) ## Check the code, its formatting and the protos
	CGO_ENABLED=0 $(GOLANGCI_LINT) run ./...
	CGO_ENABLED=0 go vet -tags faults ./...
	$(if $(PROTO),$(BUF) lint)
	$(if $(PROTO),$(BUF) format --diff --exit-code)
	$(if $(PROTO),$(BUF) breaking $(PROTO) --against $(RELEASED))
	$(if $(PROTO),$(BUF) breaking $(PLUGIN_PROTO) --against $(PLUGIN_RELEASED))

.PHONY: fmt
fmt: need-go $(GOLANGCI_LINT) $(if $(PROTO),$(BUF)) ## Format the code and the protos
	$(GOLANGCI_LINT) fmt ./...
	$(if $(PROTO),$(BUF) format -w)

# Local plugins only: this works without a network once the tools are built.
.PHONY: generate
generate: need-go $(if $(PROTO),$(BUF) $(GENERATORS)) ## Generate code and api/openapi from the protos, then go generate
	$(if $(PROTO),$(BUF) generate)
	$(if $(PROTO),$(BUF) generate --template buf.gen.plugin.yaml)
	$(if $(PROTO),$(BUF) build $(PLUGIN_PROTO) --as-file-descriptor-set --exclude-source-info -o examples/plugins/python/agentd_plugin_v1.txtpb)
	PATH="$(CURDIR)/$(TOOLS):$$PATH" go generate ./...

# Only after a release: what was added since is taken back as long as it is not here.
.PHONY: release-protos
release-protos: need-go $(BUF) ## Take the protos as they are for released; what breaks the released ones is refused
	$(BUF) breaking $(PROTO) --against $(RELEASED)
	$(BUF) build $(PROTO) --as-file-descriptor-set --exclude-source-info -o $(RELEASED)
	$(BUF) breaking $(PLUGIN_PROTO) --against $(PLUGIN_RELEASED)
	$(BUF) build $(PLUGIN_PROTO) --as-file-descriptor-set --exclude-source-info -o $(PLUGIN_RELEASED)

.PHONY: record
record: need-go setup-run ## Record the session that README.md shows, the columns in docs/sql.md and the deaths and bugs in docs/durability.md
	AGENTD_RECORD=1 go test -count=1 -run '^TestRecord' ./cmd/agentd ./loop ./loop/looptest/sim

.PHONY: setup
setup: ## Install what tests need: gcc, libc6-dev, postgresql, python3, curl, pgbouncer (Debian, as root)
	@scripts/setup cc postgres python curl pgbouncer

.PHONY: setup-run
setup-run: ## Install what running needs: postgresql (Debian, as root)
	@scripts/setup postgres

.PHONY: tools
tools: $(GOLANGCI_LINT) $(BUF) $(GENERATORS) ## Build the pinned tools into bin/tools

.PHONY: clean
clean: ## Remove what was built, the tools included
	rm -rf bin coverage.out

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: need-go
need-go:
	@command -v go >/dev/null || { echo "Go is not on the PATH; install the version that go.mod names from https://go.dev/dl." >&2; exit 1; }

# The tools are modules of their own, so that the product's go.mod lists what
# the product needs. They are three since buf and the linter each choose another
# protobuf than the one that the generated code is made for. `go build` leaves an
# up-to-date binary untouched, hence the touch: a rule must not run twice.
GO_TOOL = CGO_ENABLED=0 GOWORK=off go build -C tools/$(1) -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ $(2) && touch $@

$(GOLANGCI_LINT): tools/lint/go.mod tools/lint/go.sum | need-go
	@echo "building golangci-lint (some minutes the first time)"
	@$(call GO_TOOL,lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(BUF): tools/buf/go.mod tools/buf/go.sum | need-go
	@echo "building buf (some minutes the first time)"
	@$(call GO_TOOL,buf,github.com/bufbuild/buf/cmd/buf)

$(TOOLS)/protoc-gen-go: tools/gen/go.mod tools/gen/go.sum | need-go
	@$(call GO_TOOL,gen,google.golang.org/protobuf/cmd/protoc-gen-go)

$(TOOLS)/protoc-gen-connect-go: tools/gen/go.mod tools/gen/go.sum | need-go
	@$(call GO_TOOL,gen,connectrpc.com/connect/cmd/protoc-gen-connect-go)

$(TOOLS)/protoc-gen-go-grpc: tools/gen/go.mod tools/gen/go.sum | need-go
	@$(call GO_TOOL,gen,google.golang.org/grpc/cmd/protoc-gen-go-grpc)

# This one is the repository's own, and in its module.
$(TOOLS)/openapi: $(wildcard tools/openapi/*.go) go.mod | need-go
	CGO_ENABLED=0 go build -trimpath -o $@ ./tools/openapi && touch $@
