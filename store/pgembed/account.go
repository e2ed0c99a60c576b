package pgembed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// account is the user that Postgres runs as. Postgres refuses to run as root,
// so root drops to another user; everybody else runs it as themselves.
type account struct {
	name   string
	home   string
	uid    int
	gid    int
	groups []int
	drop   bool // we are root and the child must not be
}

// chooseAccount names the user for a new data directory. The user must have a
// passwd entry, because initdb looks itself up.
func chooseAccount() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		home, _ := os.UserHomeDir()
		return account{name: strconv.Itoa(uid), home: home, uid: uid, gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		if a, err := dropTo(u); err == nil && a.uid != 0 {
			return a, nil
		}
	}
	return account{}, errors.New("running as root, which Postgres refuses, and there is neither a user postgres nor nobody to run it as: create one, or run agentd as another user")
}

func dropTo(u *user.User) (account, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("user %s: uid %q: %w", u.Username, u.Uid, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("user %s: gid %q: %w", u.Username, u.Gid, err)
	}
	a := account{name: u.Username, home: u.HomeDir, uid: uid, gid: gid, drop: true}
	ids, err := u.GroupIds()
	if err != nil {
		return a, nil // the primary group is enough to run
	}
	for _, id := range ids {
		if g, err := strconv.Atoi(id); err == nil {
			a.groups = append(a.groups, g)
		}
	}
	return a, nil
}

// adopt returns the owner of an existing data directory when we may become
// that user: `sudo agentd dev` in a project must not take the data away from
// the user who made it.
func (a account) adopt(dataDir string) account {
	if !a.drop {
		return a
	}
	info, err := os.Stat(dataDir)
	if err != nil {
		return a
	}
	uid, _ := owner(info)
	if uid == 0 || uid == a.uid {
		return a
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return a
	}
	if other, err := dropTo(u); err == nil {
		return other
	}
	return a
}

// credential is nil when the child keeps our user.
func (a account) credential() *syscall.Credential {
	if !a.drop {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	for _, g := range a.groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// env is all that Postgres gets to see. Our own environment may hold API keys,
// and PG* or LC_* variables would change what initdb makes.
func (a account) env() []string {
	env := []string{"LC_ALL=C", "HOME=" + a.home}
	for _, name := range []string{"PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// blockedAt returns the first existing directory above path that the account
// may not traverse, or "" when it can get to path. Access lists are not read.
func (a account) blockedAt(path string) string {
	if !a.drop {
		return ""
	}
	path = realPath(path)
	blocked := ""
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && !a.mayTraverse(info) {
			blocked = dir
		}
		if dir == filepath.Dir(dir) {
			return blocked
		}
	}
}

func (a account) mayTraverse(info fs.FileInfo) bool {
	uid, gid := owner(info)
	mode := info.Mode().Perm()
	switch {
	case uid == a.uid:
		return mode&0o100 != 0
	case gid == a.gid || slices.Contains(a.groups, gid):
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// own gives path to the account, with all that is in it when it belonged to
// somebody else. Symbolic links are not followed.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if uid, _ := owner(info); uid == a.uid {
		return nil
	}
	err = filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || p == path {
			return err
		}
		return os.Lchown(p, a.uid, a.gid)
	})
	if err != nil {
		return err
	}
	// Last, because its owner is what says that the walk was complete.
	return os.Lchown(path, a.uid, a.gid)
}

func owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}

// realPath resolves the links of the part of path that exists.
func realPath(path string) string {
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(resolved, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
