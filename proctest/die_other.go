//go:build !linux

package proctest

// DieWithParent does nothing where the kernel has no such service.
func DieWithParent() {}
