package control_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/devcluster/control"
)

// serve answers on a socket and notes what was asked.
func serve(t *testing.T, code int, body string) (socket string, asked *[]string) {
	t.Helper()
	// Not t.TempDir: the path of a socket must be short.
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	socket, asked = filepath.Join(dir, "s"), new([]string)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return socket, asked
}

func TestRequests(t *testing.T) {
	socket, asked := serve(t, http.StatusNoContent, "")
	t.Setenv(control.EnvVar, socket)
	c, err := control.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []func(context.Context) error{c.RestartAPIServer, c.Compact, c.PauseAPIServer, c.ResumeAPIServer} {
		if err := do(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got, want := strings.Join(*asked, ", "), "POST /restart, POST /compact, POST /pause, POST /resume"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestTheReasonOfAFailure(t *testing.T) {
	socket, _ := serve(t, http.StatusInternalServerError, "no luck\n")
	err := control.New(socket).Compact(t.Context())
	if err == nil || err.Error() != "devcluster compact: 500 Internal Server Error: no luck" {
		t.Errorf("got %v", err)
	}
}

func TestNoDevcluster(t *testing.T) {
	t.Setenv(control.EnvVar, "")
	if _, err := control.FromEnv(); err == nil || !strings.Contains(err.Error(), "run the tests under the devcluster command") {
		t.Errorf("got %v", err)
	}
}
