package recording

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API server accepts, in bytes.
const (
	reasonLimit   = 128
	messageLimit  = 1024
	instanceLimit = 128
)

// action is what an operator does with objects, as the API asks for. It means nothing.
const action = "Handling"

// compose makes the event, in the form of Kopf (B.8).
func (r *Recorder) compose(e Event) (*corev1.Event, error) {
	switch {
	case e.About.Kind == "":
		return nil, errors.New("the object of the event has no kind")
	case e.About.Name == "":
		return nil, errors.New("the object of the event has no name, as before the API server has given it one")
	case e.Reason == "":
		return nil, errors.New("the event has no reason")
	case e.Type == "":
		return nil, errors.New("the event has no type: it is Normal or Warning")
	}
	now, c := metav1.NewTime(time.Now()), r.config.Load()
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{ // the name is needed to count on
			Name: "kopf-event-" + strconv.FormatUint(rand.Uint64(), 36), Namespace: namespaceOf(e.About),
		},
		InvolvedObject: e.About, Type: e.Type, Reason: prefix(valid(e.Reason), reasonLimit), Message: cut(valid(e.Message)),
		FirstTimestamp: now, LastTimestamp: now, EventTime: metav1.NewMicroTime(now.Time), Count: 1, Action: action,
		ReportingController: c.Component, ReportingInstance: c.Instance, Source: corev1.EventSource{Component: c.Component},
	}, nil
}

// complete fills in what the correlator leaves out when it puts similar events together.
func (r *Recorder) complete(event *corev1.Event) {
	event.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	if event.EventTime.IsZero() {
		event.EventTime = metav1.NewMicroTime(event.FirstTimestamp.Time)
	}
	c := r.config.Load()
	event.Action, event.ReportingController, event.ReportingInstance = action, c.Component, c.Instance
}

// combined is the text of similar events.
func combined(event *corev1.Event) string {
	return cut("(combined from similar events): " + event.Message)
}

// namespaceOf is where an event goes. The API server accepts no other namespace than these
// for what is in none itself (KEV-6).
func namespaceOf(about corev1.ObjectReference) string {
	if about.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return about.Namespace
}

// isEvent tells whether something is about an event, of either API.
func isEvent(about corev1.ObjectReference) bool {
	group, _, found := strings.Cut(about.APIVersion, "/")
	return about.Kind == "Event" && (!found || group == "events.k8s.io")
}

func valid(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

// cut leaves out the middle of a text that is too long (KEV-7). No letter is split.
func cut(text string) string {
	const head, gap, tail = 511, "...", 510
	if len(text) <= messageLimit {
		return text
	}
	end := text[len(text)-tail:]
	for !utf8.RuneStart(end[0]) {
		end = end[1:]
	}
	return prefix(text, head) + gap + end
}

// prefix is as much of a text as fits.
func prefix(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
