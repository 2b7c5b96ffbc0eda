package benchmarks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/cluster"
)

// Widget is the custom resource of all benchmarks. It is what an author would write
// and controller-gen complete, so that no side is slowed down by a generic copy.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WidgetSpec   `json:"spec"`
	Status WidgetStatus `json:"status,omitzero"`
}

// WidgetSpec is about 4 KB of JSON. Its fields are in alphabetical order, as in the
// API server's answers, so that the peer can compare plain bytes.
type WidgetSpec struct {
	Backup     Backup            `json:"backup"`
	Components []Component       `json:"components"`
	Placement  Placement         `json:"placement"`
	Routes     []Route           `json:"routes"`
	Settings   map[string]string `json:"settings"`
	Value      int64             `json:"value"`
}

type Backup struct {
	Enabled   bool             `json:"enabled"`
	Retention map[string]int64 `json:"retention"`
	Schedule  string           `json:"schedule"`
	Target    string           `json:"target"`
}

type Component struct {
	Args     []string          `json:"args"`
	Env      []Variable        `json:"env"`
	Image    string            `json:"image"`
	Limits   map[string]string `json:"limits"`
	Name     string            `json:"name"`
	Ports    []Port            `json:"ports"`
	Probe    Probe             `json:"probe"`
	Replicas int64             `json:"replicas"`
}

type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type Port struct {
	Name     string `json:"name"`
	Port     int64  `json:"port"`
	Protocol string `json:"protocol"`
}

type Probe struct {
	Path          string `json:"path"`
	PeriodSeconds int64  `json:"periodSeconds"`
	Port          string `json:"port"`
}

type Placement struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Tolerations  []Toleration      `json:"tolerations"`
	Zones        []string          `json:"zones"`
}

type Toleration struct {
	Effect   string `json:"effect"`
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
}

type Route struct {
	Backend string   `json:"backend"`
	Host    string   `json:"host"`
	Paths   []string `json:"paths"`
	TLS     bool     `json:"tls"`
}

// WidgetStatus says which spec.value was handled.
type WidgetStatus struct {
	Observed int64 `json:"observed"`
}

// newWidget makes the nth widget.
func newWidget(group string, n int) *Widget {
	w := &Widget{
		TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1", Kind: cluster.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: widgetName(n),
			Labels: map[string]string{"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": widgetName(n), "tier": "gold"},
		},
		Spec: WidgetSpec{
			Backup: Backup{
				Enabled: true, Retention: map[string]int64{"daily": 7, "weekly": 4, "monthly": 12},
				Schedule: "17 3 * * *", Target: "s3://backups.example.com/shops/" + widgetName(n),
			},
			Placement: Placement{
				NodeSelector: map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "node.example.com/pool": "general"},
				Tolerations: []Toleration{
					{Effect: "NoSchedule", Key: "dedicated", Operator: "Equal", Value: "shops"},
					{Effect: "NoExecute", Key: "node.kubernetes.io/unreachable", Operator: "Equal", Value: ""},
				},
				Zones: []string{"eu-central-1a", "eu-central-1b", "eu-central-1c"},
			},
			Settings: map[string]string{},
			Value:    int64(n + 1),
		},
	}
	for i := range 12 {
		w.Spec.Settings[fmt.Sprintf("feature.%02d.mode", i)] = fmt.Sprintf("mode-%d of %s", i*n%7, widgetName(n))
	}
	for _, name := range []string{"frontend", "catalogue", "checkout", "search"} {
		w.Spec.Components = append(w.Spec.Components, Component{
			Args: []string{"--listen=:8080", "--log-format=json", "--shop=" + widgetName(n)},
			Env: []Variable{
				{"DATABASE_URL", "postgres://" + name + "@db." + widgetName(n) + ".svc:5432/" + name},
				{"CACHE_SIZE", "256"}, {"LOG_LEVEL", "info"}, {"REGION", "eu-central-1"}, {"SERVICE_NAME", name},
			},
			Image:    "registry.example.com/shop/" + name + ":2.14.3",
			Limits:   map[string]string{"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
			Name:     name,
			Ports:    []Port{{"http", 8080, "TCP"}, {"metrics", 9090, "TCP"}},
			Probe:    Probe{Path: "/healthz", PeriodSeconds: 10, Port: "http"},
			Replicas: int64(2 + n%3),
		})
		w.Spec.Routes = append(w.Spec.Routes, Route{
			Backend: name, Host: name + "." + widgetName(n) + ".example.com", Paths: []string{"/" + name, "/api/v1/" + name}, TLS: true,
		})
	}
	return w
}

func widgetName(n int) string { return fmt.Sprintf("shop-%05d", n) }

// essence is what the peer keeps as the last handled state and compares: for a
// widget, the same bytes as Kopf's format has. S is the spec, typed or not.
type essence[S any] struct {
	Spec     S               `json:"spec"`
	Metadata essenceMetadata `json:"metadata"`
}

type essenceMetadata struct {
	Labels map[string]string `json:"labels,omitempty"`
}

func essenceOf[S any](spec S, labels map[string]string) string {
	raw, err := json.Marshal(essence[S]{spec, essenceMetadata{labels}})
	if err != nil {
		panic(err) // plain data
	}
	return string(append(raw, '\n'))
}

// tree is the widget as untyped JSON.
func (w *Widget) tree() map[string]any {
	raw, err := json.Marshal(w)
	if err != nil {
		panic(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		panic(err)
	}
	return integers(tree).(map[string]any)
}

// integers replaces numbers by int64, as Kubernetes decodes them.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			panic(err)
		}
		return n
	}
	return v
}

// WidgetList is for the typed peer.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// widgetScheme knows Widget in a group.
func widgetScheme(group string) *runtime.Scheme {
	scheme := runtime.NewScheme()
	gv := schema.GroupVersion{Group: group, Version: "v1"}
	scheme.AddKnownTypeWithName(gv.WithKind(cluster.Kind), &Widget{})
	scheme.AddKnownTypeWithName(gv.WithKind(cluster.Kind+"List"), &WidgetList{})
	metav1.AddToGroupVersion(scheme, gv)
	return scheme
}

// What follows is what controller-gen would generate.

func (w *Widget) DeepCopyObject() runtime.Object { return w.DeepCopy() }

func (w *Widget) DeepCopy() *Widget {
	out := new(Widget)
	*out = *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	w.Spec.deepCopyInto(&out.Spec)
	return out
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := &WidgetList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Widget, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return out
}

func (s *WidgetSpec) deepCopyInto(out *WidgetSpec) {
	*out = *s
	out.Backup.Retention = maps.Clone(s.Backup.Retention)
	out.Components = slices.Clone(s.Components)
	for i := range out.Components {
		c := &out.Components[i]
		c.Args, c.Env, c.Limits, c.Ports = slices.Clone(c.Args), slices.Clone(c.Env), maps.Clone(c.Limits), slices.Clone(c.Ports)
	}
	out.Placement.NodeSelector = maps.Clone(s.Placement.NodeSelector)
	out.Placement.Tolerations = slices.Clone(s.Placement.Tolerations)
	out.Placement.Zones = slices.Clone(s.Placement.Zones)
	out.Routes = slices.Clone(s.Routes)
	for i := range out.Routes {
		out.Routes[i].Paths = slices.Clone(out.Routes[i].Paths)
	}
	out.Settings = maps.Clone(s.Settings)
}
