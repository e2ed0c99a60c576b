package pluginhost

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// Bundle is a plugin on disk: a directory with a manifest and whatever else the
// plugin needs.
type Bundle struct {
	Manifest
	// Root is the directory of plugins that it is in, where its lock is too; Path
	// is its own. Both are absolute. Path is "" of a plugin that is not there.
	Root, Path string
	// over is what its operator has put in the place of some of its config.
	over yamlfile.Object
	// Broken says why it cannot be used, nil if nothing is known. A broken bundle has
	// an ID: its directory's name if the manifest does not tell.
	Broken error
}

// Configured returns the bundle with another config: each member of over takes the place
// of that of the manifest's config, whole. What is on disk, and its digest, stay as
// they are.
func (b Bundle) Configured(over yamlfile.Object) Bundle {
	b.over = over
	b.Config = b.own.With(over).JSON()
	return b
}

// What a bundle may have.
const (
	maxFiles = 10_000
	maxBytes = 4 << 30
)

// Digest reads the whole bundle and returns "sha256:" and its digest over names,
// content, symbolic links and which files may be executed. It is an error if
// somebody else than this user or root may have written any of it, if a link leads
// out of it, or if it holds anything but files, directories and links.
func (b Bundle) Digest() (string, error) {
	if err := b.readable(); err != nil {
		return "", err
	}
	return digest(b.Path, owned)
}

// readable also looks at the directories above the files.
func (b Bundle) readable() error {
	for _, dir := range []string{b.Root, b.Path} {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := owned(dir, info); err != nil {
			return err
		}
	}
	return nil
}

// owned says whether somebody else may have written what is there. A user's own
// group, which has the user's number, is the user.
func owned(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case !ok:
		return fmt.Errorf("%s: the system does not say whose it is", name)
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: it has to belong to the user of agentd or to root", name, stat.Uid)
	case mode&0o002 != 0:
		return fmt.Errorf("%s may be written by everybody: chmod o-w", name)
	case mode&0o020 != 0 && stat.Gid != stat.Uid:
		return fmt.Errorf("%s may be written by group %d: chmod g-w", name, stat.Gid)
	}
	return nil
}

// program says whether there is something to execute.
func (b Bundle) program() error {
	root, err := os.OpenRoot(b.Path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	info, err := root.Stat(filepath.FromSlash(b.Exec))
	name := filepath.Join(b.Path, filepath.FromSlash(b.Exec))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s", name)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no program", name)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s may not be executed: chmod +x", name)
	}
	return nil
}

// copyTo copies the bundle to a directory that is made for it, where only this user
// may read and nobody write. It checks what [Bundle.Digest] checks, and no digest:
// that is for the copy.
func (b Bundle) copyTo(dir string) error {
	if err := b.readable(); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var dirs []string
	err := walk(b.Path, owned, func(root *os.Root, e entry) error {
		to := filepath.Join(dir, filepath.FromSlash(e.name))
		switch {
		case e.info.IsDir():
			dirs = append(dirs, to)
			if e.name == "." {
				return nil
			}
			return os.Mkdir(to, 0o700)
		case e.link != "":
			return os.Symlink(e.link, to)
		}
		return copyFile(root, e, to)
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Chmod(dirs[i], 0o500); err != nil { //nolint:gosec // a directory is entered by this bit
			return err
		}
	}
	return nil
}

func copyFile(root *os.Root, e entry, to string) error {
	from, err := root.Open(e.name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	mode := fs.FileMode(0o400)
	if e.executable() {
		mode = 0o500
	}
	// A child that is forked while the file is open for writing keeps it open for a
	// moment, and a program that somebody has open for writing is not executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}

// remove deletes a private copy, or what there is of it.
func remove(dir string) error {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(name, 0o700) //nolint:gosec // what is in it cannot be deleted without
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// digest reads what is below dir. Each file and directory has to pass check.
func digest(dir string, check func(name string, info fs.FileInfo) error) (string, error) {
	sum := sha256.New()
	sum.Write([]byte("agentd bundle 1\n"))
	err := walk(dir, check, func(root *os.Root, e entry) error {
		switch {
		case e.info.IsDir():
			record(sum, 'd', e.name, "")
		case e.link != "":
			record(sum, 'l', e.name, e.link)
		default:
			content, err := fileSum(root, e.name)
			if err != nil {
				return err
			}
			kind := byte('f')
			if e.executable() {
				kind = 'x'
			}
			record(sum, kind, e.name, content)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// record adds one entry, in a form that no other entries have.
func record(sum hash.Hash, kind byte, texts ...string) {
	sum.Write([]byte{kind})
	for _, s := range texts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(s)))
		sum.Write(size[:])
		io.WriteString(sum, s) //nolint:errcheck // a hash has no errors
	}
}

func fileSum(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return string(sum.Sum(nil)), nil
}

// entry is one thing in a bundle. Its name is relative, with slashes; that of the
// bundle is ".".
type entry struct {
	name string
	info fs.FileInfo
	// link is where a symbolic link leads, "" if it is none.
	link string
}

func (e entry) executable() bool { return e.info.Mode()&0o111 != 0 }

// walk visits all that is below dir, in the same order everywhere.
func walk(dir string, check func(name string, info fs.FileInfo) error, visit func(*os.Root, entry) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	var files, size int64
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		e, shown := entry{name: name, info: info}, filepath.Join(dir, name)
		switch files++; {
		case info.Mode()&fs.ModeSymlink != 0:
			if e.link, err = inside(root, name); err != nil {
				return fmt.Errorf("%s: %w", shown, err)
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("%s is neither a file nor a directory", shown)
		default:
			if err := check(shown, info); err != nil {
				return err
			}
			size += info.Size()
		}
		if files > maxFiles || size > maxBytes {
			return fmt.Errorf("%s has more than %d files or %d GiB", dir, maxFiles, maxBytes>>30)
		}
		return visit(root, e)
	})
}

// inside returns where a symbolic link leads, which has to be within root.
func inside(root *os.Root, name string) (string, error) {
	link, err := root.Readlink(name)
	if err != nil {
		return "", err
	}
	if _, err := root.Stat(name); err != nil {
		return "", fmt.Errorf("the link leads out of the plugin, or nowhere: %s", link)
	}
	return link, nil
}
