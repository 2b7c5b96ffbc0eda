package stream

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/body"
)

// What the API server is asked for when only the metadata of objects is wanted. An
// aggregated API may not know how to give just that, so the whole object will do.
const (
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// MetadataOnly returns a client that shares the connections of this one and reads
// nothing but the metadata of objects, in lists, watches and responses alike. Their
// bodies have metadata, and the apiVersion and kind of the resource itself. It is for
// objects of that one kind.
func (c *Client) MetadataOnly(gvk schema.GroupVersionKind) *Client {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	objects := objectCodec{metadataOf: &metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	config := rest.CopyConfig(c.config)
	config.NegotiatedSerializer = codecs(objects)
	config.AcceptContentTypes = acceptMetadata
	return &Client{config: config, http: c.http, objects: objects, byGV: map[schema.GroupVersion]rest.Interface{}}
}

// reduce leaves no more of an object than its metadata, and says that it is of a
// kind. What is no object, such as a Status, stays as it is.
func reduce(raw []byte, kind metav1.TypeMeta) []byte {
	var was metav1.TypeMeta
	var metadata jsontext.Value
	err := body.Members(raw, func(name string, value jsontext.Value) error {
		switch {
		case name == "metadata":
			metadata = value
		case value.Kind() != '"':
		case name == "apiVersion":
			was.APIVersion = unquote(value)
		case name == "kind":
			was.Kind = unquote(value)
		}
		return nil
	})
	if err != nil || metadata == nil || was.Kind == "Status" && was.APIVersion == "v1" {
		return raw
	}
	head, _ := json.Marshal(kind) // texts only: cannot fail
	out := make([]byte, 0, len(head)+len(`,"metadata":`)+len(metadata))
	out = append(out, head[:len(head)-1]...)
	out = append(out, `,"metadata":`...)
	out = append(out, metadata...)
	return append(out, '}')
}

func unquote(value jsontext.Value) string {
	text, _ := jsontext.AppendUnquote(nil, value)
	return string(text)
}
