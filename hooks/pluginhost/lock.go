package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// LockName is the file, in a directory of plugins, that says what they were when
// somebody looked at them.
const LockName = "plugins.lock"

// Lock is a plugins.lock. Of a directory that has none, Exists is false.
type Lock struct {
	// Exists says that there is one. Then what is not in it is not started.
	Exists bool
	// Digests are those of the bundles, by id.
	Digests map[string]string
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ReadLock reads the plugins.lock of a directory. It has to be written by whom a
// plugin has to be written by.
func ReadLock(root string) (Lock, error) {
	name := filepath.Join(root, LockName)
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Lock{}, nil
	case err != nil:
		return Lock{}, err
	}
	if err := owned(name, info); err != nil {
		return Lock{}, err
	}
	text, err := yamlfile.Read(name)
	if err != nil {
		return Lock{}, err
	}
	if len(text) > yamlfile.MaxBytes {
		return Lock{}, fmt.Errorf("%s has more than %d bytes", name, yamlfile.MaxBytes)
	}
	lock := Lock{Exists: true, Digests: map[string]string{}}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, digest, _ := strings.Cut(line, " ")
		if !idPattern.MatchString(id) || !digestPattern.MatchString(digest) {
			return Lock{}, fmt.Errorf("%s:%d: expected the id of a plugin, a space and sha256: with its digest", name, number)
		}
		if _, twice := lock.Digests[id]; twice {
			return Lock{}, fmt.Errorf("%s:%d: %s stands twice", name, number, id)
		}
		lock.Digests[id] = digest
	}
	return lock, nil
}

// WriteLock writes the plugins.lock of a directory in one step: who reads it sees
// the old or the new one.
func WriteLock(root string, digests map[string]string) error {
	var text strings.Builder
	text.WriteString("# What is not here, or not as it is here, is not started. Written by: agentd plugins lock\n")
	for _, id := range slices.Sorted(maps.Keys(digests)) {
		if !idPattern.MatchString(id) || !digestPattern.MatchString(digests[id]) {
			return fmt.Errorf("%q with the digest %q cannot be locked", id, digests[id])
		}
		text.WriteString(id + " " + digests[id] + "\n")
	}
	f, err := os.CreateTemp(root, LockName+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text.String())
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(root, LockName))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it may be there or not
	}
	return err
}

// ErrNotLocked is that a bundle is not what plugins.lock says, or not in it.
var ErrNotLocked = errors.New("not as locked")

// pinned says whether a bundle with this digest may be started. Where there is no
// lock it may, unless one is required.
func (b Bundle) pinned(digest string, required bool) error {
	lock, err := ReadLock(b.Root)
	if err != nil {
		return err
	}
	file := filepath.Join(b.Root, LockName)
	locked, ok := lock.Digests[b.ID]
	switch {
	case !lock.Exists && !required:
		return nil
	case !lock.Exists:
		return fmt.Errorf("%w: there is no %s: look at the plugin, then run agentd plugins lock", ErrNotLocked, file)
	case !ok:
		return fmt.Errorf("%w: it is not in %s: look at the plugin, then run agentd plugins lock", ErrNotLocked, file)
	case locked != digest:
		return fmt.Errorf("%w: %s has changed since it was locked: it is %s, and %s says %s", ErrNotLocked, b.Path, digest, file, locked)
	}
	return nil
}

// Check says why the bundle would not be started as it is on disk now, nil if
// nothing stands against it. What its program does is not known before it runs.
// Required says that there has to be a lock.
func (b Bundle) Check(required bool) error {
	if b.Broken != nil {
		return b.Broken
	}
	sum, err := b.Digest()
	if err != nil {
		return err
	}
	if err := b.pinned(sum, required); err != nil {
		return err
	}
	return b.program()
}
