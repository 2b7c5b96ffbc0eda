// Quickstart is an operator for a resource of its own: it provisions databases,
// resizes them when spec.replicas changes, and releases them when they are deleted.
package main

import (
	"context"
	"fmt"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// DatabaseSpec is what users ask for.
type DatabaseSpec struct {
	Engine   string `json:"engine,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
}

// DatabaseStatus is what they get.
type DatabaseStatus struct {
	Phase    string `json:"phase,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
}

// Database is the custom resource.
type Database = kopf.Resource[DatabaseSpec, DatabaseStatus]

var databases = on.Resource("quickstart.example.com/v1", "databases")

func main() {
	on.Create(provision, databases)
	on.FieldChange("spec.replicas", resize, databases)
	on.Delete(release, databases)
	kopf.Main(kopf.Options{Name: "quickstart"})
}

func provision(ctx context.Context, c *kopf.Change[*Database]) error {
	if c.New.Spec.Engine == "" {
		return kopf.Permanent(fmt.Errorf("spec.engine is required"))
	}
	c.Log.Info("provisioning", "engine", c.New.Spec.Engine)
	c.Patch.Apply(func(d *Database) { d.Status.Phase = "Ready" })
	return nil
}

func resize(ctx context.Context, c *kopf.FieldChange[*Database, int32]) error {
	if c.HadOld {
		c.Log.Info("resizing", "old", c.Old, "new", c.New)
	}
	c.Patch.Apply(func(d *Database) { d.Status.Replicas = c.New })
	return nil
}

func release(ctx context.Context, c *kopf.Change[*Database]) error {
	c.Log.Info("releasing", "replicas", c.Object.Spec.Replicas)
	return nil
}
