package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile takes an exclusive lock that the kernel releases when this process
// ends, however it ends. waiting is called once if another process has it. The
// file stays: who removed it could take it away from under a process that has
// opened it and waits.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = file.Close() }, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			if waiting != nil {
				waiting()
				waiting = nil
			}
		case !errors.Is(err, unix.EINTR):
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another build: %w", context.Cause(ctx))
		}
	}
}
