package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "sigs.k8s.io/json"
)

// RoundTrip is part of http.RoundTripper.
func (s *Server) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close()
	}
	r := parse(request)
	r.whole = s.WholeObjects
	r.Body = body
	s.mu.Lock()
	s.requests = append(s.requests, &r.Request)
	s.mu.Unlock()

	response, err := s.disturb(ctx, r.Request, false)
	if response == nil && err == nil {
		response, err = s.serve(ctx, r)
		if err == nil {
			response, err = s.disturbAfter(ctx, r.Request, response)
		}
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	r.Code = response.StatusCode
	s.mu.Unlock()
	response.Request = request
	return response, nil
}

// parsed is a request with what its path means.
type parsed struct {
	Request
	groupVersion string
	plural       string
	subresource  string
	query        url.Values
	contentType  string
	whole        bool // objects, whatever the client asks for
}

func parse(request *http.Request) *parsed {
	p := &parsed{query: request.URL.Query(), contentType: request.Header.Get("Content-Type")}
	p.At, p.Query, p.Accept = time.Now(), request.URL.RawQuery, request.Header.Get("Accept")
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) >= 2:
		p.groupVersion, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 3:
		p.groupVersion, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		p.Verb, p.Resource = "discover", strings.Join(parts, "/")
		return p
	}
	if len(parts) == 0 {
		p.Verb, p.Resource = "discover", p.groupVersion
		return p
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" {
		p.Namespace, parts = parts[1], parts[2:]
	}
	p.plural = parts[0]
	p.Resource = p.plural
	if len(parts) > 1 {
		p.Name = parts[1]
	}
	if len(parts) > 2 {
		p.subresource = strings.Join(parts[2:], "/")
		p.Resource += "/" + p.subresource
	}
	p.Verb = verb(request.Method, p.Name != "", p.query)
	return p
}

func verb(method string, named bool, query url.Values) string {
	switch method {
	case http.MethodGet:
		watch, _ := strconv.ParseBool(query.Get("watch"))
		switch {
		case watch:
			return "watch"
		case named:
			return "get"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(method)
}

func (s *Server) serve(ctx context.Context, p *parsed) (*http.Response, error) {
	s.mu.Lock()
	if s.broken[p.groupVersion] || p.Verb == "discover" && s.broken[p.Resource] {
		s.mu.Unlock()
		return answerError(apierrors.NewServiceUnavailable("the aggregated API does not answer")), nil
	}
	if p.Verb == "discover" {
		defer s.mu.Unlock()
		return s.discover(p), nil
	}
	c := s.collections[p.groupVersion+"/"+p.plural]
	if c == nil || p.subresource != "" && (p.subresource != "status" || !c.kind.Status) {
		s.mu.Unlock()
		return answerError(notServed(p)), nil
	}
	s.mu.Unlock()
	switch p.Verb {
	case "watch":
		return s.watch(ctx, c, p)
	case "list":
		return c.list(p), nil
	}
	code, v, err := c.act(p)
	if err != nil {
		return answerError(err), nil
	}
	return answerRaw(code, p.shown(v)), nil
}

func notServed(p *parsed) error {
	gv, _ := schema.ParseGroupVersion(p.groupVersion)
	return apierrors.NewGenericServerResponse(http.StatusNotFound, p.Verb, schema.GroupResource{Group: gv.Group, Resource: p.plural}, p.Name, "", 0, true)
}

// act carries out a request for one object.
func (c *Collection) act(p *parsed) (int, *version, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	at := name{p.Namespace, p.Name}
	status := p.subresource == "status"
	switch p.Verb {
	case "get":
		v := c.objects[at]
		if v == nil {
			return 0, nil, apierrors.NewNotFound(c.kind.resource(), at.name)
		}
		return http.StatusOK, v, nil
	case "create":
		tree, err := parseTree(p.Body)
		if err != nil {
			return 0, nil, err
		}
		o := &unstructured.Unstructured{Object: tree}
		if p.Namespace != "" {
			o.SetNamespace(p.Namespace)
		}
		v, err := c.create(o)
		return http.StatusCreated, v, err
	case "update":
		tree, err := parseTree(p.Body)
		if err != nil {
			return 0, nil, err
		}
		v, err := c.update(at, status, func(o *unstructured.Unstructured) error {
			o.Object = tree
			return nil
		})
		return http.StatusOK, v, err
	case "patch":
		if kind, _, _ := strings.Cut(p.contentType, ";"); kind != string(types.MergePatchType) {
			return 0, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
				Message: "the simulated server takes merge patches only, not " + p.contentType,
			}}
		}
		patch, err := parseTree(p.Body)
		if err != nil {
			return 0, nil, err
		}
		v, err := c.update(at, status, func(o *unstructured.Unstructured) error {
			merge(o.Object, patch)
			return nil
		})
		return http.StatusOK, v, err
	case "delete":
		if err := c.expected(at, p.Body); err != nil {
			return 0, nil, err
		}
		v, err := c.delete(at)
		return http.StatusOK, v, err
	}
	return 0, nil, apierrors.NewMethodNotSupported(c.kind.resource(), p.Verb)
}

// expected checks the preconditions of a deletion.
func (c *Collection) expected(at name, body []byte) error {
	var options metav1.DeleteOptions
	v := c.objects[at]
	if len(body) == 0 || v == nil || json.Unmarshal(body, &options) != nil || options.Preconditions == nil {
		return nil
	}
	wanted := options.Preconditions
	if wanted.UID != nil && *wanted.UID != v.peek().GetUID() ||
		wanted.ResourceVersion != nil && *wanted.ResourceVersion != v.peek().GetResourceVersion() {
		return apierrors.NewConflict(c.kind.resource(), at.name, errors.New("precondition failed"))
	}
	return nil
}

// page is the rest of a list that is read in pages.
type page struct {
	version int64
	items   []*version
}

func (c *Collection) list(p *parsed) *http.Response {
	selector, err := selectorOf(p.query)
	if err != nil {
		return answerError(apierrors.NewBadRequest(err.Error()))
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := &page{version: s.version}
	if token := p.query.Get("continue"); token != "" {
		if rest = s.pages[token]; rest == nil {
			return answerError(apierrors.NewResourceExpired("The provided continue parameter is too old"))
		}
	} else {
		for _, v := range c.sorted(p.Namespace) {
			if selector.matches(v) {
				rest.items = append(rest.items, v)
			}
		}
	}
	meta := map[string]any{"resourceVersion": text(rest.version)}
	items := rest.items
	if limit, _ := strconv.Atoi(p.query.Get("limit")); limit > 0 && limit < len(items) {
		s.identities++
		token := fmt.Sprintf("page-%d", s.identities)
		s.pages[token] = &page{version: rest.version, items: items[limit:]}
		meta["continue"], meta["remainingItemCount"] = token, len(items)-limit
		items = items[:limit]
	}
	raws := make([]json.RawMessage, len(items))
	for i, v := range items {
		raws[i] = p.shown(v)
	}
	list := map[string]any{"apiVersion": c.kind.GroupVersion, "kind": c.kind.Kind + "List", "metadata": meta, "items": raws}
	if !p.whole && p.wants("PartialObjectMetadataList") {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return answer(http.StatusOK, list)
}

func parseTree(raw []byte) (map[string]any, error) {
	tree := map[string]any{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &tree); err != nil {
		return nil, apierrors.NewBadRequest("the body is not a JSON object: " + err.Error())
	}
	return tree, nil
}

// normal returns a copy of a tree with nothing in it but what JSON decodes to.
func normal(tree map[string]any) map[string]any {
	raw, err := json.Marshal(tree)
	if err != nil {
		panic(err) // a mistake in a test
	}
	out := map[string]any{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &out); err != nil {
		panic(err)
	}
	if out == nil {
		out = map[string]any{}
	}
	return out
}

func answer(code int, value any) *http.Response {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return answerRaw(code, raw)
}

func answerError(err error) *http.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return answer(int(s.Code), &s)
}

func answerRaw(code int, raw []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(raw)), Body: io.NopCloser(bytes.NewReader(raw)),
	}
}
