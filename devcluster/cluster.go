// Package devcluster runs a real Kubernetes control plane, etcd and
// kube-apiserver, on this machine: for tests, demos and development, with
// nothing but a Go toolchain. The programs are built once from their Go modules
// and cached; a start takes a few seconds. There are no nodes and no
// controllers: objects are stored, validated, watched and admitted, but no pod
// ever runs and nothing is garbage-collected.
//
// It needs a unix: Linux and macOS.
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kopf-go/kopf/devcluster/control"
)

// Options change how a cluster is found, built and started. The zero value is
// what most want.
type Options struct {
	// Log takes what happens, in lines for a person to read. Default:
	// os.Stderr, because a build takes minutes; io.Discard silences it.
	Log io.Writer

	// Output takes the logs of etcd and kube-apiserver; one call of Write at a
	// time. Default: only their last lines are kept, for error messages.
	Output io.Writer

	// APIServerArgs are further arguments of kube-apiserver, such as
	// "--watch-cache=false". They replace envtest's default of the same flag.
	APIServerArgs []string

	// Port is where the API server listens on 127.0.0.1. Default: a free port.
	Port int

	// StartTimeout is how long each process may take until it is ready.
	// Default: one minute.
	StartTimeout time.Duration

	// AnyVersion accepts any version in the folder that KUBEBUILDER_ASSETS
	// names. Default: the minor version must be that of KubernetesVersion.
	AnyVersion bool
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = time.Minute
	}
	return o
}

const (
	// stopGrace is how long the API server may take to end when it is
	// restarted, until it is killed.
	stopGrace = 10 * time.Second

	// portAttempts is how often a free port is chosen anew because another
	// process was faster to take it.
	portAttempts = 3
)

var errPortTaken = errors.New("its port is taken by another process")

// Cluster is a running control plane. Its methods are safe for concurrent use;
// they wait for each other.
type Cluster struct {
	opts     Options
	binaries string
	dir      string // everything that the cluster owns
	watchdog *watchdog
	socket   *controlSocket
	config   *rest.Config

	mu      sync.Mutex
	stopped bool
	plane   envtest.ControlPlane
	logs    map[string]*logTail
	up      map[string]bool // the processes that should be running
}

// Start finds or builds the programs (see Binaries), starts them, and returns
// when the API server is ready. Stop must be called at the end; should this
// process die before it, even by SIGKILL, a watchdog process cleans up.
// Cancelling ctx ends the start, not the cluster.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	opts = opts.withDefaults()
	arguments, err := parseArguments(opts.APIServerArgs)
	if err != nil {
		return nil, err
	}
	binaries, err := Binaries(ctx, opts)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "devcluster-")
	if err != nil {
		return nil, fmt.Errorf("make the folder of the cluster: %w", err)
	}
	dog, err := startWatchdog(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{
		opts:     opts,
		binaries: binaries,
		dir:      dir,
		watchdog: dog,
		logs:     map[string]*logTail{},
		up:       map[string]bool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.cleanUp())
		}
	}()
	if err := c.configure(arguments); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return nil, err
	}
	if err := c.login(); err != nil {
		return nil, err
	}
	if err := c.waitReady(ctx); err != nil {
		return nil, err
	}
	if c.socket, err = serveControl(c.socketPath(), c); err != nil {
		return nil, err
	}
	return c, nil
}

// parseArguments splits "--name=value" arguments.
func parseArguments(arguments []string) (map[string][]string, error) {
	parsed := map[string][]string{}
	for _, argument := range arguments {
		name, found := strings.CutPrefix(argument, "--")
		name, value, hasValue := strings.Cut(name, "=")
		if !found || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("argument %q of kube-apiserver: write it as --name=value", argument)
		}
		if !hasValue {
			value = "true"
		}
		parsed[name] = append(parsed[name], value)
	}
	return parsed, nil
}

// configure prepares both processes. envtest's ControlPlane is used without its
// Environment: that starts a failing process five times over before it says so,
// and listens to environment variables such as USE_EXISTING_CLUSTER.
func (c *Cluster) configure(arguments map[string][]string) error {
	paths := map[string]string{}
	var output io.Writer
	if c.opts.Output != nil {
		output = &lockedWriter{to: c.opts.Output}
	}
	for _, name := range servers {
		path, err := writeLauncher(c.dir, name, filepath.Join(c.binaries, name))
		if err != nil {
			return err
		}
		paths[name] = path
		c.logs[name] = &logTail{copyTo: output}
	}
	data, certs := filepath.Join(c.dir, "data"), filepath.Join(c.dir, "certs")
	for _, sub := range []string{data, certs} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			return fmt.Errorf("make the folder of the cluster: %w", err)
		}
	}
	c.plane.Etcd = &envtest.Etcd{
		Path:         paths[etcd],
		DataDir:      data,
		Out:          c.logs[etcd],
		Err:          c.logs[etcd],
		StartTimeout: c.opts.StartTimeout,
		StopTimeout:  stopGrace,
	}
	c.plane.APIServer = &envtest.APIServer{
		Path:         paths[apiServer],
		CertDir:      certs,
		Out:          c.logs[apiServer],
		Err:          c.logs[apiServer],
		StartTimeout: c.opts.StartTimeout,
		StopTimeout:  stopGrace,
	}
	// Without a grace period, open watches keep a stopping API server up for a
	// minute; with it they are closed in order.
	c.plane.APIServer.Configure().Set("shutdown-watch-termination-grace-period", "1s")
	for name, values := range arguments {
		c.plane.APIServer.Configure().Set(name, values...)
	}
	return nil
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := c.startProcess(ctx, etcd, c.plane.Etcd.Start)
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
		c.plane.Etcd.URL = nil // envtest chooses another port then
	}
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	server := c.plane.APIServer
	server.EtcdURL = c.plane.Etcd.URL
	if c.opts.Port != 0 {
		address := envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(c.opts.Port)}
		// Asked before the start: whoever has the port could answer in place of
		// our API server, and envtest would take that for its readiness.
		listener, err := net.Listen("tcp", address.HostPort())
		if err != nil {
			return fmt.Errorf("port %d is not free for kube-apiserver: %w; choose another, or 0 for any free one", c.opts.Port, err)
		}
		if err := listener.Close(); err != nil {
			return fmt.Errorf("try port %d: %w", c.opts.Port, err)
		}
		server.SecureServing.ListenAddr = address
		return c.startProcess(ctx, apiServer, server.Start)
	}
	for attempt := 1; ; attempt++ {
		err := c.startProcess(ctx, apiServer, server.Start)
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
		//lint:ignore SA1019 envtest still copies it over the new one
		server.SecureServing.Port, server.SecurePort = "", 0
	}
}

// startProcess calls one of envtest's Start functions and waits for it. After
// an error no process of that name is left.
func (c *Cluster) startProcess(ctx context.Context, name string, start func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start %s: %w", name, context.Cause(ctx))
	}
	log := c.logs[name]
	log.reset()
	started := make(chan error, 1)
	go func() { started <- start() }()

	var err error
	select {
	case err = <-started:
	case <-ctx.Done():
		// envtest cannot be interrupted, but it notices when its process ends.
		if err := markDying(c.dir); err != nil {
			return fmt.Errorf("interrupt the start of %s: %w", name, err)
		}
		ended := poll(2*c.opts.StartTimeout, func() bool {
			_ = signalGroup(c.dir, name, syscall.SIGKILL)
			select {
			case <-started:
				return true
			default:
				return false
			}
		})
		if !ended {
			return fmt.Errorf("interrupt the start of %s: it does not end", name)
		}
		_ = os.Remove(filepath.Join(c.dir, dyingName))
		err = context.Cause(ctx)
	}
	if err == nil {
		c.up[name] = true
		return nil
	}
	killErr := c.kill(name)
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("start %s: %w", name, err), killErr)
	}
	last := log.String()
	if strings.Contains(last, "address already in use") {
		err = errPortTaken
	} else if strings.Contains(err.Error(), "timeout") {
		// envtest says "timeout" of a process that has ended, too.
		err = fmt.Errorf("%w (it was given %s)", err, c.opts.StartTimeout)
	}
	return errors.Join(fmt.Errorf("start %s: %w; the last lines of its log:\n%s", name, err, last), killErr)
}

// kill ends a process at once and waits until it is gone.
func (c *Cluster) kill(name string) error {
	c.up[name] = false
	if err := signalGroup(c.dir, name, syscall.SIGKILL); err != nil {
		return err
	}
	// envtest's goroutine takes the exit status; a process that nobody has
	// waited for still counts as running.
	if !poll(10*time.Second, func() bool { return !running(c.dir, name) }) {
		return fmt.Errorf("kill %s: process %d does not end", name, pidOf(c.dir, name))
	}
	_ = os.Remove(filepath.Join(c.dir, name+".pid")) // the number may be reused
	stop := c.plane.Etcd.Stop
	if name == apiServer {
		stop = c.plane.APIServer.Stop
	}
	// Returns when the goroutines that copy the log have ended. Between the end
	// of the process and envtest's notice of it, it says that it can't signal.
	var err error
	poll(5*time.Second, func() bool {
		err = stop()
		return err == nil
	})
	return err
}

// login provisions the administrator and writes the kubeconfig file.
func (c *Cluster) login() error {
	user, err := c.plane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{
		// 0 would mean five requests per second.
		QPS: -1,
	})
	if err != nil {
		return fmt.Errorf("make the administrator: %w", err)
	}
	c.config = user.Config()
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return fmt.Errorf("make the kubeconfig: %w", err)
	}
	if err := os.WriteFile(c.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// Config returns a configuration of the administrator, without a client-side
// rate limit. Each call returns a new copy; it stays valid over restarts.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file of the administrator, which
// only the current user can read. Stop removes it.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *Cluster) socketPath() string { return filepath.Join(c.dir, "control") }

// Env returns the variables, as "NAME=value", that a command needs to use the
// cluster: KUBECONFIG, KOPF_DEVCLUSTER_CONTROL (see package control), and
// KUBEBUILDER_ASSETS, with which it can start its own ones by envtest.
func (c *Cluster) Env() []string {
	return []string{
		"KUBECONFIG=" + c.Kubeconfig(),
		control.EnvVar + "=" + c.socketPath(),
		assetsEnv + "=" + c.binaries,
	}
}

// Stop ends the control plane and removes all it has left. It returns an error
// if one of its processes had ended before by itself. A further call does
// nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	stopped := c.stopped
	c.stopped = true
	c.mu.Unlock()
	if stopped {
		return nil
	}
	// Requests that are being served need the lock to come to their end.
	err := c.socket.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range servers {
		if c.up[name] && !running(c.dir, name) {
			err = errors.Join(err, fmt.Errorf("%s had ended before it was stopped; the last lines of its log:\n%s", name, c.logs[name]))
		}
	}
	return errors.Join(err, c.cleanUp())
}

// cleanUp leaves nothing behind. The data are thrown away, so nobody needs to
// be asked to end in order.
func (c *Cluster) cleanUp() error {
	var errs []error
	if c.plane.APIServer != nil { // else the start did not come so far
		errs = append(errs, c.kill(apiServer), c.kill(etcd))
	}
	if err := os.RemoveAll(c.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove the folder of the cluster: %w", err))
	}
	return errors.Join(append(errs, c.watchdog.dismiss())...)
}
