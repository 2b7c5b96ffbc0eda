package stream

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/body"
)

// pageSize is how many objects one request of List gets.
const pageSize = 500

// List reads all objects of a resource in a namespace, empty for all of them, page by page,
// so that there is never more than one page in memory. Objects that are not readable come
// as who they are, with an error. One that changes place between the pages may come twice,
// and all do if reading took so long that the API server has forgotten what was there at its
// beginning. Each page may take as long as timeout. It ends with the first error, also of each.
func (c *Client) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, timeout time.Duration, each func(b *body.Body, unreadable error) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		within, cancel := context.WithTimeout(ctx, timeout)
		p, err := c.list(within, gvr, namespace, options, metav1.TypeMeta{})
		cancel()
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			options.Continue = ""
			continue
		}
		if err != nil {
			return err
		}
		for i, object := range p.Items {
			p.Items[i] = nil
			switch object := object.(type) {
			case *body.Body:
				err = each(object, nil)
			case *marked:
				err = each(object.Body, object.err)
			}
			if err != nil {
				return err
			}
		}
		if options.Continue = p.Continue; options.Continue == "" {
			return nil
		}
	}
}
