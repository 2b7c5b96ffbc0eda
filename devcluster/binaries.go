package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// assetsEnv is envtest's variable for the folder of the binaries.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Binaries returns the folder that holds etcd, kube-apiserver and kubectl.
// That is, in this order: the folder that KUBEBUILDER_ASSETS names; the one in
// the user's cache folder; that one after all were built into it from their Go
// modules. The build needs a go command, access to the modules and 7.5 GB
// of disk, half of which stays in use; it takes about ten minutes on two cores, once.
//
// Processes that call it at the same time build once: the others wait. It is
// safe for concurrent use. Cancelling ctx ends a running build and leaves
// nothing half-done.
func Binaries(ctx context.Context, opts Options) (string, error) {
	opts = opts.withDefaults()
	if dir := os.Getenv(assetsEnv); dir != "" {
		return assets(ctx, dir, opts.AnyVersion)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w; set HOME, or %s to a folder with the programs", err, assetsEnv)
	}
	b := newBuilder(filepath.Join(cache, "kopf-go", "devcluster"), opts.Log)
	return b.binaries(ctx)
}

// assets checks the folder that the user has named.
func assets(ctx context.Context, dir string, anyVersion bool) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the folder of %s: %w", assetsEnv, err)
	}
	const advice = "correct " + assetsEnv + ", or unset it to have the programs built"
	var missing []string
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(dir, p.name)); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, p.name)
		} else if err != nil {
			return "", fmt.Errorf("look for %s in %s: %w; %s", p.name, assetsEnv, err, advice)
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("no %s in %s, which %s names: %s", strings.Join(missing, " and no "), dir, assetsEnv, advice)
	}
	for _, p := range programs {
		got, err := p.versionOf(ctx, filepath.Join(dir, p.name))
		if err != nil {
			return "", fmt.Errorf("%w; %s", err, advice)
		}
		// The patch level does not matter to tests, and ready-made sets of
		// binaries do not exist for each of them; which etcd belongs to a
		// Kubernetes is for the maker of the set to know.
		if p.name == apiServer && !anyVersion && minor(got) != minor(p.version) {
			return "", fmt.Errorf("%s in %s, which %s names, is %s, but %s is needed: unset %[3]s, or allow any version",
				p.name, dir, assetsEnv, got, minor(p.version))
		}
	}
	return dir, nil
}

// minor cuts the patch level off "v1.37.2".
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// versionOf runs the binary and returns the version it reports.
func (p program) versionOf(ctx context.Context, binary string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, p.ask...)
	// A script's child may hold the output open after the script is killed.
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", binary, strings.Join(p.ask, " "), err, bytes.TrimSpace(out))
	}
	for line := range strings.Lines(string(out)) {
		version, found := strings.CutPrefix(strings.TrimSpace(line), p.prefix)
		if !found {
			continue
		}
		if p.bare {
			version = "v" + version
		}
		return version, nil
	}
	return "", fmt.Errorf("%s %s names no version: %s", binary, strings.Join(p.ask, " "), bytes.TrimSpace(out))
}

// checkBuilt tells whether dir holds all programs in the pinned versions.
func checkBuilt(ctx context.Context, dir string) error {
	for _, p := range programs {
		binary := filepath.Join(dir, p.name)
		got, err := p.versionOf(ctx, binary)
		if err != nil {
			return err
		}
		if got != p.version {
			return fmt.Errorf("%s is %s instead of %s", binary, got, p.version)
		}
	}
	return nil
}
