package diff

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// deployment is a tree of about 4 KB of JSON, shaped like a Deployment.
func deployment(t testing.TB, edit func(obj)) any {
	var labels, annotations, env []string
	for i := range 10 {
		labels = append(labels, fmt.Sprintf(`"app.kubernetes.io/label-%d":"value-%d"`, i, i))
		annotations = append(annotations, fmt.Sprintf(`"example.com/annotation-%d":%q`, i, strings.Repeat("x", 60)))
		env = append(env, fmt.Sprintf(`{"name":"VARIABLE_%d","value":"some value %d"}`, i, i))
	}
	container := `{"name":"main","image":"registry.example.com/team/app:1.2.3","imagePullPolicy":"IfNotPresent",
"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[` + strings.Join(env, ",") + `],
"resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},
"livenessProbe":{"httpGet":{"path":"/healthz","port":"http"},"initialDelaySeconds":10,"periodSeconds":5}}`
	text := `{"metadata":{"labels":{` + strings.Join(labels, ",") + `},"annotations":{` + strings.Join(annotations, ",") + `}},
"spec":{"replicas":3,"revisionHistoryLimit":10,"progressDeadlineSeconds":600,"paused":false,
"selector":{"matchLabels":{"app":"demo"}},
"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":1}},
"template":{"metadata":{"labels":{` + strings.Join(labels, ",") + `}},
"spec":{"containers":[` + container + `,` + container + `],"restartPolicy":"Always","terminationGracePeriodSeconds":30,
"nodeSelector":{"kubernetes.io/os":"linux"},"securityContext":{"runAsNonRoot":true,"fsGroup":1000},
"serviceAccountName":"demo","schedulerName":"default-scheduler","dnsPolicy":"ClusterFirst"}}}}`
	v := tree(t, text)
	edit(v.(obj))
	return v
}

func unchanged(obj) {}

// changed alters five fields on several levels.
func changed(o obj) {
	spec := o["spec"].(obj)
	spec["replicas"] = int64(5)
	delete(spec, "paused")
	spec["minReadySeconds"] = int64(5)
	o["metadata"].(obj)["labels"].(obj)["app.kubernetes.io/label-1"] = "other"
	spec["template"].(obj)["spec"].(obj)["containers"].(arr)[1].(obj)["image"] = "registry.example.com/team/app:1.2.4"
}

func TestAllocations(t *testing.T) {
	a, same, b := deployment(t, unchanged), deployment(t, unchanged), deployment(t, changed)
	if d := Of(a, b); len(d) != 5 {
		t.Fatalf("the sample is off:\n%s", d)
	}
	number, float := any(int64(5)), any(5.0)
	fraction, digits := any(float32(2.5)), any(json.Number("2.5"))
	path := Path{"spec", "template", "spec", "dnsPolicy"}
	for _, c := range []struct {
		name  string
		limit float64
		do    func()
	}{
		{"diff of equal trees", 0, func() { Of(a, same) }},
		{"diff of changed trees", 20, func() { Of(a, b) }},
		{"equal trees", 0, func() { Equal(a, same) }},
		{"different trees", 0, func() { Equal(a, b) }},
		{"numbers of two types", 0, func() { Equal(number, float) }},
		{"fractions of two types", 0, func() { Equal(fraction, digits) }},
		{"resolution", 0, func() { Resolve(a, path) }},
	} {
		got := testing.AllocsPerRun(100, c.do)
		t.Logf("%s: %v", c.name, got)
		if got > c.limit {
			t.Errorf("%s: %v allocations, at most %v expected", c.name, got, c.limit)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	for _, c := range []struct {
		name string
		edit func(obj)
	}{{"equal", unchanged}, {"changed", changed}} {
		old, new := deployment(b, unchanged), deployment(b, c.edit)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Of(old, new)
			}
		})
	}
}

func BenchmarkEqual(b *testing.B) {
	old, new := deployment(b, unchanged), deployment(b, unchanged)
	b.ReportAllocs()
	for b.Loop() {
		Equal(old, new)
	}
}

func BenchmarkAt(b *testing.B) {
	d := Of(deployment(b, unchanged), deployment(b, changed))
	path := Path{"spec", "template"}
	b.ReportAllocs()
	for b.Loop() {
		d.At(path)
	}
}
