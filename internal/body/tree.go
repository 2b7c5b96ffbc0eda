package body

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	utiljson "sigs.k8s.io/json"
)

// DecodeTree decodes a JSON object into maps, slices, strings, bools, int64 and float64, as
// Kubernetes does. Of names that are there twice the last one counts.
func DecodeTree(raw []byte) (map[string]any, error) {
	if value, ok := decodeWhole(raw, kubernetesNumber); ok {
		if tree, isObject := value.(map[string]any); isObject {
			return tree, nil
		}
	}
	tree := map[string]any{}
	err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &tree) // which says what is wrong
	return tree, err
}

// DecodeExactly decodes any JSON value likewise, but with numbers as they are written, in
// json.Number.
func DecodeExactly(raw []byte) (any, error) {
	if value, ok := decodeWhole(raw, exactNumber); ok {
		return value, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// decodeWhole takes some two thirds of the time of the usual decoders. It gives up on what
// has mistakes, which they can name.
func decodeWhole(raw []byte, number func(string) (any, bool)) (any, bool) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer func() {
		dec.Reset(nothing{}) // or the pool would keep raw alive
		decoders.Put(dec)
	}()
	dec.Reset(bytes.NewBuffer(raw), trusting...)
	value, ok := decodeNext(dec, number)
	if !ok {
		return nil, false
	}
	_, err := dec.ReadToken()
	return value, err == io.EOF
}

func decodeNext(dec *jsontext.Decoder, number func(string) (any, bool)) (any, bool) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, false
	}
	switch token.Kind() {
	case 'n':
		return nil, true
	case 't', 'f':
		return token.Bool(), true
	case '"':
		return token.String(), true
	case '0':
		return number(token.String())
	case '[':
		list := []any{}
		for dec.PeekKind() != ']' {
			value, ok := decodeNext(dec, number)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		_, err = dec.ReadToken()
		return list, err == nil
	case '{':
		object := map[string]any{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, false
			}
			key := name.String()
			value, ok := decodeNext(dec, number)
			if !ok {
				return nil, false
			}
			object[key] = value
		}
		_, err = dec.ReadToken()
		return object, err == nil
	}
	return nil, false
}

func exactNumber(text string) (any, bool) { return json.Number(text), true }

func kubernetesNumber(text string) (any, bool) {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, true
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}
