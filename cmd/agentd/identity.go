package main

import (
	"os"
	"os/user"
	"strconv"

	"github.com/seed-2ca4966b/agentd/store"
)

// newProcess is who this process is to those who ask later who put which hooks in
// force. Each call makes another.
func newProcess() store.Process {
	label, _ := versionAndCommit()
	return store.Process{ID: newID(), Host: hostname(), User: osUser(user.Current()), PID: os.Getpid(), Version: label}
}

// osUser is the name of the user, or the number where the system has no name for
// it, as in a container that was made from nothing.
func osUser(u *user.User, err error) string {
	if err != nil {
		return strconv.Itoa(os.Getuid())
	}
	return u.Username
}
