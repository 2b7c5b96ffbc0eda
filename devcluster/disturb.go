package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// What tests do to a cluster to see how a client takes it.

var errStopped = errors.New("the cluster is stopped")

// Restart stops the API server, starts it again on the same port and the same
// etcd, and returns when it is ready. Certificates and users stay. If ctx ends
// before that, the API server stays down until Restart is called again.
func (c *Cluster) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	// A frozen process would not see the signal to stop.
	if err := signalGroup(c.dir, apiServer, syscall.SIGCONT); err != nil {
		return err
	}
	// An error means that it had to be killed, or was dead: kill makes sure.
	_ = c.plane.APIServer.Stop()
	if err := c.kill(apiServer); err != nil {
		return fmt.Errorf("restart kube-apiserver: %w", err)
	}
	deadline := time.Now().Add(c.opts.StartTimeout)
	for {
		err := c.startProcess(ctx, apiServer, c.plane.APIServer.Start)
		if err == nil {
			return c.waitReady(ctx)
		}
		// A client that tries to reconnect can get, by chance, the very port
		// that it connects to as its own; it loses it again soon.
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
	}
}

// Pause freezes the API server's process: connections stay open, requests get
// no answer. Resume, Restart and Stop end that.
func (c *Cluster) Pause() error {
	return c.signalAPIServer(syscall.SIGSTOP, func() bool { return frozen(pidOf(c.dir, apiServer)) })
}

// Resume lets a paused API server go on.
func (c *Cluster) Resume() error {
	return c.signalAPIServer(syscall.SIGCONT, func() bool { return !frozen(pidOf(c.dir, apiServer)) })
}

// signalAPIServer returns when the signal has had its effect: threads that run
// at the time still answer a request or two.
func (c *Cluster) signalAPIServer(signal syscall.Signal, effect func() bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	if !running(c.dir, apiServer) {
		return fmt.Errorf("%s does not run; its last lines:\n%s", apiServer, c.logs[apiServer])
	}
	if err := signalGroup(c.dir, apiServer, signal); err != nil {
		return err
	}
	if !poll(5*time.Second, effect) {
		return fmt.Errorf("%s does not react to %s", apiServer, signal)
	}
	return nil
}

// frozen tells whether all threads of a process are stopped by a signal.
func frozen(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 { // no Linux
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && bytes.HasPrefix(state, []byte("T"))
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		// The state follows the name, which is in parentheses.
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if err == nil && !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// Compact makes etcd forget all revisions before the current one, so that old
// resourceVersions expire. The watch cache of the API server does not forget
// with it: see control.Client.Compact.
func (c *Cluster) Compact(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	var now struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	// AA== is the zero byte; any key will do, the answer's header is wanted.
	if err := c.askEtcd(ctx, "range", `{"key":"AA==","count_only":true}`, &now); err != nil {
		return fmt.Errorf("find etcd's revision: %w", err)
	}
	body := fmt.Sprintf(`{"revision":"%d","physical":true}`, now.Header.Revision)
	err := c.askEtcd(ctx, "compaction", body, nil)
	if err != nil && strings.Contains(err.Error(), "required revision has been compacted") {
		return nil // nothing was written since the last time
	}
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// askEtcd makes a call of etcd's key-value service through its JSON gateway,
// which saves us the gRPC client.
func (c *Cluster) askEtcd(ctx context.Context, method, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	url := c.plane.Etcd.URL.JoinPath("v3", "kv", method).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(text))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// waitReady returns when the API server says that it is ready and has made the
// default namespace, which it does some time after its start.
func (c *Cluster) waitReady(ctx context.Context) error {
	tls, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return fmt.Errorf("read the administrator's certificate: %w", err)
	}
	client := http.Client{
		Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true},
		Timeout:   5 * time.Second,
	}
	var last error
	ready := poll(c.opts.StartTimeout, func() bool {
		for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
			if last = get(ctx, &client, strings.TrimSuffix(c.config.Host, "/")+path); last != nil {
				return ctx.Err() != nil
			}
		}
		return true
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for kube-apiserver: %w", context.Cause(ctx))
	case !ready:
		return fmt.Errorf("kube-apiserver is not ready after %s: %w; the last lines of its log:\n%s", c.opts.StartTimeout, last, c.logs[apiServer])
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, bytes.TrimSpace(text))
	}
	return err
}
