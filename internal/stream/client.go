package stream

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/body"
)

// Client reads and patches objects of any resource as bodies: metadata and
// untouched bytes, never decoded. It is safe for concurrent use.
type Client struct {
	config  *rest.Config
	http    *http.Client
	objects objectCodec

	mu   sync.Mutex
	byGV map[schema.GroupVersion]rest.Interface
}

// NewClient makes a client. All clients and streams of a process should share one
// httpClient, so that they share connections; nil makes one from config.
//
// There is no limit on requests per second, whatever config says: what must be
// slowed down is for the engine to decide, and a watch must never wait behind it.
func NewClient(config *rest.Config, httpClient *http.Client) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.RateLimiter = nil
	config.NegotiatedSerializer = codecs(objectCodec{})
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if httpClient == nil {
		var err error
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("cannot connect to the API server with this configuration: %w", err)
		}
	}
	return &Client{config: config, http: withChecks(httpClient), byGV: map[schema.GroupVersion]rest.Interface{}}, nil
}

// REST returns the client-go client for a group and version. Errors that it
// returns are apierrors, objects in its watches are *body.Body.
func (c *Client) REST(gv schema.GroupVersion) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.byGV[gv]; ok {
		return client, nil
	}
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", gv, err)
	}
	c.byGV[gv] = client
	return client, nil
}

// Get reads one object. namespace is empty for cluster-scoped resources.
func (c *Client) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (*body.Body, error) {
	client, err := c.REST(gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	return c.one(client.Get().NamespaceIfScoped(namespace, namespace != "").
		Resource(gvr.Resource).Name(name).Do(ctx))
}

// Patch changes one object, or a subresource of it, and returns what came of it.
// namespace is empty for cluster-scoped resources.
//
// What the server turned away with 429, or with 5xx and a Retry-After header, is
// sent again after that time, at most ten times or until ctx is done, as client-go
// does by default. That is wanted: the alternative is that the outcome of handlers
// which have already run can't be recorded. It is safe, too, for a merge patch is
// idempotent and a patch with a version lock conflicts when it has been applied
// already. After errors of the connection a patch is never sent again.
func (c *Client) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, patchType types.PatchType, data []byte, subresources ...string) (*body.Body, error) {
	client, err := c.REST(gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	return c.one(client.Patch(patchType).NamespaceIfScoped(namespace, namespace != "").
		Resource(gvr.Resource).Name(name).SubResource(subresources...).Body(data).Do(ctx))
}

func (c *Client) one(result rest.Result) (*body.Body, error) {
	raw, err := success(result)
	if err != nil {
		return nil, err
	}
	// A copy, because what client-go read into has grown by appending and may
	// be larger than its content.
	switch object := c.objects.decode(bytes.Clone(raw)).(type) {
	case *body.Body:
		return object, nil
	case *marked:
		return nil, object.err
	case *metav1.Status:
		return nil, apierrors.FromObject(object)
	default:
		return nil, fmt.Errorf("got %T where an object is expected", object)
	}
}

func success(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil { // not Raw's error, for that one knows nothing of the Status
		return nil, err
	}
	return result.Raw()
}

// list and watch make one attempt each. client-go's own retries are off: they
// would hide for minutes that the server is not reachable, and a stream has its own.
func (c *Client) list(ctx context.Context, gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions, kind metav1.TypeMeta) (*page, error) {
	request, err := c.request(gvr, namespace, options)
	if err != nil {
		return nil, err
	}
	if c.objects.metadataOf != nil {
		request.SetHeader("Accept", acceptMetadataList)
	}
	raw, err := success(request.Do(ctx))
	if err != nil {
		return nil, err
	}
	return c.objects.decodePage(raw, kind)
}

func (c *Client) watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	request, err := c.request(gvr, namespace, options)
	if err != nil {
		return nil, err
	}
	w, err := request.Watch(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := w.(*watch.StreamWatcher); !ok {
		return nil, errNoAnswer // client-go makes an empty watch of a connection that ended too early
	}
	return w, nil
}

func (c *Client) request(gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions) (*rest.Request, error) {
	client, err := c.REST(gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	return client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(gvr.Resource).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		MaxRetries(0), nil
}
