# Everything here needs Go and a C compiler (for the race detector); no Docker, no
# cluster. The control plane is built once, by devcluster, and cached.

GO         ?= go
DEVCLUSTER := bin/devcluster
MODULES    := . devcluster benchmarks webhook/celtest webhook/equivalence
CONTRACT   := core changes index background admission activities

.PHONY: demo test unit bench lint contract $(DEVCLUSTER)

## demo: an operator at work on a real API server; CLUSTER=current uses the current kubeconfig
ifeq ($(CLUSTER),current)
demo:
	$(GO) run ./examples/quickstart/demo
else
demo: $(DEVCLUSTER)
	$(DEVCLUSTER) -- $(GO) run ./examples/quickstart/demo
endif

## test: all tests of all modules, with the race detector, on a control plane of their own
test: $(DEVCLUSTER)
	$(DEVCLUSTER) -- $(GO) test -race -timeout 30m ./...
	$(GO) -C devcluster test -race ./...
	$(GO) -C webhook/celtest test -race ./...
	$(GO) -C webhook/equivalence test -race ./...

## unit: only what needs no control plane
unit:
	$(GO) test -race -skip TestSuite ./...

## bench: side by side with controller-runtime, on a control plane of its own
bench: $(DEVCLUSTER)
	$(DEVCLUSTER) -- $(GO) -C benchmarks test -run '^$$' -bench . -benchtime 1x ./...

## lint: gofmt, go vet and staticcheck, in all modules
lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	test -z "$$unformatted" || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	@staticcheck=$$($(GO) -C tools tool -n staticcheck) && for module in $(MODULES); do \
		echo "lint $$module"; \
		$(GO) -C $$module vet ./... && (cd $$module && "$$staticcheck" ./...) || exit 1; \
	done

## contract: the calls as users write them still compile
contract:
	@if [ -d ../shared/contract ]; then \
		trap 'rm -rf internal/contract' EXIT; \
		mkdir -p internal/contract && \
		cp $(CONTRACT:%=../shared/contract/%.go) internal/contract/ && \
		$(GO) vet -tags contract ./internal/contract && echo "contract holds"; \
	else echo "no contract here to check"; fi

$(DEVCLUSTER): # the go command knows whether there is something to do
	@$(GO) -C devcluster build -o "$(CURDIR)/$(DEVCLUSTER)" ./cmd/devcluster
