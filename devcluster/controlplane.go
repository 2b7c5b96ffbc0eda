package devcluster

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Versions of the control plane that this module is pinned to. A test holds
// them equal to the embedded build definition.
const (
	KubernetesVersion = "v1.37.2"
	EtcdVersion       = "v3.7.3"
)

const (
	apiServer = "kube-apiserver"
	etcd      = "etcd"
	kubectl   = "kubectl"
)

// definition is the module that all programs are built from. A file that is
// called go.mod starts a module of its own, which go:embed refuses to cross;
// hence the names that end in .txt.
//
//go:embed controlplane/*.txt
var definition embed.FS

// program is one of the binaries: the two of the control plane, and what talks to it.
type program struct {
	name    string // the file name that envtest looks for
	pkg     string // the package it is built from
	version string
	ldflags string
	// ask are the arguments that have it print its version, and prefix is what
	// stands before that, which has no "v" if bare is set.
	ask    []string
	prefix string
	bare   bool
}

// programs are in the order of building: the small one first, so that a
// machine that cannot build at all says so early.
var programs = []program{
	{
		name:    etcd,
		pkg:     "go.etcd.io/etcd/server/v3",
		version: EtcdVersion,
		ldflags: "-s -w",
		ask:     []string{"--version"},
		prefix:  "etcd Version: ",
		bare:    true,
	},
	{
		name:    apiServer,
		pkg:     "k8s.io/kubernetes/cmd/kube-apiserver",
		version: KubernetesVersion,
		// Kubernetes reports v0.0.0-master unless its version is linked in, and
		// emulation-version checks then refuse to start.
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion,
		ask:     []string{"--version"},
		prefix:  "Kubernetes ",
	},
	{
		name:    kubectl, // nearly all of it is compiled by now
		pkg:     "k8s.io/kubernetes/cmd/kubectl",
		version: KubernetesVersion,
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion,
		ask:     []string{"version", "--client"},
		prefix:  "Client Version: ",
	},
}

// servers are the programs that run as long as a cluster.
var servers = []string{etcd, apiServer}

// cacheName is the name of the folder that holds one build.
func cacheName() string {
	return strings.Join([]string{KubernetesVersion, EtcdVersion, runtime.GOOS, runtime.GOARCH}, "-")
}

// writeDefinition writes the module that all programs are built from.
func writeDefinition(dir string) error {
	entries, err := definition.ReadDir("controlplane")
	if err != nil {
		return fmt.Errorf("read the embedded build definition: %w", err)
	}
	for _, entry := range entries {
		text, err := definition.ReadFile("controlplane/" + entry.Name())
		if err != nil {
			return fmt.Errorf("read the embedded build definition: %w", err)
		}
		name := strings.TrimSuffix(entry.Name(), ".txt")
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("write the build definition: %w", err)
		}
	}
	return nil
}
