package devcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

const megabyte = 1 << 20

// What a build needs, measured with Kubernetes 1.37 and rounded up.
const (
	spaceBinaries = 500 * megabyte  // all programs, while the linker writes them
	spaceModules  = 700 * megabyte  // the module cache, if it has nothing yet
	spaceCompiled = 3000 * megabyte // the build cache, if it has nothing yet
	// The go command holds a second copy of what it has compiled in its work
	// folder until the build ends.
	spaceWork = 3000 * megabyte
)

// volume is the file system that a folder is on.
type volume struct {
	id   uint64
	free uint64
}

// volumeOf looks at the nearest folder above dir that exists already.
func volumeOf(dir string) (volume, error) {
	for {
		var file unix.Stat_t
		err := unix.Stat(dir, &file)
		if errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return volume{}, fmt.Errorf("look at %s: %w", dir, err)
		}
		var system unix.Statfs_t
		if err := unix.Statfs(dir, &system); err != nil {
			return volume{}, fmt.Errorf("find the free space of %s: %w", dir, err)
		}
		return volume{
			id:   uint64(file.Dev), //nolint:unconvert // its type differs between systems
			free: system.Bavail * uint64(system.Bsize),
		}, nil
	}
}

// checkSpace compares what each folder needs with what its file system has;
// folders of one file system share it.
func checkSpace(needs map[string]uint64, of func(dir string) (volume, error)) error {
	type demand struct {
		volume
		dirs []string
		need uint64
	}
	demands := map[uint64]*demand{}
	for dir, need := range needs {
		v, err := of(dir)
		if err != nil {
			return err
		}
		d := demands[v.id]
		if d == nil {
			d = &demand{volume: v}
			demands[v.id] = d
		}
		d.need += need
		d.dirs = append(d.dirs, dir)
	}
	for _, d := range demands {
		if d.free >= d.need {
			continue
		}
		sort.Strings(d.dirs)
		return fmt.Errorf("not enough disk space: the build needs about %s in %s, where %s are free; free some, or set %s to a folder with ready-made programs",
			gigabytes(d.need), strings.Join(d.dirs, ", "), gigabytes(d.free), assetsEnv)
	}
	return nil
}

func gigabytes(n uint64) string {
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
