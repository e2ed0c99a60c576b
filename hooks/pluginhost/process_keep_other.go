//go:build !linux

package pluginhost

import "syscall"

// childAttr gives the plugin a group of its own; the kernel makes no promise.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adopt does nothing: what leaves the plugin's process group stays.
func adopt() {}

// limited bounds nothing.
func limited(_ int64, start func() (int, error)) (int, error) { return start() }

func dup2(from, to int) error { return syscall.Dup2(from, to) }

// children are not looked for: they are in the plugin's process group.
func children() []int { return nil }

// killUsers does nothing: who has which environment nobody tells.
func killUsers(string) {}
