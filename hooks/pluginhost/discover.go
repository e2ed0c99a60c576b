package pluginhost

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Problem is something that an operator should know of what was discovered.
type Problem struct {
	// ID is the plugin's, "" if it is about none.
	ID string
	// Path is the file or directory.
	Path string
	// Text is for people.
	Text string
}

// String returns the path and the text.
func (p Problem) String() string { return p.Path + ": " + p.Text }

// Discover finds the plugins in some directories: each directory in them that has a
// manifest, in the order of names, one directory after the other. That is the order
// in which they are started and asked. A plugin replaces one of the same id in an
// earlier directory. A directory that does not exist has none.
//
// What is there and cannot be used, or is locked and not there, is in the list too,
// as a Broken bundle: somebody counts on it. So is a directory that cannot be read, and
// a link that leads nowhere. The problems tell of it, and of whatever
// else is odd.
func Discover(dirs []string) ([]Bundle, []Problem) {
	d := &discovery{}
	for _, dir := range dirs {
		d.directory(dir)
	}
	for _, b := range d.bundles {
		if b.Broken != nil {
			d.problem(b.ID, cmp.Or(b.Path, b.Root), "%v", b.Broken)
		}
	}
	for i, b := range d.bundles {
		for _, earlier := range d.bundles[:i] {
			if b.Broken == nil && earlier.Broken == nil && ToolName(b.ID, "") == ToolName(earlier.ID, "") {
				d.problem(b.ID, cmp.Or(b.Path, b.Root), "its tools are called as those of %s: of two with the same name that one's is taken", earlier.ID)
			}
		}
	}
	return d.bundles, d.problems
}

type discovery struct {
	bundles  []Bundle
	problems []Problem
	seen     []fs.FileInfo
}

func (d *discovery) problem(id, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{ID: id, Path: path, Text: fmt.Sprintf(format, args...)})
}

// directory adds what is in one directory of plugins.
func (d *discovery) directory(dir string) {
	root, err := filepath.Abs(dir)
	if err != nil {
		d.problem("", dir, "%v", err)
		return
	}
	info, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) || err == nil && d.met(info) {
		return // the same twice replaces nothing
	}
	if err != nil {
		d.problem("", root, "%v", err)
		return
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		// It is there, and nobody knows what is in it.
		d.bundles = append(d.bundles, Bundle{Manifest: Manifest{ID: filepath.Base(root)}, Root: root, Path: root, Broken: err})
		return
	}
	var found []Bundle
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		info, err := os.Stat(path)
		switch {
		case strings.HasPrefix(e.Name(), ".") || err == nil && !info.IsDir():
			continue
		case errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0:
			continue // somebody has deleted it
		case err != nil: // such as a link to where a plugin was
			found = append(found, Bundle{Manifest: Manifest{ID: e.Name()}, Root: root, Path: path, Broken: err})
			continue
		}
		if _, err := os.Lstat(filepath.Join(path, ManifestName)); errors.Is(err, fs.ErrNotExist) {
			d.problem("", path, "it has no %s, so it is no plugin", ManifestName)
			continue
		}
		found = append(found, readBundle(root, path))
	}
	found = append(unique(found), d.missing(root, found)...)
	for _, b := range found {
		d.bundles = slices.DeleteFunc(d.bundles, func(earlier Bundle) bool {
			if earlier.ID != b.ID {
				return false
			}
			d.problem(b.ID, cmp.Or(b.Path, root), "it replaces %s", cmp.Or(earlier.Path, earlier.Root))
			return true
		})
	}
	d.bundles = append(d.bundles, found...)
}

// met says whether a directory was looked at before, and remembers it.
func (d *discovery) met(info fs.FileInfo) bool {
	if slices.ContainsFunc(d.seen, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
		return true
	}
	d.seen = append(d.seen, info)
	return false
}

func readBundle(root, path string) Bundle {
	at := filepath.Join(path, ManifestName)
	m, err := readManifest(at, at)
	if !idPattern.MatchString(m.ID) {
		m.ID = filepath.Base(path)
	}
	return Bundle{Manifest: m, Root: root, Path: path, Broken: err}
}

// unique makes one broken bundle of several with the same id in one directory:
// nobody can tell which is meant, and the backup of a policy is not the policy.
func unique(found []Bundle) []Bundle {
	var out []Bundle
	for _, b := range found {
		i := slices.IndexFunc(out, func(other Bundle) bool { return other.ID == b.ID })
		if i < 0 {
			out = append(out, b)
			continue
		}
		out[i].Broken = fmt.Errorf("%s and %s have the same id %s", out[i].Path, b.Path, b.ID)
	}
	return out
}

// missing are the plugins that are locked and not there.
func (d *discovery) missing(root string, found []Bundle) []Bundle {
	lock, err := ReadLock(root)
	if err != nil {
		d.problem("", root, "%v", err) // each of them is refused for it when it is started
		return nil
	}
	var out []Bundle
	for id := range lock.Digests {
		if !slices.ContainsFunc(found, func(b Bundle) bool { return b.ID == id }) {
			out = append(out, Bundle{
				Manifest: Manifest{ID: id}, Root: root,
				Broken: fmt.Errorf("it is in %s, and there is no such plugin", filepath.Join(root, LockName)),
			})
		}
	}
	slices.SortFunc(out, func(a, b Bundle) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
