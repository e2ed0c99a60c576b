package store

import (
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// LoadCause is why a process put hooks in force. The words are stored.
type LoadCause string

// The causes.
const (
	// LoadStart: the process started.
	LoadStart LoadCause = "start"
	// LoadSignal: somebody told it to read its configuration again.
	LoadSignal LoadCause = "signal"
	// LoadFile: it saw that a file had changed.
	LoadFile LoadCause = "file"
	// LoadPlugin: plugins were loaded again, or one came up for the first time.
	LoadPlugin LoadCause = "plugin"
)

// HookSetLoad is that a process puts a hook set in force.
type HookSetLoad struct {
	Set hooks.HookSet
	// Previous is the digest of the set that the process had before. It is ""
	// with [LoadStart] and with no other cause.
	Previous string
	Cause    LoadCause
	Process  Process
	// Files are those that it read, in their order; nil for none.
	Files []HookFile
}

// Process is who puts hooks in force, as it says itself.
type Process struct {
	// ID is a UUID, the same for as long as the process runs.
	ID string
	// Host and User may be "" where the system does not say.
	Host string
	User string
	PID  int
	// Version is that of the binary.
	Version string
}

// HookFile is a file that hooks were read from.
type HookFile struct {
	Path string `json:"path"`
	// SHA256 is that of its content, in hex.
	SHA256   string    `json:"sha256"`
	Modified time.Time `json:"modified"`
}
