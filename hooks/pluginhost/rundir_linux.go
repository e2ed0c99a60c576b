package pluginhost

import "golang.org/x/sys/unix"

// noexec says whether the file system of a directory executes nothing.
func noexec(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}
