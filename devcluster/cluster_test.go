package devcluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kopf-go/kopf/devcluster/control"
)

// startCluster starts a real one, with a folder for temporary files of its own.
func startCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	if opts.Log == nil {
		opts.Log = &testLog{t: t}
	}
	begin := time.Now()
	c, err := Start(t.Context(), opts)
	must(t, err)
	t.Logf("started in %s", time.Since(begin))
	t.Cleanup(func() { must(t, c.Stop()) })
	return c
}

func clientOf(t *testing.T, c *Cluster) kubernetes.Interface {
	t.Helper()
	// By the file, as most tests will do.
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// changes makes a ConfigMap and changes it, and returns the version of a list
// that was made before.
func changes(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	object, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "changes-"}}, metav1.CreateOptions{})
	must(t, err)
	for _, value := range []string{"a", "b", "c"} {
		object.Data = map[string]string{"value": value}
		object, err = maps.Update(t.Context(), object, metav1.UpdateOptions{})
		must(t, err)
	}
	return list.ResourceVersion
}

// watchFrom watches ConfigMaps and returns the first event or error.
func watchFrom(t *testing.T, client kubernetes.Interface, version string) (watch.Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return watch.Event{}, err
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if event.Type == watch.Error {
		return event, apierrors.FromObject(event.Object)
	}
	return event, nil
}

func TestCluster(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	c := startCluster(t, Options{})
	client := clientOf(t, c)
	host := c.Config().Host
	pids := map[string]int{etcd: pidOf(c.dir, etcd), apiServer: pidOf(c.dir, apiServer)}

	for _, variable := range c.Env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	ctl, err := control.FromEnv()
	must(t, err)

	t.Run("configuration", func(t *testing.T) {
		if c.Config().QPS != -1 {
			t.Errorf("QPS %v", c.Config().QPS)
		}
		c.Config().Host = "changed"
		if c.Config().Host != host {
			t.Error("the configuration is not a copy")
		}
		info, err := os.Stat(c.Kubeconfig())
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode of the kubeconfig: %v", info.Mode())
		}
		version, err := client.Discovery().ServerVersion()
		must(t, err)
		if minor(version.GitVersion) != minor(KubernetesVersion) {
			t.Errorf("version %s", version.GitVersion)
		}
	})

	t.Run("namespace", func(t *testing.T) {
		_, err := client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
		must(t, err)
	})

	t.Run("history is watchable", func(t *testing.T) {
		event, err := watchFrom(t, client, changes(t, client))
		must(t, err)
		if event.Type != watch.Added {
			t.Errorf("got %s", event.Type)
		}
	})

	t.Run("compact and restart", func(t *testing.T) {
		version := changes(t, client)
		must(t, ctl.Compact(t.Context()))
		must(t, ctl.Compact(t.Context())) // nothing left to do

		w, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
		must(t, err)
		defer w.Stop()
		begin := time.Now()
		must(t, ctl.RestartAPIServer(t.Context()))
		t.Logf("restarted under an open watch in %s", time.Since(begin))
		for range w.ResultChan() { // its end is what we wait for
		}
		if pid := pidOf(c.dir, apiServer); pid == pids[apiServer] || !gone(pids[apiServer]) {
			t.Errorf("it is the same process, %d", pid)
		}
		if pidOf(c.dir, etcd) != pids[etcd] {
			t.Error("etcd was restarted, too")
		}
		if c.Config().Host != host {
			t.Errorf("moved from %s to %s", host, c.Config().Host)
		}
		_, err = client.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
		must(t, err)
		_, err = watchFrom(t, client, version)
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("the old version is not expired: %v", err)
		}
	})

	t.Run("pause and resume", func(t *testing.T) {
		must(t, ctl.PauseAPIServer(t.Context()))
		must(t, ctl.PauseAPIServer(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := client.CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a paused API server answered: %v", err)
		}
		must(t, ctl.ResumeAPIServer(t.Context()))
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
		must(t, err)
	})

	t.Run("restart when paused", func(t *testing.T) {
		must(t, ctl.PauseAPIServer(t.Context()))
		must(t, c.Restart(t.Context()))
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
		must(t, err)
	})

	t.Run("interrupted restart", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pid := pidOf(c.dir, apiServer)
		go func() {
			defer cancel()
			poll(patience, func() bool { p := pidOf(c.dir, apiServer); return p != 0 && p != pid })
		}()
		mustFail(t, c.Restart(ctx), "start kube-apiserver", "canceled")
		mustFail(t, c.Pause(), "does not run")
		must(t, c.Restart(t.Context()))
	})

	t.Run("unknown request", func(t *testing.T) {
		response, err := (&http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv(control.EnvVar))
			},
		}}).Get("http://devcluster/restart")
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET: %s", response.Status)
		}
	})

	pids[apiServer] = pidOf(c.dir, apiServer)
	pids["watchdog"] = c.watchdog.cmd.Process.Pid
	must(t, ctl.PauseAPIServer(t.Context()))
	begin := time.Now()
	must(t, c.Stop())
	t.Logf("stopped in %s", time.Since(begin))
	must(t, c.Stop())
	for name, pid := range pids {
		if !gone(pid) {
			t.Errorf("%s is left", name)
		}
	}
	left, err := os.ReadDir(temp)
	must(t, err)
	for _, entry := range left {
		t.Errorf("%s is left", entry.Name())
	}
	mustFail(t, c.Restart(t.Context()), "stopped")
	mustFail(t, ctl.Compact(t.Context()), "devcluster compact", "no such file")
}

func TestCompactionShowsWithoutAWatchCache(t *testing.T) {
	output := &testLog{t: t}
	c := startCluster(t, Options{APIServerArgs: []string{"--watch-cache=false"}, Output: output})
	client := clientOf(t, c)
	version := changes(t, client)
	must(t, c.Compact(t.Context()))
	_, err := watchFrom(t, client, version)
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("the old version is not expired: %v", err)
	}
	if !strings.Contains(output.String(), "etcd") {
		t.Error("the logs were not copied")
	}
}

func TestStopTellsOfADeath(t *testing.T) {
	c, err := Start(t.Context(), Options{Log: &testLog{t: t}})
	must(t, err)
	must(t, signalGroup(c.dir, etcd, syscall.SIGKILL))
	eventually(t, "etcd is dead", func() bool { return !running(c.dir, etcd) })
	mustFail(t, c.Stop(), "etcd had ended before it was stopped; the last lines of its log:\n{")
	if exists(c.dir) {
		t.Error("the folder is left")
	}
}

func TestParentThatIsKilled(t *testing.T) {
	cmd, out := startRole(t, "cluster")
	dir := readLine(t, out)
	if !filepath.IsAbs(dir) {
		t.Fatal(dir)
	}
	pids := map[string]int{etcd: pidOf(dir, etcd), apiServer: pidOf(dir, apiServer)}
	for name, pid := range pids {
		if pid == 0 || gone(pid) {
			t.Fatalf("%s does not run", name)
		}
	}
	must(t, cmd.Process.Kill())
	for name, pid := range pids {
		eventually(t, name+" is gone", func() bool { return gone(pid) })
	}
	eventually(t, "the folder is gone", func() bool { return !exists(dir) })
}

func TestPortThatIsTaken(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, listener.Close()) }()
	port := listener.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), Options{Port: port, Log: &testLog{t: t}})
	mustFail(t, err, "is not free for kube-apiserver", "choose another")
	mustBeEmpty(t, temp)
}

func TestStartOnAPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().(*net.TCPAddr)
	must(t, listener.Close())
	c := startCluster(t, Options{Port: address.Port})
	if !strings.Contains(c.Config().Host, address.String()) {
		t.Errorf("it is at %s", c.Config().Host)
	}
	must(t, c.Restart(t.Context()))
}

// Starts with programs that misbehave.
func startFake(t *testing.T, text string, opts Options) error {
	t.Helper()
	temp, assets := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv(assetsEnv, assets)
	fakePrograms(t, assets, KubernetesVersion, EtcdVersion, text)
	opts.Log = &testLog{t: t}
	_, err := Start(t.Context(), opts)
	mustBeEmpty(t, temp)
	return err
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		t.Errorf("%s is left", entry.Name())
	}
}

func TestStartThatTakesTooLong(t *testing.T) {
	err := startFake(t, "echo first >&2; echo almost there; sleep 1000", Options{StartTimeout: 300 * time.Millisecond})
	mustFail(t, err, "start etcd: timeout", "300ms", "the last lines of its log:\nfirst\nalmost there")
}

func TestStartThatEnds(t *testing.T) {
	err := startFake(t, "echo 'no such luck' >&2; exit 3", Options{})
	mustFail(t, err, "start etcd", "no such luck")
}

func TestStartWhosePortIsTakenMeanwhile(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	err := startFake(t, "echo x >>"+count+"; echo 'bind: address already in use'; exit 1", Options{})
	mustFail(t, err, "start etcd: its port is taken by another process", "bind: address already in use")
	tries, err := os.ReadFile(count)
	must(t, err)
	if len(tries) != len("x\n")*portAttempts {
		t.Errorf("tried %q", tries)
	}
}

func TestStartThatIsInterrupted(t *testing.T) {
	temp, assets := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv(assetsEnv, assets)
	began := filepath.Join(t.TempDir(), "began")
	fakePrograms(t, assets, KubernetesVersion, EtcdVersion, ": >"+began+"; sleep 1000")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		poll(patience, func() bool { return exists(began) })
		cancel(errors.New("the user is tired"))
	}()
	_, err := Start(ctx, Options{Log: &testLog{t: t}})
	mustFail(t, err, "start etcd: the user is tired")
	mustBeEmpty(t, temp)
}

func TestArgumentsThatAreWrong(t *testing.T) {
	for _, argument := range []string{"", "--", "v=2", "-v=2", "--=x", "--v 2=3"} {
		_, err := Start(t.Context(), Options{APIServerArgs: []string{argument}})
		mustFail(t, err, "write it as --name=value")
	}
	parsed, err := parseArguments([]string{"--a=1", "--a=2", "--b", "--c=x=y"})
	must(t, err)
	if len(parsed["a"]) != 2 || parsed["b"][0] != "true" || parsed["c"][0] != "x=y" {
		t.Errorf("got %v", parsed)
	}
}

func TestLogTail(t *testing.T) {
	var tail logTail
	if got := tail.String(); got != "(it wrote nothing)" {
		t.Errorf("got %q", got)
	}
	for range 100 {
		_, _ = tail.Write([]byte("line\nha"))
		_, _ = tail.Write([]byte("lf\n"))
	}
	_, _ = tail.Write([]byte(strings.Repeat("x", 10*tailLineLength) + "\nend"))
	lines := strings.Split(tail.String(), "\n")
	if len(lines) != tailLines+1 || lines[tailLines] != "end" || lines[tailLines-2] != "half" {
		t.Errorf("got %d lines, the last ones %q", len(lines), lines[len(lines)-3:])
	}
	if len(lines[tailLines-1]) > tailLineLength+len("…") {
		t.Errorf("a line of %d bytes", len(lines[tailLines-1]))
	}
	tail.reset()
	if got := tail.String(); got != "(it wrote nothing)" {
		t.Errorf("got %q", got)
	}
}
