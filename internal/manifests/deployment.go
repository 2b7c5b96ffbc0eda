package manifests

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/kopf-go/kopf/webhook"
)

// usualGrace is how long Kubernetes gives a pod to stop, in seconds, and spareGrace what is
// needed beside the time that the operator takes.
const (
	usualGrace = 30
	spareGrace = 15 * time.Second
)

// deployment runs the operator as somebody who may do nothing on the node: as the pod
// security standard "restricted" wants it. Without leader election, the old pod has gone
// before the new one comes.
func (o Options) deployment(op Operator) tree {
	strategy := tree{"type": "RollingUpdate"}
	if !op.Elects {
		strategy = tree{"type": "Recreate"}
	}
	pod := tree{
		"serviceAccountName": o.Name,
		"securityContext":    tree{"runAsNonRoot": true, "seccompProfile": tree{"type": "RuntimeDefault"}},
		"containers":         []tree{o.container(op)},
	}
	if seconds := math.Ceil((op.Grace + spareGrace).Seconds()); seconds > usualGrace {
		pod["terminationGracePeriodSeconds"] = int(seconds)
	}
	return tree{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": o.metadata(o.Namespace),
		"spec": tree{
			"replicas": o.Replicas, "strategy": strategy,
			"selector": tree{"matchLabels": o.labels()},
			"template": tree{"metadata": tree{"labels": o.labels()}, "spec": pod},
		},
	}
}

func (o Options) container(op Operator) tree {
	var args []string
	var ports []tree
	c := tree{
		"name": "operator", "image": o.Image,
		"securityContext": tree{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": tree{"drop": []string{"ALL"}},
		},
		// A limit of CPU would only make it slow; one of memory keeps the node safe.
		"resources": tree{"requests": tree{"cpu": "10m", "memory": "64Mi"}, "limits": tree{"memory": "512Mi"}},
	}
	if o.HealthPort > 0 {
		args = append(args, fmt.Sprintf("--health-address=:%d", o.HealthPort))
		ports = append(ports, tree{"name": "health", "containerPort": o.HealthPort})
		c["livenessProbe"] = probe("/healthz", 6)
		c["readinessProbe"] = probe("/readyz", 3)
	}
	if op.Elects {
		args = append(args, "--leader-elect")
	}
	if op.WebhookPort != 0 {
		ports = append(ports, tree{"name": "webhooks", "containerPort": op.WebhookPort})
	}
	if args = append(args, o.Args...); len(args) > 0 {
		c["args"] = args
	}
	if len(ports) > 0 {
		c["ports"] = ports
	}
	return c
}

func probe(path string, failures int) tree {
	return tree{"httpGet": tree{"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures}
}

// service leads requests of the API server to the pods.
func (o Options) service(at webhook.Service) tree {
	metadata := o.metadata(cmp.Or(at.Namespace, o.Namespace))
	metadata["name"] = at.Name
	return tree{
		"apiVersion": "v1", "kind": "Service", "metadata": metadata,
		"spec": tree{
			"selector": o.labels(),
			"ports":    []tree{{"name": "webhooks", "port": cmp.Or(at.Port, 443), "targetPort": "webhooks"}},
		},
	}
}
